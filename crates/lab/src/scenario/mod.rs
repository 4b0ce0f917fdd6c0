//! Scenarios as data: the network between two hosts, the flows over it, and the required results.
//!
//! A scenario is a TOML file. Those of the catalogue are built into the library ([`catalogue()`]);
//! others are read with [`Scenario::parse`]. Errors give the file, the line, and what to write
//! instead.

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

pub use bars::{Aggregation, Bar, KnownMiss};
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
    /// The full size.
    Full,
    /// The size of its `[ci]` table: seconds rather than hours.
    #[default]
    Ci,
}

/// The controllers of a scenario that names none.
pub const CONTROLLERS: &[&str] = &["newreno", "cubic", "bbr"];

#[cfg(test)]
mod tests;
