//! One field line, decoded: what goes into an encoder and comes out of a decoder.

use bytes::Bytes;

/// What a field line counts besides its name and value, in a field section
/// (RFC 9114 §4.2.2) and in the dynamic table (RFC 9204 §3.2.1), bytes.
pub const FIELD_OVERHEAD: usize = 32;

/// A field line as decoded. Whether its name and value are well-formed is not
/// looked at here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, as sent.
    pub name: Bytes,
    /// The value, as sent.
    pub value: Bytes,
    /// It came as a literal that no one on the way may index, and has to be
    /// forwarded as one (RFC 9204 §4.5.4, the 'N' bit).
    pub sensitive: bool,
}

impl Field {
    /// Borrows it, to encode it.
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
    /// Neither this encoder nor any after it may put the value into a table
    /// (RFC 9204 §7.1.3).
    pub sensitive: bool,
}

impl<'a> FieldRef<'a> {
    /// A field whose value may be indexed.
    #[must_use]
    pub const fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            name,
            value,
            sensitive: false,
        }
    }
}

/// What a field counts for, in bytes (RFC 9114 §4.2.2, RFC 9204 §3.2.1).
pub(crate) const fn size(name: &[u8], value: &[u8]) -> usize {
    name.len()
        .saturating_add(value.len())
        .saturating_add(FIELD_OVERHEAD)
}
