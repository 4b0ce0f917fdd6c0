//! The header of a stream of a session: its type and the session's ID (draft-ietf-webtrans-http3
//! §4.2, §4.3).

use bytes::Bytes;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::Reader;

use crate::frame::put_varint;
use crate::varint_buffer::VarintBuffer;

/// The type of a unidirectional stream.
pub const UNI_STREAM: u64 = 0x54;
/// The first integer of a bidirectional stream.
pub const BIDI_STREAM: u64 = 0x41;

/// A stream that the peer opened, behind its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingStream {
    /// The stream.
    pub id: StreamId,
    /// What was read behind the header; it comes before what the transport returns.
    pub buffered: Bytes,
}

/// The header of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// The type: [`UNI_STREAM`] or [`BIDI_STREAM`].
    pub kind: u64,
    /// The ID of the session.
    pub session: u64,
}

impl StreamHeader {
    /// Creates the header of a stream of `session`.
    #[must_use]
    pub const fn new(directionality: Directionality, session: StreamId) -> Self {
        let kind = match directionality {
            Directionality::Unidirectional => UNI_STREAM,
            Directionality::Bidirectional => BIDI_STREAM,
        };
        Self {
            kind,
            session: session.as_u64(),
        }
    }

    /// Returns the encoded header.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(10);
        put_varint(&mut out, self.kind);
        put_varint(&mut out, self.session);
        out
    }
}

/// Reads the header of a stream as its bytes arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamHeaderReader(VarintBuffer<16>);

impl StreamHeaderReader {
    /// Creates a reader for a stream whose type was already read.
    #[must_use]
    pub fn after_kind(kind: u64) -> Self {
        let mut bytes = Vec::with_capacity(8);
        put_varint(&mut bytes, kind);
        let mut reader = Self::default();
        reader.push(&bytes);
        reader
    }

    /// Reads the header. Returns it and how many bytes were used, once it is complete.
    pub fn push(&mut self, bytes: &[u8]) -> Option<(StreamHeader, usize)> {
        for (used, &byte) in bytes.iter().enumerate() {
            self.0.push(byte);
            let mut r = Reader::new(self.0.bytes());
            if let (Some(kind), Some(session)) = (r.varint(), r.varint()) {
                return Some((StreamHeader { kind, session }, used.saturating_add(1)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_the_same_however_it_is_split() {
        for session in [0, 4, 400, 1 << 20, (1 << 62) - 4] {
            for directionality in [
                Directionality::Unidirectional,
                Directionality::Bidirectional,
            ] {
                let header = StreamHeader::new(directionality, StreamId::from_wire(session));
                let mut bytes = header.encode();
                let len = bytes.len();
                bytes.extend_from_slice(b"data");
                let mut whole = StreamHeaderReader::default();
                assert_eq!(whole.push(&bytes), Some((header, len)));
                let mut pieces = StreamHeaderReader::default();
                let (last, first) = bytes[..len].split_last().unwrap();
                assert!(first.iter().all(|&byte| pieces.push(&[byte]).is_none()));
                assert_eq!(pieces.push(&[*last]), Some((header, 1)));
                let mut after = StreamHeaderReader::after_kind(header.kind);
                assert_eq!(after.push(&bytes[2..]), Some((header, len - 2)));
            }
        }
    }

    #[test]
    fn longest_header_fits() {
        let mut reader = StreamHeaderReader::default();
        let mut bytes = [0xff; 16];
        bytes[..8].copy_from_slice(&(0xc000_0000_0000_0000 | UNI_STREAM).to_be_bytes());
        let header = StreamHeader {
            kind: UNI_STREAM,
            session: (1 << 62) - 1,
        };
        assert_eq!(reader.push(&bytes), Some((header, 16)));
    }
}
