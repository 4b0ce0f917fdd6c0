//! A lookup table with a value for each of the 256 byte values.

/// A table indexed by a byte. A lookup has no branch and cannot fail.
pub(crate) struct ByteMap<T>([T; 256]);

impl<T: Copy> ByteMap<T> {
    /// Creates the table; `values[b]` is the value for byte `b`.
    pub(crate) const fn new(values: [T; 256]) -> Self {
        Self(values)
    }

    /// Returns the value for `byte`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a byte is below 256")]
    pub(crate) const fn get(&self, byte: u8) -> T {
        self.0[byte as usize]
    }
}
