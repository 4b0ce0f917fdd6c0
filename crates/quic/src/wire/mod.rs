//! Encoding and decoding (RFC 9000 §16–19): integers, headers, frames, transport parameters.
//!
//! ```text
//! cursor                reading and writing integers and byte strings
//! version               QUIC versions
//! number                encoding and decoding of packet numbers
//! packet                the types of packets that carry frames
//! header                long and short headers
//! negotiation retry reset   the packets without frames
//! frame                 frames
//! stream_id             stream IDs
//! ranges                sets of numbers, for acknowledgments and sent data
//! transport_parameters  transport parameters
//! ```
pub mod cursor;
pub mod frame;
pub mod header;
pub(crate) mod negotiation;
pub(crate) mod number;
pub(crate) mod packet;
pub(crate) mod ranges;
pub(crate) mod reset;
pub(crate) mod retry;
pub(crate) mod stream_id;
pub(crate) mod transport_parameters;
pub(crate) mod version;

pub use cursor::{Reader, Writer};
pub use frame::{Frame, Frames};
pub use header::{ByteSpan, PartialHeader};
pub use packet::PacketKind;
pub use stream_id::StreamId;
pub use transport_parameters::{PreferredAddress, TransportParameters, VersionInformation};
pub use version::{Version, VersionPreference, VersionPreferenceError};

pub(crate) use number::TruncatedNumber;
pub(crate) use ranges::RangeSet;

/// The UDP payload, in bytes, that every QUIC path carries and every endpoint takes: the
/// smallest allowed maximum datagram size (RFC 9000 §14). Datagrams that carry an Initial
/// (§14.1) or validate a path (§8.2.1) are padded to it.
pub const MIN_MTU: u16 = 1200;
