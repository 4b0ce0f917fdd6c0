//! Puts the received data of one stream in order.

use std::collections::VecDeque;

use bytes::Bytes;

use super::block::{BLOCK, Block};
use super::out_of_order::OutOfOrder;
use crate::count::Count;
use crate::memory;

/// Smallest block, bytes. It is small because each of a hundred thousand tiny streams has one.
const FIRST: usize = 64;

/// Smallest block of a stream that has not ended, if it may have unused room, bytes: the rest of a
/// small message often comes with the next packet.
const PACKET: usize = 1_500;

/// Pieces up to this size that were behind a gap are copied into one block when the gap is filled,
/// bytes, so that the application reads few large chunks instead of many tiny ones.
const SMALL_PIECE: usize = 1 << 10;

/// The receive buffer of one stream. Data is copied once, into blocks, and handed out
/// as slices of them.
///
/// Its memory is a small multiple of the buffered bytes, however they arrived: a block has at most
/// as much unused room as there are bytes before it, unless the caller allows more.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// Unread data that arrived in order. Only the last block may be empty or have room that is
    /// used.
    ready: VecDeque<Block>,
    /// Everything below this offset was read.
    read: u64,
    /// Everything below this offset has arrived.
    contiguous: u64,
    /// Data above `contiguous`. Most streams never need it.
    out_of_order: Option<Box<OutOfOrder>>,
    /// Memory of the blocks in `ready`.
    charged: usize,
}

impl Assembler {
    pub(super) const fn contiguous(&self) -> u64 {
        self.contiguous
    }

    /// Returns the offset up to which everything was read.
    pub(super) const fn offset(&self) -> u64 {
        self.read
    }

    /// Resets the buffer for another stream, and keeps its list of blocks if that is short.
    pub(super) fn clear(&mut self) {
        let mut ready = core::mem::take(&mut self.ready);
        ready.clear();
        if ready.capacity() > memory::MAX_RETAINED_CAPACITY {
            ready = VecDeque::new();
        }
        *self = Self {
            ready,
            ..Self::default()
        };
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let out_of_order = self.out_of_order.as_deref();
        self.charged
            .saturating_add(memory::vec_deque(&self.ready))
            .saturating_add(out_of_order.map_or(0, |pieces| {
                pieces.memory().saturating_add(size_of_val(pieces))
            }))
    }

    /// Returns the number of bytes held for the application.
    pub(super) fn stored(&self) -> usize {
        let ready = usize::try_from(self.unread()).unwrap_or(usize::MAX);
        let ahead = self
            .out_of_order
            .as_ref()
            .map_or(0, |pieces| pieces.stored());
        ready.saturating_add(ahead)
    }

    /// Returns the number of separate pieces behind gaps.
    pub(super) fn pieces(&self) -> usize {
        self.out_of_order.as_ref().map_or(0, |pieces| pieces.len())
    }

    /// Returns whether something can be read now.
    pub(super) const fn is_readable(&self) -> bool {
        self.unread() > 0
    }

    const fn unread(&self) -> u64 {
        self.contiguous.saturating_sub(self.read)
    }

    /// Stores the parts of `data` that are new and returns how many bytes those are.
    /// `offset + data.len()` must be a valid offset. A block may have `spare` bytes of room more
    /// than the data needs.
    pub(super) fn insert(&mut self, offset: u64, data: &[u8], spare: usize) -> usize {
        let known = self.contiguous.saturating_sub(offset);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let Some(data) = data.get(known..).filter(|data| !data.is_empty()) else {
            return 0;
        };
        if offset > self.contiguous {
            return self
                .out_of_order
                .get_or_insert_default()
                .insert(offset, data);
        }
        if self
            .out_of_order
            .as_ref()
            .is_none_or(|pieces| pieces.is_empty())
        {
            self.append(data, spare);
            return data.len();
        }
        self.fill_gap(data, spare)
    }

    /// Appends `data`, which comes next, and the pieces that waited for it.
    fn fill_gap(&mut self, mut data: &[u8], spare: usize) -> usize {
        let mut fresh: usize = 0;
        loop {
            let next = self.out_of_order.as_ref().and_then(|pieces| pieces.first());
            let gap = next.map_or(u64::MAX, |next| next.saturating_sub(self.contiguous));
            let gap = usize::try_from(gap).unwrap_or(usize::MAX);
            let (now, later) = data.split_at_checked(gap).unwrap_or((data, &[]));
            self.append(now, spare);
            fresh = fresh.saturating_add(now.len());
            if now.len() < gap {
                return fresh;
            }
            let Some(piece) = self.out_of_order.as_mut().and_then(|pieces| pieces.pop()) else {
                return fresh;
            };
            data = later.get(piece.len()..).unwrap_or_default();
            self.append_piece(piece, spare);
        }
    }

    /// Appends a piece that is now contiguous.
    fn append_piece(&mut self, piece: Block, spare: usize) {
        if piece.len() <= SMALL_PIECE {
            return self.append(piece.bytes(), spare);
        }
        self.contiguous.count(piece.len() as u64);
        self.drop_empty_back();
        self.push(piece);
    }

    /// Copies `data` to the end.
    fn append(&mut self, mut data: &[u8], spare: usize) {
        loop {
            if let Some(last) = self.ready.back_mut() {
                let rest = last.append(data);
                self.contiguous
                    .count(data.len().saturating_sub(rest.len()) as u64);
                data = rest;
            }
            if data.is_empty() {
                return;
            }
            self.drop_empty_back();
            self.push(Block::with_room(self.room_for(data.len(), spare)));
        }
    }

    /// Returns the size of a block for `len` bytes: as much as is already buffered, so that many
    /// bytes need few blocks. A stream that has carried much data gets a whole block if allowed.
    fn room_for(&self, len: usize, spare: usize) -> usize {
        if self.contiguous >= BLOCK as u64 && spare >= BLOCK {
            return BLOCK;
        }
        let held = usize::try_from(self.unread()).unwrap_or(usize::MAX);
        let least = if spare >= PACKET { PACKET } else { FIRST };
        held.saturating_add(len).clamp(least, BLOCK)
    }

    fn push(&mut self, block: Block) {
        if self.ready.is_empty() {
            // Most streams never have a second one.
            self.ready.reserve_exact(1);
        }
        self.charged = self.charged.saturating_add(block.charge());
        self.ready.push_back(block);
    }

    /// Drops the last block if it is full and was read.
    fn drop_empty_back(&mut self) {
        if self.ready.back().is_some_and(Block::is_empty)
            && let Some(block) = self.ready.pop_back()
        {
            self.charged = self.charged.saturating_sub(block.charge());
        }
    }

    /// Hands out up to `max` bytes in order, without a copy.
    pub(super) fn read_chunk(&mut self, max: usize) -> Option<Bytes> {
        let front = self.ready.front_mut().filter(|front| !front.is_empty())?;
        if max == 0 {
            return None;
        }
        let chunk = front.take_front(max);
        self.advance(chunk.len());
        Some(chunk)
    }

    /// Copies bytes in order into `out` and returns how many.
    pub(super) fn read(&mut self, mut out: &mut [u8]) -> usize {
        let mut filled: usize = 0;
        while let Some(front) = self.ready.front_mut() {
            let len = front.read(out);
            if len == 0 {
                break;
            }
            self.advance(len);
            filled = filled.saturating_add(len);
            out = out.get_mut(len..).unwrap_or_default();
        }
        filled
    }

    /// Records that `len` bytes of the front block were read, and drops the block if it is used
    /// up.
    fn advance(&mut self, len: usize) {
        self.read.count(len as u64);
        let is_last = self.ready.len() == 1;
        let front = self.ready.front();
        if front.is_some_and(|front| front.is_empty() && !(is_last && front.room() > 0))
            && let Some(block) = self.ready.pop_front()
        {
            self.charged = self.charged.saturating_sub(block.charge());
        }
    }

    /// Frees blocks without unread data.
    pub(super) fn release_memory(&mut self) {
        if self.unread() == 0 {
            self.ready = VecDeque::new();
            self.charged = 0;
        }
        self.out_of_order.take_if(|pieces| pieces.is_empty());
    }

    /// Drops all data, for example after a reset.
    pub(super) fn discard(&mut self) {
        *self = Self {
            read: self.contiguous,
            contiguous: self.contiguous,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests;
