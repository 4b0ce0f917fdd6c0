//! Recorded sequences of other tools as cases.

mod h3i;

pub use h3i::{ImportError, h3i};
