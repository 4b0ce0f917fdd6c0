//! Received data of one stream behind a gap.

use std::collections::BTreeMap;

use super::block::BLOCK;
use super::block::Block;
use crate::memory;

/// Smallest allocation of a piece in bytes: what the allocator uses for a single byte.
const LEAST: usize = 24;

/// Pieces of data by their start offset. They do not overlap, and all of them lie behind the data
/// that arrived in order.
///
/// A piece takes memory for its bytes only, whatever its offset. Data that continues a piece is
/// appended to it if there is room, or else starts a new piece of twice the size. So the data
/// behind a lost packet is held in few blocks, with at most twice the memory of its bytes.
#[derive(Debug, Default)]
pub(super) struct OutOfOrder {
    pieces: BTreeMap<u64, Block>,
    /// Bytes in all pieces.
    stored: usize,
    /// Memory of all pieces.
    charged: usize,
}

impl OutOfOrder {
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) const fn stored(&self) -> usize {
        self.stored
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.charged.saturating_add(memory::btree_map(&self.pieces))
    }

    /// Returns the start offset of the first piece.
    pub(super) fn first(&self) -> Option<u64> {
        self.pieces.first_key_value().map(|(&start, _)| start)
    }

    /// Removes the first piece and returns it.
    pub(super) fn pop(&mut self) -> Option<Block> {
        let (_, piece) = self.pieces.pop_first()?;
        self.forget(&piece);
        Some(piece)
    }

    /// Stores `data`, whose last byte lies before the largest offset there is, and
    /// returns how many of its bytes are new.
    pub(super) fn insert(&mut self, start: u64, data: &[u8]) -> usize {
        let (start, data) = self.without_known_front(start, data);
        let (data, covered) = self.without_known_back(start, data);
        if data.is_empty() {
            return 0;
        }
        let rest = self.continue_piece(start, data);
        let at = start.saturating_add(offset(data.len().saturating_sub(rest.len())));
        self.add_piece(at, rest);
        self.stored = self.stored.saturating_add(data.len());
        data.len().saturating_sub(covered)
    }

    /// Returns what of `data` lies beyond the piece that starts at or before it.
    fn without_known_front<'a>(&self, start: u64, data: &'a [u8]) -> (u64, &'a [u8]) {
        let Some((&at, before)) = self.pieces.range(..=start).next_back() else {
            return (start, data);
        };
        let end = end_of(at, before);
        let known = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        (start.max(end), data.get(known..).unwrap_or_default())
    }

    /// Returns what of `data` lies before the first piece that reaches beyond it. Pieces that
    /// it covers give way to it; returns their bytes as well.
    fn without_known_back<'a>(&mut self, start: u64, data: &'a [u8]) -> (&'a [u8], usize) {
        let end = start.saturating_add(offset(data.len()));
        let mut covered = 0_usize;
        while let Some((&at, piece)) = self.pieces.range(start..end).next() {
            if end_of(at, piece) > end {
                let len = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
                return (data.get(..len).unwrap_or(data), covered);
            }
            covered = covered.saturating_add(piece.len());
            if let Some(piece) = self.pieces.remove(&at) {
                self.forget(&piece);
            }
        }
        (data, covered)
    }

    /// Appends to the piece that ends at `start` what it has room for; returns the
    /// rest.
    fn continue_piece<'a>(&mut self, start: u64, data: &'a [u8]) -> &'a [u8] {
        let before = self.pieces.range_mut(..start).next_back();
        match before.filter(|(at, piece)| end_of(**at, piece) == start) {
            Some((_, piece)) => piece.append(data),
            None => data,
        }
    }

    /// Makes a piece of `data`: with room for it alone, or if it continues another,
    /// for twice as much as that holds.
    fn add_piece(&mut self, start: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let before = self.pieces.range(..start).next_back();
        let before = before.filter(|(at, piece)| end_of(**at, piece) == start);
        let run = before.map_or(0, |(_, piece)| piece.len());
        let room = run.saturating_mul(2).min(BLOCK).max(data.len()).max(LEAST);
        let mut piece = Block::with_room(room);
        let rest = piece.append(data);
        debug_assert!(rest.is_empty(), "the piece has room for the data");
        self.charged = self.charged.saturating_add(piece.charge());
        self.pieces.insert(start, piece);
    }

    fn forget(&mut self, piece: &Block) {
        self.stored = self.stored.saturating_sub(piece.len());
        self.charged = self.charged.saturating_sub(piece.charge());
    }
}

/// Returns the offset after the last byte of a piece.
fn end_of(at: u64, piece: &Block) -> u64 {
    at.saturating_add(offset(piece.len()))
}

/// Returns a length as an offset.
const fn offset(len: usize) -> u64 {
    len as u64
}

#[cfg(test)]
impl OutOfOrder {
    /// Returns the memory held, added up anew.
    pub(super) fn recount(&self) -> usize {
        let pieces: usize = self.pieces.values().map(Block::charge).sum();
        pieces + memory::btree_map(&self.pieces)
    }

    /// Returns whether no two pieces overlap, none is empty, and the sums are right.
    pub(super) fn is_sound(&self) -> bool {
        let mut end = 0;
        let apart = self.pieces.iter().all(|(&start, piece)| {
            let after = start >= end && !piece.is_empty();
            end = start + piece.len() as u64;
            after
        });
        apart && self.stored == self.pieces.values().map(Block::len).sum::<usize>()
    }

    /// Returns where the bytes of the first piece lie.
    pub(super) fn first_bytes(&self) -> *const u8 {
        self.pieces
            .values()
            .next()
            .map_or(core::ptr::null(), |piece| piece.bytes().as_ptr())
    }
}
