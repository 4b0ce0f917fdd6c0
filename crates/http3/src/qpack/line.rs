//! Field line representations (RFC 9204 §4.5.2 to §4.5.6).

use bytes::BufMut;

use super::error::Reason;
use super::integer;
use super::string::{self, StringLiteral};

/// A reference to a table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// The static table.
    Static(u64),
    /// The dynamic table, counted down from the Base.
    Relative(u64),
    /// The dynamic table, counted up from the Base.
    PostBase(u64),
}

impl Reference {
    /// Returns how a section with this Base refers to the entry with the absolute index `absolute`.
    pub(super) fn dynamic(absolute: u64, base: u64) -> Self {
        let below = base.checked_sub(absolute);
        match below.and_then(|below| below.checked_sub(1)) {
            Some(relative) => Self::Relative(relative),
            None => Self::PostBase(absolute.saturating_sub(base)),
        }
    }
}

/// A field line representation. Its strings refer to the bytes it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldLine {
    /// Name and value are from a table.
    Indexed(Reference),
    /// Only the name is from a table.
    NamedValue {
        name: Reference,
        value: StringLiteral,
        sensitive: bool,
    },
    /// Neither is from a table.
    Literal {
        name: StringLiteral,
        value: StringLiteral,
        sensitive: bool,
    },
}

impl FieldLine {
    /// Decodes the field line at `at`, which is within `bytes`, and returns where it ends.
    pub(super) fn decode(bytes: &[u8], at: usize) -> Result<(Self, usize), Reason> {
        let first = *bytes.get(at).ok_or(Reason::Truncated)?;
        if first & 0x80 != 0 {
            let (index, end) = integer::decode(bytes, at, 6)?;
            let reference = if first & 0x40 != 0 {
                Reference::Static(index)
            } else {
                Reference::Relative(index)
            };
            Ok((Self::Indexed(reference), end))
        } else if first & 0x40 != 0 {
            let (index, at) = integer::decode(bytes, at, 4)?;
            let name = if first & 0x10 != 0 {
                Reference::Static(index)
            } else {
                Reference::Relative(index)
            };
            Self::named(bytes, at, name, first & 0x20 != 0)
        } else if first & 0x20 != 0 {
            let name = StringLiteral::decode_header(bytes, at, 4)?;
            let value = StringLiteral::decode_header(bytes, name.end(bytes)?, 8)?;
            let sensitive = first & 0x10 != 0;
            Ok((
                Self::Literal {
                    name,
                    value,
                    sensitive,
                },
                value.end(bytes)?,
            ))
        } else if first & 0x10 != 0 {
            let (index, end) = integer::decode(bytes, at, 4)?;
            Ok((Self::Indexed(Reference::PostBase(index)), end))
        } else {
            let (index, at) = integer::decode(bytes, at, 3)?;
            Self::named(bytes, at, Reference::PostBase(index), first & 0x08 != 0)
        }
    }

    fn named(
        bytes: &[u8],
        at: usize,
        name: Reference,
        sensitive: bool,
    ) -> Result<(Self, usize), Reason> {
        let value = StringLiteral::decode_header(bytes, at, 8)?;
        Ok((
            Self::NamedValue {
                name,
                value,
                sensitive,
            },
            value.end(bytes)?,
        ))
    }
}

/// Appends an Indexed Field FieldLine (RFC 9204 §4.5.2, §4.5.3).
pub(super) fn encode_indexed(out: &mut impl BufMut, entry: Reference) {
    match entry {
        Reference::Static(index) => integer::encode(out, 0xc0, 6, index),
        Reference::Relative(index) => integer::encode(out, 0x80, 6, index),
        Reference::PostBase(index) => integer::encode(out, 0x10, 4, index),
    }
}

/// Appends a Literal Field FieldLine with Name Reference (RFC 9204 §4.5.4, §4.5.5).
pub(super) fn encode_named(out: &mut impl BufMut, name: Reference, value: &[u8], sensitive: bool) {
    let never = u8::from(sensitive);
    match name {
        Reference::Static(index) => integer::encode(out, 0x50 | never << 5, 4, index),
        Reference::Relative(index) => integer::encode(out, 0x40 | never << 5, 4, index),
        Reference::PostBase(index) => integer::encode(out, never << 3, 3, index),
    }
    string::encode(out, 0, 8, value);
}

/// Appends a Literal Field FieldLine with Literal Name (RFC 9204 §4.5.6).
pub(super) fn encode_literal(out: &mut impl BufMut, name: &[u8], value: &[u8], sensitive: bool) {
    string::encode(out, 0x20 | u8::from(sensitive) << 4, 4, name);
    string::encode(out, 0, 8, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: &[u8]) -> FieldLine {
        let (line, end) = FieldLine::decode(bytes, 0).unwrap();
        assert_eq!(end, bytes.len());
        for cut in 0..bytes.len() {
            assert_eq!(
                FieldLine::decode(&bytes[..cut], 0),
                Err(Reason::Truncated),
                "{cut}"
            );
        }
        line
    }

    #[test]
    fn references_round_trip() {
        for index in [0, 1, 6, 7, 14, 15, 62, 63, 64, 1000, integer::MAX] {
            for reference in [
                Reference::Static(index),
                Reference::Relative(index),
                Reference::PostBase(index),
            ] {
                let mut out = Vec::new();
                encode_indexed(&mut out, reference);
                assert_eq!(line(&out), FieldLine::Indexed(reference));
                for never in [false, true] {
                    out.clear();
                    encode_named(&mut out, reference, b"\x00", never);
                    let FieldLine::NamedValue {
                        name,
                        value,
                        sensitive,
                    } = line(&out)
                    else {
                        panic!("{out:x?}");
                    };
                    assert_eq!(
                        (name, sensitive, value.raw(&out).unwrap()),
                        (reference, never, &[0_u8][..])
                    );
                }
            }
        }
    }

    #[test]
    fn literal_names_round_trip() {
        for never in [false, true] {
            let mut out = Vec::new();
            encode_literal(&mut out, b"\x01\x02", b"\x03", never);
            let FieldLine::Literal {
                name,
                value,
                sensitive,
            } = line(&out)
            else {
                panic!("{out:x?}");
            };
            assert_eq!(
                (name.raw(&out).unwrap(), value.raw(&out).unwrap()),
                (&[1_u8, 2][..], &[3_u8][..])
            );
            assert_eq!((sensitive, name.huffman), (never, false));
        }
    }

    #[test]
    fn entries_on_both_sides_of_the_base_are_referenced() {
        assert_eq!(Reference::dynamic(3, 4), Reference::Relative(0));
        assert_eq!(Reference::dynamic(0, 4), Reference::Relative(3));
        assert_eq!(Reference::dynamic(4, 4), Reference::PostBase(0));
        assert_eq!(Reference::dynamic(6, 4), Reference::PostBase(2));
    }
}
