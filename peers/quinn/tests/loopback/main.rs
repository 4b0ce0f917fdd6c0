//! The program on loopback: against itself, and against peers that break the protocol.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod harness;
mod misbehaviour;
mod options;
