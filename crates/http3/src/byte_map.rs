//! A value for each of the 256 bytes.

/// Looked up without a branch, and without a way to fail.
pub(crate) struct ByteMap<T>([T; 256]);

impl<T: Copy> ByteMap<T> {
    /// The value of each byte, by the byte.
    pub(crate) const fn new(values: [T; 256]) -> Self {
        Self(values)
    }

    /// The value of one.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a byte is below 256")]
    pub(crate) const fn get(&self, byte: u8) -> T {
        self.0[byte as usize]
    }
}
