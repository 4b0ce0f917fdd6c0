//! HTTP/3 and QPACK without I/O (RFC 9114, 9204, 9218, 9220, 9297).
//!
//! ```text
//! connection/       a connection: the calls and events of the application
//! exchange          a request and its response: two state machines
//! receive_half      the receiving side of a request stream
//! head              header sections; validate: whether they are malformed
//! frame             frames; frame_reader: reading them as they arrive
//! capsule           capsules in the body of an extended CONNECT
//! settings stream_kind goaway priority datagram   what the other frames and streams carry
//! early_datagrams   HTTP datagrams that arrived before their request
//! qpack/            field compression
//! send_buffer       data that the transport has not accepted yet
//! limits            what a peer may cost; memory: the size of hash tables
//! timeouts          how long a server waits; progress: whether a peer makes any
//! defects           connections with one defect, for tests (feature `defects`)
//! event error       events for the application, and errors
//! webtransport/     sessions: their capsules, streams and error codes
//! transport         the interface to QUIC
//! count byte_map varint_buffer   counters, lookup tables, incomplete integers
//! ```
//!
//! Nothing that a peer sends may cause a panic: outside of tests, lints deny whatever could, and
//! each exception states why it cannot.

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
mod connection;
mod count;
pub mod datagram;
#[cfg(feature = "defects")]
pub mod defects;
#[cfg(not(feature = "defects"))]
#[allow(unreachable_pub, reason = "public only with the feature")]
mod defects;
mod early_datagrams;
pub mod error;
mod event;
mod exchange;
pub mod frame;
mod frame_reader;
mod goaway;
mod head;
mod limits;
mod memory;
mod message_state;
mod priority;
mod progress;
pub mod qpack;
mod receive_half;
mod send_buffer;
mod settings;
mod stream_kind;
#[cfg(feature = "testing")]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a transport for tests, which has no peer"
)]
pub mod testing;
mod timeouts;
mod transport;
mod validate;
mod varint_buffer;
pub mod webtransport;

pub use connection::{Config, Connection, DatagramError};
pub use error::{BodyError, Code, ConnectionError, SendError, StreamError};
pub use event::Event;
pub use exchange::Body;
pub use head::{Request, Response, field};
pub use limits::{Counters, Limits};
pub use priority::Priority;
pub use qpack::Field;
pub use settings::Settings;
pub use timeouts::{Deadline, Timeouts};
pub use transport::Transport;
