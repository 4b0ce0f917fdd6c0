//! Bytes that arrive at offsets, put in order.

use std::collections::BTreeMap;

/// Most bytes of a stream that are kept: more than any case reads.
const MAX_BYTES: u64 = 2 << 20;

/// Puts bytes in order.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    in_order: Vec<u8>,
    waiting: BTreeMap<u64, Vec<u8>>,
    /// Bytes of `in_order` that [`Assembler::take`] has returned.
    taken: usize,
    end: Option<u64>,
}

impl Assembler {
    /// Adds bytes. What is behind the first 2 MiB is ignored.
    pub(crate) fn push(&mut self, offset: u64, data: &[u8], fin: bool) {
        if fin {
            self.end = Some(offset.saturating_add(data.len() as u64));
        }
        if offset.saturating_add(data.len() as u64) > MAX_BYTES {
            return;
        }
        let longer = |old: &Vec<u8>| old.len() >= data.len();
        if !self.waiting.get(&offset).is_some_and(longer) {
            self.waiting.insert(offset, data.to_vec());
        }
        while let Some(entry) = self.waiting.first_entry() {
            let have = self.in_order.len() as u64;
            if *entry.key() > have {
                break;
            }
            let skip = (have - *entry.key()) as usize;
            let piece = entry.remove();
            self.in_order
                .extend_from_slice(piece.get(skip..).unwrap_or_default());
        }
    }

    /// Returns everything that is in order.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.in_order
    }

    /// Returns what is in order and was not returned before.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let new = self.in_order.get(self.taken..).unwrap_or_default().to_vec();
        self.taken = self.in_order.len();
        new
    }

    /// Returns whether everything has arrived.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_complete(&self) -> bool {
        self.end == Some(self.in_order.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_are_put_together() {
        let mut assembler = Assembler::default();
        assembler.push(4, b"ef", true);
        assembler.push(2, b"cd", false);
        assert_eq!(assembler.bytes(), b"");
        assembler.push(0, b"abc", false);
        assert_eq!(
            (assembler.bytes(), assembler.is_complete()),
            (&b"abcdef"[..], true)
        );
        assert_eq!(assembler.take(), b"abcdef");
        assert_eq!(assembler.take(), b"");
    }

    #[test]
    fn bytes_beyond_the_bound_are_ignored() {
        let mut assembler = Assembler::default();
        assembler.push(MAX_BYTES, b"x", false);
        assembler.push(u64::MAX, b"x", true);
        assert!(assembler.waiting.is_empty() && !assembler.is_complete());
    }
}
