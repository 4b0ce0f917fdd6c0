//! Error codes of streams: an application's 32-bit codes have a range of their own among the codes
//! of HTTP/3, without the reserved ones (draft-ietf-webtrans-http3 §4.4).

/// The first code of the range.
const FIRST: u64 = 0x52e4_a40f_a8db;
/// The last code of the range.
const LAST: u64 = 0x52e5_ac98_3162;

/// Converts an application's error code to the one in RESET_STREAM and STOP_SENDING.
#[must_use]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "far below 2^62: the application's code has 32 bits"
)]
pub const fn code_to_wire(code: u32) -> u64 {
    let code = code as u64;
    FIRST + code + code / 0x1e
}

/// Converts the code of RESET_STREAM or STOP_SENDING to the application's. Returns `None` if it is
/// not in the range, or reserved.
#[must_use]
#[expect(clippy::arithmetic_side_effects, reason = "checked to be in the range")]
pub const fn code_from_wire(code: u64) -> Option<u32> {
    if code < FIRST || code > LAST || (code - 0x21).is_multiple_of(0x1f) {
        return None;
    }
    let shifted = code - FIRST;
    Some((shifted - shifted / 0x1f) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn range_begins_and_ends_with_the_smallest_and_the_largest_code() {
        assert_eq!(code_to_wire(0), FIRST);
        assert_eq!(code_to_wire(u32::MAX), LAST);
        assert_eq!(code_from_wire(FIRST), Some(0));
        assert_eq!(code_from_wire(LAST), Some(u32::MAX));
        assert_eq!(code_from_wire(FIRST - 1), None);
        assert_eq!(code_from_wire(LAST + 1), None);
        assert_eq!(code_to_wire(0x1d), FIRST + 0x1d);
        assert_eq!(code_to_wire(0x1e), FIRST + 0x1f);
    }

    #[test]
    fn reserved_codes_are_not_used() {
        let mut reserved = 0;
        for wire in FIRST..FIRST + 100_000 {
            match code_from_wire(wire) {
                Some(code) => assert_eq!(code_to_wire(code), wire),
                None => reserved += 1,
            }
        }
        assert_eq!(reserved, 100_000 / 0x1f);
    }

    proptest! {
        #[test]
        fn every_code_round_trips(code: u32) {
            prop_assert_eq!(code_from_wire(code_to_wire(code)), Some(code));
            prop_assert_ne!((code_to_wire(code) - 0x21) % 0x1f, 0);
        }
    }
}
