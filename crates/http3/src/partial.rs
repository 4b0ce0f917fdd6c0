//! A few bytes kept until the integer they begin is whole.

/// At most `N` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Default for Partial<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }
}

impl<const N: usize> Partial<N> {
    /// Appends a byte. Callers look for what they need after each, which `N` bytes
    /// always hold, so a full one takes no more.
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
    fn a_full_one_takes_no_more() {
        let mut partial = Partial::<2>::default();
        assert!(partial.is_empty());
        for byte in 1..=3 {
            partial.push(byte);
        }
        assert_eq!(partial.bytes(), [1, 2]);
        partial.clear();
        assert!(partial.is_empty());
    }
}
