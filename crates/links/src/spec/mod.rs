//! How people write rates, times, chances and sizes.
//!
//! Every type here parses from text and prints text that parses back to the
//! same value. Errors say what was wrong and what would be right.

mod decimal;
mod error;
mod options;
mod probability;
mod rate;
mod span;

pub(crate) use decimal::{Unit, parse_with_unit, write_with_unit};
pub use error::SpecError;
pub(crate) use options::{Choice, options, positive};
pub use probability::Probability;
pub use rate::Rate;
pub use span::Span;
