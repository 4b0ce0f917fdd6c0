//! Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).

use clearway_quic::wire::Reader;
use clearway_quic::wire::cursor::VARINT_MAX;

use crate::varint_buffer::VarintBuffer;

/// The type of a unidirectional stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The control stream.
    Control,
    /// A push stream.
    Push,
    /// The QPACK encoder stream.
    QpackEncoder,
    /// The QPACK decoder stream.
    QpackDecoder,
    /// A stream of a WebTransport session.
    WebTransport,
    /// Any other type, reserved ones included; ignored (RFC 9114 §9).
    Unknown(u64),
}

impl StreamKind {
    /// Converts the type on the wire.
    #[must_use]
    pub(crate) const fn from_wire(kind: u64) -> Self {
        match kind {
            0 => Self::Control,
            1 => Self::Push,
            2 => Self::QpackEncoder,
            3 => Self::QpackDecoder,
            0x54 => Self::WebTransport,
            other => Self::Unknown(other),
        }
    }

    /// Returns the type on the wire.
    #[must_use]
    pub(crate) const fn as_u64(self) -> u64 {
        match self {
            Self::Control => 0,
            Self::Push => 1,
            Self::QpackEncoder => 2,
            Self::QpackDecoder => 3,
            Self::WebTransport => 0x54,
            Self::Unknown(other) => other,
        }
    }
}

/// A unidirectional stream of the peer, whose type has not arrived completely.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UntypedStream(VarintBuffer<8>);

impl UntypedStream {
    /// Reads the type. Returns it and how many bytes were used, once it is complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<(StreamKind, usize)> {
        for (used, &byte) in bytes.iter().enumerate() {
            self.0.push(byte);
            if let Some(kind) = Reader::new(self.0.bytes()).varint() {
                return Some((StreamKind::from_wire(kind), used.saturating_add(1)));
            }
        }
        None
    }
}

/// Returns the `n`th of the values reserved for exercising the requirement to ignore unknown types
/// (RFC 9114 §7.2.8). Wraps around after the last value that fits 62 bits.
#[must_use]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "below 2^62, by the remainder"
)]
pub(crate) const fn reserved(n: u64) -> u64 {
    0x1f * (n % RESERVED) + 0x21
}

/// How many reserved values there are below 2^62.
const RESERVED: u64 = (VARINT_MAX - 0x21) / 0x1f + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_values_wrap_around_within_62_bits() {
        assert_eq!(reserved(RESERVED - 1), VARINT_MAX - 1);
        assert_eq!(reserved(RESERVED), reserved(0));
        assert!(reserved(u64::MAX) <= VARINT_MAX);
        assert_eq!((reserved(u64::MAX) - 0x21) % 0x1f, 0);
    }

    #[test]
    fn stream_types_round_trip() {
        for kind in 0..100 {
            assert_eq!(StreamKind::from_wire(kind).as_u64(), kind);
        }
        assert_eq!(StreamKind::from_wire(reserved(0)), StreamKind::Unknown(33));
    }

    #[test]
    fn type_may_arrive_in_pieces() {
        let mut stream = UntypedStream::default();
        assert_eq!(stream.push(&[]), None);
        assert_eq!(stream.push(&[0x40]), None);
        assert_eq!(stream.push(&[2, 9]), Some((StreamKind::QpackEncoder, 1)));
        let mut long = UntypedStream::default();
        assert_eq!(long.push(&[0xc0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(long.push(&[3]), Some((StreamKind::QpackDecoder, 1)));
    }
}
