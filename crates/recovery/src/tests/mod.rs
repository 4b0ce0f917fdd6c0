//! The facade against the paragraphs of RFC 9002, and against itself.

mod acks;
mod flight;
mod harness;
mod idle;
mod limits;
mod losses;
mod memory;
mod paths;
mod persistent;
mod property;
mod pto;
mod rtt;
#[cfg(feature = "specimens")]
mod specimens;
mod spurious;
