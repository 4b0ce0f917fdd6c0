//! The program on loopback: against itself, and against peers that break the protocol.

mod harness;
mod misbehaviour;
mod options;
