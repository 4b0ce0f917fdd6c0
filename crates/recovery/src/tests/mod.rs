//! The facade against the paragraphs of RFC 9002, and against itself.

mod acks;
mod flight;
mod harness;
mod limits;
mod losses;
mod paths;
mod persistent;
mod property;
mod pto;
mod rtt;
mod spurious;
