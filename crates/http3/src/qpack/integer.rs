//! Prefixed integers (RFC 9204 §4.1.1, RFC 7541 §5.1).

use bytes::BufMut;

use super::error::Reason;

/// The largest integer that is decoded or encoded (RFC 9204 §4.1.1: 62 bits).
pub(super) const MAX: u64 = (1 << 62) - 1;

/// The length of the longest encoding of [`MAX`]: the prefix, and 62 bits in groups of 7.
pub(super) const MAX_LEN: usize = 10;

/// The largest value of a prefix of `bits` bits, of which there are at most eight.
#[inline]
const fn full(bits: u32) -> u64 {
    !u64::MAX.wrapping_shl(bits)
}

/// Appends `value` with a prefix of `bits` bits. The bits above the prefix come from `first`.
pub(super) fn encode(out: &mut impl BufMut, first: u8, bits: u32, value: u64) {
    debug_assert!((1..=8).contains(&bits) && value <= MAX);
    let full = full(bits);
    let Some(mut rest) = value.checked_sub(full) else {
        out.put_u8(first | value as u8);
        return;
    };
    out.put_u8(first | full as u8);
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// Decodes the integer whose prefix is the low `bits` bits of the byte at `at`, and returns where
/// it ends.
#[inline]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the place after a byte of a slice"
)]
pub(super) fn decode(bytes: &[u8], at: usize, bits: u32) -> Result<(u64, usize), Reason> {
    let &first = bytes.get(at).ok_or(Reason::Truncated)?;
    let full = full(bits);
    let prefix = u64::from(first) & full;
    if prefix < full {
        return Ok((prefix, at + 1));
    }
    decode_long(bytes, at, full)
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "nine places after one in a slice; 63 bits and a byte"
)]
fn decode_long(bytes: &[u8], at: usize, full: u64) -> Result<(u64, usize), Reason> {
    let mut value = 0_u64;
    for group in 1..MAX_LEN {
        let &byte = bytes.get(at + group).ok_or(Reason::Truncated)?;
        // The ninth group is shifted by 56: 63 bits at most.
        value |= u64::from(byte & 0x7f) << (7 * (group - 1));
        if byte & 0x80 == 0 {
            let value = value + full;
            return if value <= MAX {
                Ok((value, at + group + 1))
            } else {
                Err(Reason::IntegerTooLarge)
            };
        }
    }
    Err(Reason::IntegerTooLarge)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(first: u8, bits: u32, value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, first, bits, value);
        out
    }

    #[test]
    fn rfc_7541_examples() {
        // C.1.1 to C.1.3
        for (bits, value, bytes) in [
            (5, 10, &[0b0_1010_u8][..]),
            (5, 1337, &[0b1_1111, 0b1001_1010, 0b0000_1010]),
            (8, 42, &[0b0010_1010]),
        ] {
            assert_eq!(encoded(0, bits, value), bytes);
            assert_eq!(decode(bytes, 0, bits), Ok((value, bytes.len())));
        }
    }

    #[test]
    fn bits_above_the_prefix_are_encoded_and_ignored_when_decoding() {
        assert_eq!(encoded(0xe0, 5, 10), [0xea]);
        assert_eq!(decode(&[0xea], 0, 5), Ok((10, 1)));
    }

    #[test]
    fn integers_above_62_bits_are_rejected() {
        for bits in 1..=8 {
            let longest = encoded(0, bits, MAX);
            assert_eq!(longest.len(), MAX_LEN);
            assert_eq!(decode(&longest, 0, bits), Ok((MAX, MAX_LEN)));
            let mut above = longest;
            // One more: the ninth group of MAX - full has room below.
            for byte in &mut above[1..9] {
                *byte = 0xff;
            }
            assert_eq!(decode(&above, 0, bits), Err(Reason::IntegerTooLarge));
        }
    }

    #[test]
    fn endless_integers_are_rejected_and_incomplete_ones_truncated() {
        assert_eq!(decode(&[0x1f; 64], 0, 5), Ok((0x1f + 0x1f, 2)));
        assert_eq!(decode(&[0xff; 64], 0, 5), Err(Reason::IntegerTooLarge));
        // Endless zeros add nothing to the value, and are an error too.
        let zeros = [&[0xff_u8][..], &[0x80; 64]].concat();
        assert_eq!(decode(&zeros, 0, 8), Err(Reason::IntegerTooLarge));
        assert_eq!(decode(&[0xff; 5], 0, 5), Err(Reason::Truncated));
        assert_eq!(decode(&[], 0, 5), Err(Reason::Truncated));
    }

    proptest! {
        #[test]
        fn integers_round_trip(bits in 1_u32..=8, value in 0..=MAX, shift in 0_u32..62, at in 0_usize..4) {
            let value = value >> shift;
            let mut bytes = vec![0xaa; at];
            encode(&mut bytes, 0, bits, value);
            prop_assert_eq!(decode(&bytes, at, bits), Ok((value, bytes.len())));
            let cut = &bytes[..bytes.len() - 1];
            prop_assert_eq!(decode(cut, at, bits), Err(Reason::Truncated));
        }
    }
}
