//! Received bytes of one stream, put in order.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::ranges::{RangeSet, Span};
use crate::memory;

/// Size and alignment of a block, bytes.
const BLOCK: u64 = 32 << 10;

/// Smallest allocation of a stream's first block, bytes: of a hundred thousand
/// tiny streams each has one.
const FIRST: usize = 64;

/// The peer left more gaps than we keep track of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyGaps;

/// A part of the stream between two multiples of [`BLOCK`].
#[derive(Debug)]
struct Block {
    start: u64,
    bytes: BytesMut,
}

impl Block {
    /// Where the next block starts.
    fn limit(&self) -> u64 {
        (self.start / BLOCK + 1) * BLOCK
    }

    /// Stores `data` at `offset` and answers the memory this added. Bytes between
    /// what is stored and `offset` become zeros until they arrive.
    fn store(&mut self, offset: u64, data: &[u8]) -> usize {
        let before = self.bytes.capacity();
        let at = (offset - self.start) as usize;
        let end = at + data.len();
        self.make_room(end);
        if at == self.bytes.len() {
            self.bytes.extend_from_slice(data);
        } else {
            if end > self.bytes.len() {
                self.bytes.resize(end, 0);
            }
            self.bytes[at..end].copy_from_slice(data);
        }
        self.bytes.capacity().saturating_sub(before)
    }

    /// Only a stream's first block grows, so that short streams stay small; later
    /// ones are allocated whole.
    fn make_room(&mut self, end: usize) {
        if end <= self.bytes.capacity() {
            return;
        }
        let whole = (self.limit() - self.start) as usize;
        let wanted = if self.start < BLOCK {
            end.max(self.bytes.capacity() * 2).max(FIRST).min(whole)
        } else {
            whole
        };
        let mut grown = BytesMut::with_capacity(wanted);
        grown.extend_from_slice(&self.bytes);
        self.bytes = grown;
    }
}

/// The receive buffer of one stream. Data is copied once, into blocks addressed by
/// offset, and handed out as slices of them; so a byte pins at most the block it lies
/// in, however it arrives.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    blocks: VecDeque<Block>,
    /// Everything below was read.
    read: u64,
    /// Everything below arrived.
    contiguous: u64,
    /// What arrived above `contiguous`.
    ahead: RangeSet,
    pinned: usize,
}

impl Assembler {
    pub(super) const fn contiguous(&self) -> u64 {
        self.contiguous
    }

    /// Bytes allocated: blocks, their list, the list of gaps.
    pub(super) fn memory(&self) -> usize {
        self.pinned + memory::ring(&self.blocks) + self.ahead.memory()
    }

    /// Stores the parts of `data` that are new and answers how many bytes those are.
    ///
    /// # Errors
    /// [`TooManyGaps`] if more than `max_gaps` separate pieces wait for data before
    /// them.
    pub(super) fn insert(
        &mut self,
        offset: u64,
        data: &[u8],
        max_gaps: usize,
    ) -> Result<u64, TooManyGaps> {
        let span = Span::new(offset.max(self.contiguous), offset + data.len() as u64);
        if span.is_empty() {
            return Ok(0);
        }
        let data = &data[(span.start - offset) as usize..];
        if self.ahead.is_empty() && span.start == self.contiguous {
            self.store(span, data);
            self.contiguous = span.end;
            return Ok(span.len());
        }
        let ahead = core::mem::take(&mut self.ahead);
        let mut fresh = 0;
        ahead.for_each_gap(span, |gap| {
            fresh += gap.len();
            let from = (gap.start - span.start) as usize;
            self.store(gap, &data[from..from + gap.len() as usize]);
        });
        self.ahead = ahead;
        self.ahead.insert(span);
        while let Some(end) = self.ahead.absorb(self.contiguous) {
            self.contiguous = end;
        }
        if self.ahead.len() > max_gaps {
            return Err(TooManyGaps);
        }
        Ok(fresh)
    }

    /// Copies `data` into the blocks that cover `span`.
    fn store(&mut self, span: Span, mut data: &[u8]) {
        let mut at = span.start;
        while !data.is_empty() {
            let index = self.block_for(at);
            let block = &mut self.blocks[index];
            let room = (block.limit() - at) as usize;
            let (now, later) = data.split_at(data.len().min(room));
            self.pinned += block.store(at, now);
            at += now.len() as u64;
            data = later;
        }
    }

    /// The index of the block for `offset`, made if there is none. The block being
    /// read stays until it is exhausted, so a new one is whole.
    fn block_for(&mut self, offset: u64) -> usize {
        if let Some(last) = self.blocks.back()
            && (last.start..last.limit()).contains(&offset)
        {
            return self.blocks.len() - 1;
        }
        let index = self.blocks.partition_point(|b| b.limit() <= offset);
        let held = self.blocks.get(index).is_some_and(|b| b.start <= offset);
        if !held {
            // The block being read begins there; it may have been given back.
            let start = (offset / BLOCK * BLOCK).max(self.read);
            if self.blocks.is_empty() {
                // Most streams never have a second one.
                self.blocks.reserve_exact(1);
            }
            let bytes = BytesMut::new();
            self.blocks.insert(index, Block { start, bytes });
        }
        index
    }

    /// Hands out up to `max` bytes in order, without a copy.
    pub(super) fn read_chunk(&mut self, max: usize) -> Option<Bytes> {
        let len = self.front_readable().min(max);
        if len == 0 {
            return None;
        }
        let block = self.blocks.front_mut()?;
        let before = block.bytes.capacity();
        let chunk = block.bytes.split_to(len).freeze();
        self.pinned -= before - block.bytes.capacity();
        self.advanced(len);
        Some(chunk)
    }

    /// Copies bytes in order into `out` and answers how many.
    pub(super) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < out.len() {
            let len = self.front_readable().min(out.len() - filled);
            let Some(block) = self.blocks.front_mut().filter(|_| len > 0) else {
                break;
            };
            out[filled..filled + len].copy_from_slice(&block.bytes[..len]);
            let before = block.bytes.capacity();
            block.bytes.advance(len);
            self.pinned -= before - block.bytes.capacity();
            self.advanced(len);
            filled += len;
        }
        filled
    }

    fn front_readable(&self) -> usize {
        self.blocks.front().map_or(0, |block| {
            let end = (block.start + block.bytes.len() as u64).min(self.contiguous);
            end.saturating_sub(block.start) as usize
        })
    }

    /// Moves the front block and the reader by `len`, and drops an exhausted block.
    fn advanced(&mut self, len: usize) {
        self.read += len as u64;
        let Some(block) = self.blocks.front_mut() else {
            return;
        };
        let limit = block.limit();
        block.start += len as u64;
        if block.start == limit {
            self.pinned -= block.bytes.capacity();
            self.blocks.pop_front();
        }
    }

    /// Gives back what holds nothing to be read.
    pub(super) fn release_memory(&mut self) {
        if self.ahead.is_empty() && self.read == self.contiguous {
            self.blocks = VecDeque::new();
            self.pinned = 0;
        }
        self.ahead.release_memory();
    }

    /// Lets go of everything, as after a reset; answers nothing more.
    pub(super) fn discard(&mut self) {
        *self = Self {
            read: self.contiguous,
            contiguous: self.contiguous,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(from: u64, len: usize) -> Vec<u8> {
        (0..len)
            .map(|i| ((from as usize + i) % 251) as u8)
            .collect()
    }

    fn actually_pinned(assembler: &Assembler) -> usize {
        let blocks: usize = assembler.blocks.iter().map(|b| b.bytes.capacity()).sum();
        blocks + memory::ring(&assembler.blocks) + assembler.ahead.memory()
    }

    #[test]
    fn a_short_stream_takes_a_short_block() {
        let mut assembler = Assembler::default();
        assembler.insert(0, b"hello", 8).unwrap();
        assert_eq!(assembler.pinned, FIRST);
        assert_eq!(assembler.read_chunk(99).unwrap(), &b"hello"[..]);
        assert_eq!(assembler.read_chunk(99), None);
    }

    #[test]
    fn nothing_to_read_takes_no_memory_and_reading_goes_on() {
        let mut assembler = Assembler::default();
        for offset in [0, 5, BLOCK - 2, BLOCK + 3] {
            assembler.insert(assembler.read, b"x", 8).unwrap();
            let len = offset as usize + 1 - assembler.read as usize;
            assembler
                .insert(assembler.read, &pattern(assembler.read, len), 8)
                .unwrap();
            assembler.release_memory();
            while assembler.read_chunk(usize::MAX).is_some() {}
            assembler.release_memory();
            assert_eq!((assembler.read, assembler.memory()), (offset + 1, 0));
        }
        // What waits for data before it is kept.
        assembler.insert(BLOCK + 6, b"late", 8).unwrap();
        assembler.release_memory();
        assembler.insert(BLOCK + 4, b"so", 8).unwrap();
        assert_eq!(assembler.read_chunk(99).unwrap(), &b"solate"[..]);
    }

    #[test]
    fn chunks_of_one_block_share_it() {
        let mut assembler = Assembler::default();
        let data = pattern(0, 2 * BLOCK as usize);
        assembler.insert(0, &data, 8).unwrap();
        let first = assembler.read_chunk(100).unwrap();
        let second = assembler.read_chunk(usize::MAX).unwrap();
        assert_eq!(first.as_ptr() as usize + 100, second.as_ptr() as usize);
        assert_eq!(second.len(), BLOCK as usize - 100);
        assembler.read_chunk(usize::MAX).unwrap();
        assert_eq!(assembler.pinned, 0);
    }

    #[test]
    fn gap_makers_cost_no_more_than_a_few_windows() {
        let window = 256 << 10;
        let mut assembler = Assembler::default();
        for offset in (1..window).step_by(2) {
            if assembler.insert(offset, b"x", 4_096).is_err() {
                break;
            }
        }
        assert_eq!(assembler.ahead.len(), 4_097);
        let mut sparse = Assembler::default();
        for offset in (1..window).step_by(BLOCK as usize) {
            sparse.insert(offset, b"x", 4_096).unwrap();
        }
        assert!(sparse.memory() as u64 <= 2 * window, "{}", sparse.memory());
        assert!(assembler.memory() as u64 <= 2 * window);
    }

    proptest! {
        /// Pieces in any order, overlapping and repeated, come out as written, and
        /// the memory charged is the memory held.
        #[test]
        fn pieces_in_any_order_come_out_in_order(
            pieces in prop::collection::vec((0u64..200_000, 1usize..40_000, 0..3, 1usize..70_000), 1..40)
        ) {
            let total = 240_000;
            let mut assembler = Assembler::default();
            let mut out = Vec::new();
            let last = (0, total, 1, total);
            for (offset, len, how, take) in pieces.into_iter().chain([last]) {
                assembler.insert(offset, &pattern(offset, len), 1_000).unwrap();
                if how > 0 {
                    out.extend(assembler.read_chunk(take).unwrap_or_default());
                } else {
                    let mut buffer = vec![0; take];
                    let n = assembler.read(&mut buffer);
                    out.extend_from_slice(&buffer[..n]);
                }
                if how == 2 {
                    assembler.release_memory();
                }
                prop_assert_eq!(assembler.memory(), actually_pinned(&assembler));
                prop_assert_eq!(assembler.read, out.len() as u64);
            }
            while let Some(chunk) = assembler.read_chunk(usize::MAX) {
                out.extend_from_slice(&chunk);
            }
            prop_assert_eq!(out, pattern(0, total));
        }
    }
}
