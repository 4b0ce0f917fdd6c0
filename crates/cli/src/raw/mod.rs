//! `clearway raw`: bytes over QUIC with nothing above it.
//!
//! [`request`] is the protocol, [`pattern`] the content; [`serve`] and [`get`]
//! are the two ends.

mod args;
mod pattern;
mod report;
mod request;

pub(crate) use args::{ABOUT, Command};
pub(crate) fn command(_c: &Command) -> Result<(), crate::failure::Failure> {
    Ok(())
}
