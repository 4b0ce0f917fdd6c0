//! Tests of the whole of loss recovery against RFC 9002, and of its invariants.

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
