//! String literals (RFC 9204 §4.1.2, RFC 7541 §5.2).

use core::ops::Range;

use bytes::{BufMut, BytesMut};

use super::error::Reason;
use super::{huffman, integer};

/// Appends a string literal with a prefix of `bits` bits, Huffman coded where that is shorter. The
/// bits above the prefix come from `first`.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "prefixes have four to eight bits"
)]
pub(super) fn encode(out: &mut impl BufMut, first: u8, bits: u32, text: &[u8]) {
    let coded = huffman::encoded_len(text);
    if coded < text.len() {
        let flag = 1 << (bits - 1);
        integer::encode(out, first | flag, bits - 1, coded as u64);
        huffman::encode(out, text);
    } else {
        integer::encode(out, first, bits - 1, text.len() as u64);
        out.put_slice(text);
    }
}

/// A string literal of known length: where its bytes are, which need not have arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StringLiteral {
    /// Whether it is Huffman coded.
    pub(super) huffman: bool,
    /// Where its bytes begin.
    pub(super) start: usize,
    /// The number of bytes.
    pub(super) len: usize,
}

impl StringLiteral {
    /// Decodes the header, with a prefix of `bits` bits, of the string literal at `at`.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "prefixes have four to eight bits"
    )]
    pub(super) fn decode_header(bytes: &[u8], at: usize, bits: u32) -> Result<Self, Reason> {
        let &first = bytes.get(at).ok_or(Reason::Truncated)?;
        let (len, start) = integer::decode(bytes, at, bits - 1)?;
        let huffman = first & 1 << (bits - 1) != 0;
        let len = usize::try_from(len).map_err(|_| Reason::IntegerTooLarge)?;
        Ok(Self {
            huffman,
            start,
            len,
        })
    }

    /// Returns where the literal ends, if that is within `bytes`.
    pub(super) fn end(self, bytes: &[u8]) -> Result<usize, Reason> {
        let end = self.start.checked_add(self.len);
        end.filter(|&end| end <= bytes.len())
            .ok_or(Reason::Truncated)
    }

    /// Returns the minimum length of the decoded string.
    pub(super) fn min_decoded_len(self) -> usize {
        if self.huffman {
            huffman::decoded_len(self.len).0
        } else {
            self.len
        }
    }

    /// Returns the range of the literal, if all of it is within `bytes`.
    pub(super) fn range(self, bytes: &[u8]) -> Result<Range<usize>, Reason> {
        Ok(self.start..self.end(bytes)?)
    }

    /// Returns the encoded bytes, if all of them have arrived.
    pub(super) fn raw(self, bytes: &[u8]) -> Result<&[u8], Reason> {
        bytes.get(self.range(bytes)?).ok_or(Reason::Truncated)
    }

    /// Appends the decoded string to `out`. Returns `false`, and appends nothing, if it is longer
    /// than `limit`.
    pub(super) fn decode_into(
        self,
        bytes: &[u8],
        limit: usize,
        out: &mut BytesMut,
    ) -> Result<bool, Reason> {
        let raw = self.raw(bytes)?;
        if !self.huffman {
            if raw.len() > limit {
                return Ok(false);
            }
            out.extend_from_slice(raw);
            return Ok(true);
        }
        let (min, max) = huffman::decoded_len(raw.len());
        if min > limit {
            return Ok(false);
        }
        let start = out.len();
        let room = max.min(limit).saturating_add(2);
        out.resize(start.saturating_add(room), 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let outcome = huffman::decode(raw, room);
        let (written, whole) = match outcome {
            Ok(huffman::DecodeOutcome::Complete(written)) => (written, Ok(true)),
            Ok(huffman::DecodeOutcome::TooLong) => (0, Ok(false)),
            Err(reason) => (0, Err(reason)),
        };
        out.truncate(start.saturating_add(written));
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8], bits: u32, limit: usize) -> Result<Option<BytesMut>, Reason> {
        let literal = StringLiteral::decode_header(bytes, 0, bits)?;
        literal.end(bytes)?;
        let mut out = BytesMut::from(&b"before"[..]);
        let whole = literal.decode_into(bytes, limit, &mut out)?;
        let text = out.split_off(6);
        assert_eq!(&out[..], b"before");
        assert!(whole || text.is_empty());
        Ok(whole.then_some(text))
    }

    #[test]
    fn huffman_code_is_used_only_if_shorter() {
        let mut out = Vec::new();
        encode(&mut out, 0x40, 6, b"custom-key");
        assert_eq!(out[0], 0x40 | 0x20 | 8, "8 bytes with the Huffman code");
        out.clear();
        encode(&mut out, 0x40, 6, b"\x00\x01\x02");
        assert_eq!(out, b"\x43\x00\x01\x02");
        out.clear();
        encode(&mut out, 0, 8, b"");
        assert_eq!(out, [0]);
    }

    #[test]
    fn incomplete_literal_is_truncated() {
        let mut out = Vec::new();
        encode(&mut out, 0, 4, b"a text of some length, to be coded");
        for cut in 0..out.len() {
            assert_eq!(text(&out[..cut], 4, 100), Err(Reason::Truncated), "{cut}");
        }
        assert!(text(&out, 4, 100).unwrap().is_some());
    }

    #[test]
    fn length_beyond_the_address_space_is_truncated() {
        let mut out = Vec::new();
        integer::encode(&mut out, 0, 7, integer::MAX);
        let literal = StringLiteral::decode_header(&out, 0, 8).unwrap();
        assert_eq!(literal.end(&out), Err(Reason::Truncated));
        assert_eq!(literal.min_decoded_len() as u64, integer::MAX);
    }

    proptest! {
        #[test]
        fn string_literals_round_trip(
            what in proptest::collection::vec(any::<u8>(), 0..80),
            bits in 2_u32..=8,
            limit in 0_usize..90,
        ) {
            let mut out = Vec::new();
            encode(&mut out, 0, bits, &what);
            let read = text(&out, bits, limit).unwrap();
            prop_assert_eq!(read.is_some(), what.len() <= limit);
            if let Some(read) = read {
                prop_assert_eq!(&read[..], &what[..]);
            }
        }
    }
}
