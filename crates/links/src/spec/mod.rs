//! Text forms of rates, times, probabilities and sizes.
//!
//! Every type here parses from text and displays as text that parses to the same value. Errors give
//! the problem and the accepted forms.

mod decimal;
mod error;
mod options;
mod probability;
mod rate;
mod size;
mod span;

pub(crate) use decimal::{Unit, parse_with_unit, write_with_unit};
pub use error::SpecError;
pub(crate) use options::{ValueOption, options, positive};
pub use probability::Probability;
pub use rate::Rate;
pub use size::ByteSize;
pub use span::Span;
