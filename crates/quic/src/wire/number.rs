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

    /// Truncates `number` to the fewest bytes from which every peer can recover it, whichever packets
    /// after `largest_acked` it has received (RFC 9000 §A.2). `largest_acked`
    /// is `None` until the peer has acknowledged something in this space.
    #[must_use]
    pub fn new(number: u64, largest_acked: Option<u64>) -> Self {
        let unacked = match largest_acked {
            Some(acked) => number.saturating_sub(acked).max(1),
            None => number.saturating_add(1),
        };
        // Twice the unacknowledged range has to fit, hence one bit less a byte.
        let len = match unacked {
            0..=0x80 => 1,
            0x81..=0x8000 => 2,
            0x8001..=0x80_0000 => 3,
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

    /// The examples of RFC 9000 §A.2.
    #[test]
    fn encoding_matches_rfc_examples() {
        let acked = Some(0xab_e8b3);
        assert_eq!(
            TruncatedNumber::new(0xac_5c02, acked),
            TruncatedNumber::with_len(0x5c02, 2)
        );
        assert_eq!(
            TruncatedNumber::new(0xac_e8fe, acked),
            TruncatedNumber::with_len(0xac_e8fe, 3)
        );
    }

    /// A byte has to tell twice as many numbers apart as are unacknowledged.
    #[test]
    fn encoded_length_grows_at_half_window() {
        for (unacked, len) in [
            (1, 1),
            (1 << 7, 1),
            ((1 << 7) + 1, 2),
            (1 << 15, 2),
            ((1 << 15) + 1, 3),
            (1 << 23, 3),
            ((1 << 23) + 1, 4),
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

        #[test]
        fn recovered_number_always_fits_varint(
            value: u32, len in 1_usize..=4, largest in prop::option::of(0..=VARINT_MAX),
        ) {
            let number = TruncatedNumber::with_len(u64::from(value), len).recover(largest);
            prop_assert!(number <= VARINT_MAX);
        }
    }
}
