//! Packet numbers: only the low bytes are sent, and the receiver recovers the full number
//! (RFC 9000 §17.1).

use super::cursor::VARINT_MAX;
use super::{Reader, Writer};

/// The low 1 to 4 bytes of a packet number, as in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedNumber {
    value: u32,
    len: u8,
}

impl TruncatedNumber {
    /// Longest encoding, in bytes.
    pub const MAX_LEN: usize = 4;

    /// Truncates `number` to so few bytes that every peer can still recover it, whichever packets after
    /// `largest_acked` it has received, and also once seven times as many later ones have overtaken it.
    /// `largest_acked` is `None` until the peer has acknowledged something in this space.
    ///
    /// RFC 9000 §A.2 asks for twice the unacknowledged range. At the edge of that a packet which arrives
    /// after those of the next round trip gets a wrong number, cannot be decrypted, and is lost although
    /// it came.
    #[must_use]
    pub fn new(number: u64, largest_acked: Option<u64>) -> Self {
        let unacked = match largest_acked {
            Some(acked) => number.saturating_sub(acked).max(1),
            None => number.saturating_add(1),
        };
        // Sixteen times the unacknowledged range has to fit, half of it on either side.
        let len = match unacked {
            0..=0x10 => 1,
            0x11..=0x1000 => 2,
            0x1001..=0x10_0000 => 3,
            _ => 4,
        };
        Self::with_len(number, len)
    }

    /// Truncates `number` to exactly `len` bytes. `len` is clamped to 1 to 4.
    #[must_use]
    pub fn with_len(number: u64, len: usize) -> Self {
        debug_assert!((1..=Self::MAX_LEN).contains(&len));
        let len = len.clamp(1, Self::MAX_LEN) as u8;
        Self {
            value: number as u32 & mask(len) as u32,
            len,
        }
    }

    /// Returns the number of bytes on the wire, 1 to 4.
    #[must_use]
    pub const fn size(self) -> usize {
        self.len as usize
    }

    /// Returns the two low bits of a header's first byte.
    #[must_use]
    pub const fn len_bits(self) -> u8 {
        self.len.saturating_sub(1)
    }

    /// Reads `len` bytes. Returns `None` if there are fewer, or if `len` is not 1 to 4.
    #[inline]
    pub fn read(reader: &mut Reader<'_>, len: usize) -> Option<Self> {
        if !(1..=Self::MAX_LEN).contains(&len) {
            return None;
        }
        let value = reader
            .bytes(len)?
            .iter()
            .fold(0, |value: u32, &byte| value << 8 | u32::from(byte));
        Some(Self {
            value,
            len: len as u8,
        })
    }

    /// Writes the truncated number.
    #[inline]
    pub fn encode(self, w: &mut Writer<'_>) {
        let [_, b, c, d] = self.value.to_be_bytes();
        match self.len {
            1 => w.u8(d),
            2 => w.array([c, d]),
            3 => w.array([b, c, d]),
            _ => w.u32(self.value),
        }
    }

    /// Returns the full number: the one closest to the number after `largest`, the largest number
    /// processed in this space so far (RFC 9000 §A.3).
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "numbers to 2^62 and a window to 2^32, and what is taken away is no more"
    )]
    pub fn recover(self, largest: Option<u64>) -> u64 {
        let expected = largest.map_or(0, |largest| largest.min(VARINT_MAX) + 1);
        let mask = mask(self.len);
        let window = mask + 1;
        let half = window / 2;
        let candidate = expected & !mask | u64::from(self.value);
        if candidate + half <= expected && candidate <= VARINT_MAX - window {
            candidate + window
        } else if candidate > VARINT_MAX || candidate > expected + half && candidate >= window {
            candidate - window
        } else {
            candidate
        }
    }
}

/// Returns the bits of a number that `len` bytes, 1 to 4, tell.
const fn mask(len: u8) -> u64 {
    match len {
        1 => 0xff,
        2 => 0xffff,
        3 => 0xff_ffff,
        _ => 0xffff_ffff,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 9000 §A.2 needs 16 and 18 bits in its examples.
    #[test]
    fn encoding_is_never_shorter_than_in_rfc_examples() {
        let acked = Some(0xab_e8b3);
        for number in [0xac_5c02, 0xac_e8fe] {
            assert_eq!(
                TruncatedNumber::new(number, acked),
                TruncatedNumber::with_len(number, 3)
            );
        }
    }

    #[test]
    fn encoded_length_grows_at_a_sixteenth_of_the_window() {
        for (unacked, len) in [
            (1, 1),
            (1 << 4, 1),
            ((1 << 4) + 1, 2),
            (1 << 12, 2),
            ((1 << 12) + 1, 3),
            (1 << 20, 3),
            ((1 << 20) + 1, 4),
        ] {
            let number = TruncatedNumber::new(1_000_000 + unacked, Some(1_000_000));
            assert_eq!(number.size(), len, "{unacked}");
            let first = TruncatedNumber::new(unacked - 1, None);
            assert_eq!(first.size(), len, "{unacked}");
        }
    }

    /// The window is open below and closed above (RFC 9000 §A.3).
    #[test]
    fn decoding_at_window_edges() {
        let expected = 0x1080;
        for number in [expected - 0x7f, expected, expected + 0x80] {
            let truncated = TruncatedNumber::with_len(number, 1);
            assert_eq!(truncated.recover(Some(expected - 1)), number);
        }
        let below = TruncatedNumber::with_len(expected - 0x80, 1);
        assert_eq!(below.recover(Some(expected - 1)), expected + 0x80);
    }

    /// The example of RFC 9000 §A.3.
    #[test]
    fn decoding_matches_rfc_example() {
        let truncated = TruncatedNumber::with_len(0x9b32, 2);
        assert_eq!(truncated.recover(Some(0xa82f_30ea)), 0xa82f_9b32);
    }

    #[test]
    fn recovered_number_stays_below_2_to_the_62() {
        // Nothing below zero, nothing above 2^62 - 1.
        assert_eq!(TruncatedNumber::with_len(0xff, 1).recover(None), 0xff);
        assert_eq!(
            TruncatedNumber::with_len(0, 1).recover(Some(VARINT_MAX)),
            VARINT_MAX - 0xff
        );
        assert_eq!(
            TruncatedNumber::with_len(0, 1).recover(Some(VARINT_MAX - 1)),
            VARINT_MAX - 0xff
        );
    }

    proptest! {
        /// Whatever part of the unacknowledged packets the peer has seen, it
        /// recovers the number we sent.
        #[test]
        fn every_receiver_recovers_full_number(
            acked in prop::option::of(0..1_u64 << 61),
            ahead in 1..1_u64 << 31,
            seen in any::<prop::sample::Index>(),
        ) {
            let number = acked.map_or(ahead - 1, |acked| acked + ahead);
            let truncated = TruncatedNumber::new(number, acked);
            let mut buffer = [0; 4];
            let mut w = Writer::new(&mut buffer);
            truncated.encode(&mut w);
            let read = TruncatedNumber::read(&mut Reader::new(w.filled()), truncated.size());
            prop_assert_eq!(read, Some(truncated));
            let first = acked.map_or(0, |acked| acked + 1);
            let largest = first + seen.index((number - first + 1) as usize) as u64;
            prop_assert_eq!(truncated.recover(Some(largest)), number);
            prop_assert_eq!(truncated.recover(acked), number);
        }

        /// It arrives after up to seven times as many later ones as were unacknowledged.
        #[test]
        fn late_packet_keeps_its_number(
            acked in 0..1_u64 << 61,
            ahead in 1..1_u64 << 28,
            overtaken in 0.0..=7.0,
        ) {
            let number = acked + ahead;
            let later = (ahead as f64 * overtaken) as u64;
            let truncated = TruncatedNumber::new(number, Some(acked));
            prop_assert_eq!(truncated.recover(Some(number + later)), number);
        }

        #[test]
        fn recovered_number_always_fits_varint(
            value: u32, len in 1_usize..=4, largest in prop::option::of(0..=VARINT_MAX),
        ) {
            let number = TruncatedNumber::with_len(u64::from(value), len).recover(largest);
            prop_assert!(number <= VARINT_MAX);
        }
    }
}
