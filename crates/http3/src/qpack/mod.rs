//! QPACK: field compression for HTTP/3 (RFC 9204), without I/O.
//!
//! An [`Encoder`] encodes fields to field sections, and writes instructions for the peer's decoder;
//! a [`Decoder`] does the reverse. Both have a dynamic table with the same content, as far as the
//! instructions have arrived:
//!
//! ```
//! use clearway_http3::qpack::{Decoded, Decoder, Encoder, FieldRef};
//!
//! let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new(4096, 16));
//! encoder.set_peer_limits(4096, 16).expect("the first SETTINGS");
//! let mut section = Vec::new();
//! let fields = [FieldRef::new(b":method", b"GET"), FieldRef::new(b"user-agent", b"clearway")];
//! encoder.encode(0, fields, &mut section);
//! // The section goes on its stream, instructions on the encoder stream.
//! decoder.on_encoder_stream(&encoder.instructions().split())?;
//! let Decoded::Fields(decoded) = decoder.decode(0, section.into(), 16 << 10)? else {
//!     unreachable!("its insertions have come");
//! };
//! assert!(decoded.iter().map(|field| field.as_ref()).eq(fields));
//! // What was decoded is acknowledged on the decoder stream.
//! encoder.on_decoder_stream(&decoder.instructions().split())?;
//! # Ok::<(), clearway_http3::qpack::QpackError>(())
//! ```

mod decoder;
mod dynamic_table;
mod encoder;
mod error;
mod field;
mod huffman;
mod instruction;
mod integer;
mod line;
mod prefix;
mod section;
mod static_table;
mod string;
#[cfg(test)]
mod tests;

pub use decoder::{Decoded, Decoder};
pub use encoder::Encoder;
pub use error::{ErrorCode, QpackError, Reason};
pub(crate) use field::size as field_size;
pub use field::{FIELD_OVERHEAD, Field, FieldRef};
