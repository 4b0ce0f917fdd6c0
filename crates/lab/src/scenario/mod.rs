//! Scenarios as data: what is between two hosts, what they carry, and what has
//! to come of it.
//!
//! A scenario is a TOML file; the catalogue's are built into the library
//! ([`catalogue`]), a user's own is read the same way ([`Scenario::parse`]).
//! Mistakes are answered with file, line, and what would be right.

mod bars;
mod case;
mod catalogue;
mod error;
mod flows;
mod network;
mod parse;
mod transport;
mod tree;
mod units;
mod variables;

pub use bars::{Bar, Missed, Over};
pub use case::{Case, Flow};
pub use catalogue::{catalogue, find};
pub use error::ScenarioError;
pub(crate) use error::suggest;
pub use parse::Scenario;
pub use units::Unit;
pub use variables::{Assignment, MOST_POINTS};

/// How much of a scenario to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Size {
    /// All of it.
    Full,
    /// What its `[ci]` table says: seconds rather than hours.
    #[default]
    Ci,
}

/// Controllers a scenario is for unless it names its own.
pub const CONTROLLERS: &[&str] = &["newreno", "cubic", "bbr"];

#[cfg(test)]
mod tests;
