//! The QUIC transport (RFC 8999, 9000, 9001, 9002) without I/O: bytes and time go in, bytes
//! and time come out.
//!
//! ```text
//! wire/        bytes <-> headers, frames, transport parameters
//! crypto/      TLS session, packet keys, tokens, reset tokens, session store
//! cid/         connection IDs: issued by us, issued by the peer, generator
//! path/        which path is used; validation, amplification, ECN, MTU of each
//! stream/      streams, flow control, send and receive buffers, scheduling
//! datagram     DATAGRAM frames (RFC 9221)
//! ack          when to acknowledge what was received
//! bucket       rate limits
//! rng          random numbers, seeded by the caller
//! connection/  one connection: receive, transmit, timers
//! endpoint/    which connection a datagram belongs to; Retry, Version Negotiation,
//!              stateless reset, limits
//! defects/     connections with one defect, for tests (feature `defects`)
//! event        events for traces, metrics and tests
//! testing      the parts of a connection, for tests and fuzzers (feature `testing`)
//! ```
//!
//! Nothing that a peer sends may cause a panic: outside of tests, lints deny whatever could
//! panic, and each exception states why it cannot.

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
// What `testing` shows is public only with that feature; the lint does its work in a build with it.
#![cfg_attr(not(feature = "testing"), allow(unreachable_pub))]

pub mod ack;
pub mod bucket;
pub mod cid;
pub mod connection;
mod count;
pub mod crypto;
pub mod datagram;
#[cfg(feature = "defects")]
pub mod defects;
#[cfg(not(feature = "defects"))]
#[allow(unreachable_pub, reason = "public only with the feature")]
mod defects;
pub mod endpoint;
pub mod error;
pub mod event;
mod memory;
pub mod path;
pub mod rng;
pub mod stream;
#[cfg(feature = "testing")]
pub mod testing;
pub mod wire;

pub use clearway_recovery::time::{self, Instant};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that sends the first Initial packet.
    Client,
    /// The end that answers it.
    Server,
}

impl Role {
    /// Returns the other end.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
