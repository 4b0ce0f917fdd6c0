//! The QUIC transport (RFC 8999, 9000, 9001, 9002), sans-I/O: bytes and time go
//! in, bytes and time come out.
//!
//! ```text
//! wire/        bytes <-> headers, frames, transport parameters
//! crypto/      TLS session, packet keys, tokens, reset tokens, session store
//! cid/         connection IDs: issued by us, issued by the peer, generator
//! path/        which path is used; validation, amplification, ECN, MTU of one
//! stream/      streams, flow control, send and receive buffers, scheduling
//! datagram     DATAGRAM frames (RFC 9221)
//! ack          when to acknowledge what was received
//! bucket       allowances that time refills
//! rng          randomness, seeded by the caller
//! connection/  one connection: receive, transmit, timers
//! endpoint/    which connection a datagram belongs to; Retry, VN, reset, overload
//! event        what happened, for traces
//! ```
//!
//! Nothing that a peer sends may panic: outside of tests, what could is denied by
//! lint, and each exception says in a line why it can't.

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

pub mod ack;
pub mod bucket;
pub mod cid;
pub mod connection;
mod count;
pub mod crypto;
pub mod datagram;
pub mod endpoint;
pub mod error;
pub mod event;
mod memory;
pub mod path;
pub mod rng;
pub mod stream;
pub mod wire;

pub use clearway_recovery::time::{self, Instant};

/// Which end of the connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sent the first Initial.
    Client,
    /// Answered it.
    Server,
}

impl Role {
    /// The other end.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
