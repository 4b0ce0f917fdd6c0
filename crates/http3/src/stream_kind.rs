//! The first integer of a unidirectional stream (RFC 9114 §6.2, RFC 9204 §4.2).

use clearway_quic::wire::Reader;
use clearway_quic::wire::cursor::VARINT_MAX;

use crate::partial::Partial;

/// What a unidirectional stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Frames that concern the connection.
    Control,
    /// A response nobody asked for.
    Push,
    /// Instructions to our QPACK decoder.
    QpackEncoder,
    /// What the peer's QPACK decoder tells our encoder.
    QpackDecoder,
    /// Anything else, reserved types included; to be ignored.
    Unknown(u64),
}

impl StreamKind {
    /// From the integer on the wire.
    #[must_use]
    pub const fn from_wire(kind: u64) -> Self {
        match kind {
            0 => Self::Control,
            1 => Self::Push,
            2 => Self::QpackEncoder,
            3 => Self::QpackDecoder,
            other => Self::Unknown(other),
        }
    }

    /// The integer on the wire.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        match self {
            Self::Control => 0,
            Self::Push => 1,
            Self::QpackEncoder => 2,
            Self::QpackDecoder => 3,
            Self::Unknown(other) => other,
        }
    }
}

/// A unidirectional stream of the peer whose type has not arrived yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unidentified(Partial<8>);

impl Unidentified {
    /// Takes bytes until the type is known; answers it and how many were used.
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

/// The `n`th type, frame, setting or error reserved so that unknown ones stay
/// possible (RFC 9114 §7.2.8). After the last that 62 bits hold, the first follows.
#[must_use]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "below 2^62, by the remainder"
)]
pub const fn reserved(n: u64) -> u64 {
    0x1f * (n % RESERVED) + 0x21
}

/// How many reserved values there are.
const RESERVED: u64 = (VARINT_MAX - 0x21) / 0x1f + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_values_start_over_after_the_last_of_62_bits() {
        assert_eq!(reserved(RESERVED - 1), VARINT_MAX - 1);
        assert_eq!(reserved(RESERVED), reserved(0));
        assert!(reserved(u64::MAX) <= VARINT_MAX);
        assert_eq!((reserved(u64::MAX) - 0x21) % 0x1f, 0);
    }

    #[test]
    fn kinds_survive_the_wire() {
        for kind in 0..100 {
            assert_eq!(StreamKind::from_wire(kind).as_u64(), kind);
        }
        assert_eq!(StreamKind::from_wire(reserved(0)), StreamKind::Unknown(33));
    }

    #[test]
    fn a_type_may_come_in_pieces() {
        let mut stream = Unidentified::default();
        assert_eq!(stream.push(&[]), None);
        assert_eq!(stream.push(&[0x40]), None);
        assert_eq!(stream.push(&[2, 9]), Some((StreamKind::QpackEncoder, 1)));
        let mut long = Unidentified::default();
        assert_eq!(long.push(&[0xc0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(long.push(&[3]), Some((StreamKind::QpackDecoder, 1)));
    }
}
