//! HTTP/3 and QPACK, with no I/O (RFC 9114, 9204, 9218, 9220, 9297).
//!
//! ```text
//! connection/   one connection: what the application calls and hears
//! request       one request and its response: two state machines
//! receiving     the peer's message: what was read of it, and found in it
//! head          header sections; validate: what makes them malformed
//! frame reader  frames, and reading them as they come; capsule: those in bodies
//! settings stream_kind goaway priority datagram   what the other parts carry
//! qpack/        field compression
//! outlet        bytes the transport has not taken yet
//! limits        what a peer may cost; memory: what tables allocate
//! timeouts      how long it may take; progress: whether it gets on
//! event error   what the application hears, and what went wrong
//! transport     what is asked of QUIC
//! count byte_map partial   counters; a value for each byte; bytes of an integer
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

mod byte_map;
pub mod capsule;
pub mod connection;
mod count;
pub mod datagram;
pub mod error;
pub mod event;
pub mod frame;
mod goaway;
pub mod head;
pub mod limits;
mod memory;
mod outlet;
mod partial;
pub mod priority;
mod progress;
pub mod qpack;
mod reader;
mod receiving;
mod request;
pub mod settings;
pub mod stream_kind;
#[cfg(feature = "testing")]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a stand-in for tests, which hears no peer"
)]
pub mod testing;
pub mod timeouts;
pub mod transport;
mod validate;

pub use connection::{Config, Connection, DatagramError};
pub use error::{BodyError, Code, ConnectionError, SendError, StreamError};
pub use event::Event;
pub use head::{Request, Response, field};
pub use limits::{Counters, Limits};
pub use priority::Priority;
pub use qpack::Field;
pub use request::Body;
pub use settings::Settings;
pub use timeouts::{Deadline, Timeouts};
pub use transport::Transport;
