//! Field lines: the input of an encoder, and the output of a decoder.

use bytes::Bytes;

/// The overhead of a field besides its name and value, in bytes: in the size of a field section
/// (RFC 9114 §4.2.2) and of the dynamic table (RFC 9204 §3.2.1).
pub const FIELD_OVERHEAD: usize = 32;

/// A decoded field line. QPACK does not check whether its name and value are well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, as sent.
    pub name: Bytes,
    /// The value, as sent.
    pub value: Bytes,
    /// Whether the field was sent as a literal that must never be indexed, and has to be forwarded
    /// as one (the 'N' bit, RFC 9204 §4.5.4).
    pub sensitive: bool,
}

impl Field {
    /// Borrows the field, for encoding.
    #[must_use]
    pub fn as_ref(&self) -> FieldRef<'_> {
        FieldRef {
            name: &self.name,
            value: &self.value,
            sensitive: self.sensitive,
        }
    }
}

/// A field line to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRef<'a> {
    /// The name, in lower case (RFC 9114 §4.2).
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether neither this encoder nor an intermediary may add the value to a table (RFC 9204
    /// §7.1.3).
    pub sensitive: bool,
}

impl<'a> FieldRef<'a> {
    /// Creates a field whose value may be indexed.
    #[must_use]
    pub const fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            name,
            value,
            sensitive: false,
        }
    }
}

/// Returns the size of a field, in bytes (RFC 9114 §4.2.2, RFC 9204 §3.2.1).
pub(crate) const fn size(name: &[u8], value: &[u8]) -> usize {
    name.len()
        .saturating_add(value.len())
        .saturating_add(FIELD_OVERHEAD)
}
