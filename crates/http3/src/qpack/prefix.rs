//! The prefix of an encoded field section (RFC 9204 §4.5.1).

use bytes::BufMut;

use super::error::Reason;
use super::{field, integer};

/// The state of the dynamic table a section refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// The insertions that must have come for the section to be decoded.
    pub(super) required: u64,
    /// The Base, to which indices are relative.
    pub(super) base: u64,
}

/// The size of an entry with an empty name and value, in bytes (RFC 9204 §3.2.1).
const SMALLEST_ENTRY: u64 = field::FIELD_OVERHEAD as u64;

/// Returns how many entries a table of `max_capacity` bytes can have (RFC 9204 §4.5.1.1).
pub(super) const fn max_entries(max_capacity: u64) -> u64 {
    max_capacity / SMALLEST_ENTRY
}

impl Prefix {
    /// Appends the encoded prefix. `max_capacity` is the decoder's setting.
    pub(super) fn encode(self, max_capacity: u64, out: &mut impl BufMut) {
        if self.required == 0 {
            out.put_slice(&[0, 0]);
            return;
        }
        let full_range = max_entries(max_capacity).saturating_mul(2);
        // A table that cannot have entries has none that could be required.
        let wrapped = self.required.checked_rem(full_range);
        integer::encode(
            out,
            0,
            8,
            wrapped.map_or(0, |count| count.saturating_add(1)),
        );
        match self.base.checked_sub(self.required) {
            Some(above) => integer::encode(out, 0, 7, above),
            None => {
                let below = self.required.saturating_sub(self.base);
                integer::encode(out, 0x80, 7, below.saturating_sub(1));
            }
        }
    }

    /// Replaces the two bytes at `begin` with the encoded prefix.
    pub(super) fn encode_over(self, begin: usize, max_capacity: u64, out: &mut Vec<u8>) {
        let mut bytes = [0; 2 * integer::MAX_LEN];
        let mut room = &mut bytes[..];
        self.encode(max_capacity, &mut room);
        let left = room.len();
        let written = bytes.get(..bytes.len().saturating_sub(left));
        let written = written.unwrap_or_default();
        let end = begin.saturating_add(2);
        match out.get_mut(begin..end) {
            Some(place) if place.len() == written.len() => place.copy_from_slice(written),
            Some(_) => {
                out.splice(begin..end, written.iter().copied());
            }
            None => debug_assert!(false, "there are no two bytes at {begin}"),
        }
    }

    /// Decodes the prefix, and returns where it ends. `inserts` is the number of insertions that
    /// the decoder has processed.
    pub(super) fn decode(
        bytes: &[u8],
        max_capacity: u64,
        inserts: u64,
    ) -> Result<(Self, usize), Reason> {
        let (encoded, at) = integer::decode(bytes, 0, 8)?;
        let (delta, end) = integer::decode(bytes, at, 7)?;
        let required = required(encoded, max_entries(max_capacity), inserts)?;
        let sign = bytes.get(at).ok_or(Reason::Truncated)?;
        let base = if sign & 0x80 == 0 {
            // At most 63 bits.
            required.saturating_add(delta)
        } else {
            // RFC 9204 §4.5.1.2: a negative Base is invalid.
            (required.checked_sub(delta))
                .and_then(|base| base.checked_sub(1))
                .ok_or(Reason::NegativeBase)?
        };
        Ok((Self { required, base }, end))
    }
}

/// Decodes the wrapped Required Insert Count (RFC 9204 §4.5.1.1).
fn required(encoded: u64, max_entries: u64, inserts: u64) -> Result<u64, Reason> {
    if encoded == 0 {
        return Ok(0);
    }
    let full_range = max_entries.saturating_mul(2);
    if encoded > full_range {
        return Err(Reason::RequiredInsertCount);
    }
    let max_value = inserts.saturating_add(max_entries);
    let wrapped = max_value.checked_rem(full_range);
    let wrapped = wrapped.ok_or(Reason::RequiredInsertCount)?;
    let required = (max_value.saturating_sub(wrapped))
        .saturating_add(encoded)
        .saturating_sub(1);
    let required = if required > max_value {
        // It wrapped once less, if that is possible.
        required
            .checked_sub(full_range)
            .ok_or(Reason::RequiredInsertCount)?
    } else {
        required
    };
    // Zero is only encoded as zero.
    if required == 0 {
        Err(Reason::RequiredInsertCount)
    } else {
        Ok(required)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rfc_9204_example() {
        // RFC 9204 §4.5.1.1: 100 bytes, 10 inserts, 4 on the wire.
        assert_eq!(required(4, max_entries(100), 10), Ok(9));
        // §4.5.1.2: Required Insert Count 9, Sign 1 and Delta Base 2: Base 6.
        let (prefix, end) = Prefix::decode(&[4, 0x82], 100, 10).unwrap();
        assert_eq!((prefix.required, prefix.base, end), (9, 6, 2));
    }

    #[test]
    fn longer_prefix_moves_the_field_lines() {
        for (required, base) in [(0, 0), (3, 3), (300, 3), (300, 1000), (100_000, 0)] {
            let prefix = Prefix { required, base };
            let mut out = b"before??lines".to_vec();
            prefix.encode_over(6, 1 << 30, &mut out);
            let mut expected = b"before".to_vec();
            prefix.encode(1 << 30, &mut expected);
            expected.extend(b"lines");
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn impossible_required_insert_counts_are_rejected() {
        // Above the full range; anything without a table.
        assert_eq!(required(7, 3, 10), Err(Reason::RequiredInsertCount));
        assert_eq!(required(1, 0, 0), Err(Reason::RequiredInsertCount));
        // Zero written as something else.
        assert_eq!(required(1, 3, 0), Err(Reason::RequiredInsertCount));
        // More than can have been inserted: 4 and 5 after none, of 3 at once.
        assert_eq!(required(4, 3, 0), Ok(3));
        assert_eq!(required(5, 3, 0), Err(Reason::RequiredInsertCount));
        assert_eq!(required(6, 3, 0), Err(Reason::RequiredInsertCount));
    }

    #[test]
    fn negative_base_is_rejected() {
        // Required Insert Count 2: Delta Base 1 means Base 0, and 2 a negative one.
        assert_eq!(Prefix::decode(&[3, 0x81], 100, 2).unwrap().0.base, 0);
        assert_eq!(
            Prefix::decode(&[3, 0x82], 100, 2),
            Err(Reason::NegativeBase)
        );
        assert_eq!(
            Prefix::decode(&[0, 0x80], 100, 2),
            Err(Reason::NegativeBase)
        );
        assert_eq!(Prefix::decode(&[0], 100, 2), Err(Reason::Truncated));
        assert_eq!(Prefix::decode(&[], 100, 2), Err(Reason::Truncated));
    }

    proptest! {
        /// Any count within MaxEntries of the decoder's count round-trips, however often it has
        /// wrapped.
        #[test]
        fn prefix_round_trips(
            max_capacity in 32_u64..10_000,
            inserts in 0_u64..1_000_000,
            ahead in -300_i64..=300,
            base in 0_u64..1_000_400,
        ) {
            let entries = max_entries(max_capacity) as i64;
            // Within MaxEntries of the decoder's count: others are not sent.
            let ahead = ahead.clamp(1 - entries, entries);
            let Some(required) = inserts.checked_add_signed(ahead).filter(|&r| r > 0) else {
                return Ok(());
            };
            let prefix = Prefix { required, base };
            let mut out = Vec::new();
            prefix.encode(max_capacity, &mut out);
            prop_assert_eq!(Prefix::decode(&out, max_capacity, inserts), Ok((prefix, out.len())));
        }
    }
}
