//! A small buffer for variable-length integers that arrive in pieces.

/// A buffer of at most `N` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VarintBuffer<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Default for VarintBuffer<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }
}

impl<const N: usize> VarintBuffer<N> {
    /// Appends a byte. A full buffer ignores it: callers try to decode after each byte, and `N`
    /// bytes always suffice for that.
    pub(crate) fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(usize::from(self.len)) {
            *slot = byte;
            self.len = self.len.saturating_add(1);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let filled = self.bytes.get(..usize::from(self.len));
        filled.unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_buffer_ignores_further_bytes() {
        let mut buffer = VarintBuffer::<2>::default();
        assert!(buffer.is_empty());
        for byte in 1..=3 {
            buffer.push(byte);
        }
        assert_eq!(buffer.bytes(), [1, 2]);
        buffer.clear();
        assert!(buffer.is_empty());
    }
}
