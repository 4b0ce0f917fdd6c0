//! The instructions of the encoder and the decoder stream (RFC 9204 §4.3, §4.4).

use bytes::BufMut;

use super::error::Reason;
use super::integer;
use super::string::{self, StringLiteral};

/// A reference to the name of an inserted entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameReference {
    /// The static table.
    Static(u64),
    /// The dynamic table, counted down from the newest entry.
    FromNewest(u64),
}

/// An instruction on the encoder stream. Its strings refer to the bytes it was read from, and may
/// be incomplete there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncoderInstruction {
    /// Set Dynamic Table Capacity (RFC 9204 §4.3.1).
    SetCapacity(u64),
    /// Insert with Name Reference (RFC 9204 §4.3.2).
    InsertNamed {
        name: NameReference,
        value: StringLiteral,
    },
    /// Insert with Literal Name (RFC 9204 §4.3.3). `value` is `None` while the name is incomplete.
    InsertLiteral {
        name: StringLiteral,
        value: Option<StringLiteral>,
    },
    /// Duplicate (RFC 9204 §4.3.4).
    Duplicate(u64),
}

impl EncoderInstruction {
    /// Decodes the start of the instruction at `at`, and returns where the instruction ends if that
    /// is within `bytes`. `Truncated` means that not even the first lengths are known. So the
    /// caller can check a length before the data is buffered.
    pub(super) fn decode(bytes: &[u8], at: usize) -> Result<(Self, Option<usize>), Reason> {
        let first = *bytes.get(at).ok_or(Reason::Truncated)?;
        if first & 0x80 != 0 {
            let (index, at) = integer::decode(bytes, at, 6)?;
            let name = if first & 0x40 != 0 {
                NameReference::Static(index)
            } else {
                NameReference::FromNewest(index)
            };
            let value = StringLiteral::decode_header(bytes, at, 8)?;
            Ok((Self::InsertNamed { name, value }, value.end(bytes).ok()))
        } else if first & 0x40 != 0 {
            let name = StringLiteral::decode_header(bytes, at, 6)?;
            let value = match name
                .end(bytes)
                .and_then(|at| StringLiteral::decode_header(bytes, at, 8))
            {
                Ok(value) => Some(value),
                Err(Reason::Truncated) => None,
                Err(other) => return Err(other),
            };
            let end = value.and_then(|value| value.end(bytes).ok());
            Ok((Self::InsertLiteral { name, value }, end))
        } else if first & 0x20 != 0 {
            let (capacity, end) = integer::decode(bytes, at, 5)?;
            Ok((Self::SetCapacity(capacity), Some(end)))
        } else {
            let (index, end) = integer::decode(bytes, at, 5)?;
            Ok((Self::Duplicate(index), Some(end)))
        }
    }
}

/// Appends Set Dynamic Table Capacity (RFC 9204 §4.3.1).
pub(super) fn encode_set_capacity(out: &mut impl BufMut, capacity: u64) {
    integer::encode(out, 0x20, 5, capacity);
}

/// Appends Insert with Name Reference (RFC 9204 §4.3.2).
pub(super) fn encode_insert_named(out: &mut impl BufMut, name: NameReference, value: &[u8]) {
    match name {
        NameReference::Static(index) => integer::encode(out, 0xc0, 6, index),
        NameReference::FromNewest(index) => integer::encode(out, 0x80, 6, index),
    }
    string::encode(out, 0, 8, value);
}

/// Appends Insert with StringLiteral Name (RFC 9204 §4.3.3).
pub(super) fn encode_insert_literal(out: &mut impl BufMut, name: &[u8], value: &[u8]) {
    string::encode(out, 0x40, 6, name);
    string::encode(out, 0, 8, value);
}

/// Appends Duplicate (RFC 9204 §4.3.4).
pub(super) fn encode_duplicate(out: &mut impl BufMut, from_newest: u64) {
    integer::encode(out, 0, 5, from_newest);
}

/// An instruction on the decoder stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecoderInstruction {
    /// The first unacknowledged section of this stream was decoded (RFC 9204 §4.4.1).
    SectionAcknowledgment(u64),
    /// No more sections of this stream will be decoded (RFC 9204 §4.4.2).
    StreamCancellation(u64),
    /// This many more insertions have arrived (RFC 9204 §4.4.3).
    InsertCountIncrement(u64),
}

impl DecoderInstruction {
    /// Appends the encoded instruction.
    pub(super) fn encode(self, out: &mut impl BufMut) {
        match self {
            Self::SectionAcknowledgment(stream) => integer::encode(out, 0x80, 7, stream),
            Self::StreamCancellation(stream) => integer::encode(out, 0x40, 6, stream),
            Self::InsertCountIncrement(more) => integer::encode(out, 0, 6, more),
        }
    }

    /// Decodes the instruction at `at`, and returns where it ends.
    pub(super) fn decode(bytes: &[u8], at: usize) -> Result<(Self, usize), Reason> {
        let first = *bytes.get(at).ok_or(Reason::Truncated)?;
        if first & 0x80 != 0 {
            let (stream, end) = integer::decode(bytes, at, 7)?;
            Ok((Self::SectionAcknowledgment(stream), end))
        } else if first & 0x40 != 0 {
            let (stream, end) = integer::decode(bytes, at, 6)?;
            Ok((Self::StreamCancellation(stream), end))
        } else {
            let (more, end) = integer::decode(bytes, at, 6)?;
            Ok((Self::InsertCountIncrement(more), end))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoder_instructions_round_trip() {
        for number in [0, 1, 62, 63, 64, 126, 127, 128, integer::MAX] {
            for instruction in [
                DecoderInstruction::SectionAcknowledgment(number),
                DecoderInstruction::StreamCancellation(number),
                DecoderInstruction::InsertCountIncrement(number),
            ] {
                let mut out = Vec::new();
                instruction.encode(&mut out);
                assert_eq!(
                    DecoderInstruction::decode(&out, 0),
                    Ok((instruction, out.len()))
                );
                let cut = &out[..out.len() - 1];
                assert_eq!(DecoderInstruction::decode(cut, 0), Err(Reason::Truncated));
            }
        }
    }

    #[test]
    fn encoder_instructions_round_trip() {
        for number in [0, 1, 30, 31, 62, 63, 64, integer::MAX] {
            let mut out = Vec::new();
            encode_set_capacity(&mut out, number);
            let capacity = EncoderInstruction::SetCapacity(number);
            assert_eq!(
                EncoderInstruction::decode(&out, 0),
                Ok((capacity, Some(out.len())))
            );
            out.clear();
            encode_duplicate(&mut out, number);
            let duplicate = EncoderInstruction::Duplicate(number);
            assert_eq!(
                EncoderInstruction::decode(&out, 0),
                Ok((duplicate, Some(out.len())))
            );
            for wanted in [
                NameReference::Static(number),
                NameReference::FromNewest(number),
            ] {
                out.clear();
                encode_insert_named(&mut out, wanted, b"\x00\x01");
                let (read, end) = EncoderInstruction::decode(&out, 0).unwrap();
                let EncoderInstruction::InsertNamed { name, value } = read else {
                    panic!("{read:?}");
                };
                assert_eq!(
                    (name, value.raw(&out).unwrap(), end),
                    (wanted, &[0, 1][..], Some(out.len()))
                );
                // The length is known before the text is.
                let cut = &out[..out.len() - 1];
                assert_eq!(EncoderInstruction::decode(cut, 0), Ok((read, None)));
            }
        }
    }

    #[test]
    fn lengths_are_decoded_before_the_strings_are_complete() {
        let mut out = Vec::new();
        encode_insert_literal(&mut out, b"\x00\x01", b"\x02");
        let name = StringLiteral {
            huffman: false,
            start: 1,
            len: 2,
        };
        let value = StringLiteral {
            huffman: false,
            start: 4,
            len: 1,
        };
        let none = Ok((
            EncoderInstruction::InsertLiteral { name, value: None },
            None,
        ));
        for cut in 1..=3 {
            assert_eq!(EncoderInstruction::decode(&out[..cut], 0), none);
        }
        let value = Some(value);
        let both = EncoderInstruction::InsertLiteral { name, value };
        assert_eq!(EncoderInstruction::decode(&out[..4], 0), Ok((both, None)));
        assert_eq!(EncoderInstruction::decode(&out, 0), Ok((both, Some(5))));
        assert_eq!(EncoderInstruction::decode(&[], 0), Err(Reason::Truncated));
    }
}
