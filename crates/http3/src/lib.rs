//! HTTP/3 and QPACK, with no I/O (RFC 9114, 9204, 9218, 9220, 9297).
//!
//! ```text
//! connection/   one connection: what the application calls and hears
//! request       one request and its response: two state machines
//! head          header sections; validate: what makes them malformed
//! frame reader  frames, and reading them as they come; capsule: those in bodies
//! settings stream_kind goaway priority datagram   what the other parts carry
//! qpack/        field compression
//! outlet        bytes the transport has not taken yet
//! limits        what a peer may cost
//! event error   what the application hears, and what went wrong
//! transport     what is asked of QUIC
//! ```
pub mod capsule;
pub mod connection;
pub mod datagram;
pub mod error;
pub mod event;
pub mod frame;
mod goaway;
pub mod head;
pub mod limits;
mod outlet;
mod partial;
pub mod priority;
pub mod qpack;
mod reader;
mod request;
pub mod settings;
pub mod stream_kind;
#[cfg(feature = "testing")]
pub mod testing;
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
pub use transport::Transport;
