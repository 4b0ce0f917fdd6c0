//! Data that was written and is not acknowledged, in blocks.

use std::collections::VecDeque;

use bytes::Bytes;

use super::ranges::{RangeSet, Span};
use crate::memory;

/// Size of a block for copied writes, bytes: one allocation for about fifty packets.
const BLOCK: usize = 64 << 10;

/// Chunks up to this size are copied into a block, bytes: for them, managing a chunk would cost more
/// than the copy.
const COPY_UP_TO: usize = 4 << 10;

/// Largest block that a finished buffer keeps for the next stream, bytes: a short message and its
/// header.
const KEPT_UP_TO: usize = 2 << 10;

#[derive(Debug)]
enum Storage {
    /// Copied data; grows while it is the last block.
    Gathered(Vec<u8>),
    /// A chunk of the application.
    Shared(Bytes),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Gathered(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    fn pinned(&self) -> usize {
        match self {
            Self::Gathered(bytes) => bytes.capacity(),
            Self::Shared(bytes) => bytes.len(),
        }
    }
}

#[derive(Debug)]
struct Block {
    start: u64,
    storage: Storage,
}

impl Block {
    /// Returns its bytes from `offset` on, which must not be before its start.
    fn from(&self, offset: u64) -> &[u8] {
        let skip = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.storage.bytes().get(skip..).unwrap_or_default()
    }

    /// Returns whether another stream can use its memory.
    fn is_kept(&self) -> bool {
        match &self.storage {
            Storage::Gathered(bytes) => bytes.capacity() <= KEPT_UP_TO,
            Storage::Shared(_) => false,
        }
    }

    #[inline]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "bytes that were written, from an offset below 2^62"
    )]
    fn end(&self) -> u64 {
        self.start + self.storage.bytes().len() as u64
    }
}

/// The state of the FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    /// The application may write more.
    Open,
    /// A FIN has to be sent (again).
    Pending,
    /// A FIN is in flight.
    Sent,
    /// A FIN was acknowledged.
    Acked,
}

/// The send buffer of one stream: `base` ≤ `sent` ≤ `end`.
#[derive(Debug)]
pub(super) struct SendBuffer {
    blocks: VecDeque<Block>,
    /// Everything below this offset is acknowledged.
    base: u64,
    /// Everything below this offset was sent at least once.
    sent: u64,
    /// Everything below this offset was written.
    end: u64,
    /// Acknowledged ranges above `base`.
    acked: RangeSet,
    /// Ranges that were lost and have to be sent again.
    lost: RangeSet,
    fin: Fin,
    pinned: usize,
}

impl SendBuffer {
    pub(super) fn new() -> Self {
        Self {
            blocks: VecDeque::new(),
            base: 0,
            sent: 0,
            end: 0,
            acked: RangeSet::default(),
            lost: RangeSet::default(),
            fin: Fin::Open,
            pinned: 0,
        }
    }

    /// Resets the buffer for another stream, and keeps its list of blocks if that is short, with the
    /// block that [`Self::free`] has left.
    pub(super) fn clear(&mut self) {
        let mut blocks = core::mem::take(&mut self.blocks);
        blocks.truncate(1);
        if blocks.capacity() > memory::MAX_RETAINED_CAPACITY || !blocks.iter().all(Block::is_kept) {
            blocks = VecDeque::new();
        }
        let mut pinned = 0;
        for Block { start, storage } in &mut blocks {
            *start = 0;
            pinned = storage.pinned();
            if let Storage::Gathered(bytes) = storage {
                bytes.clear();
            }
        }
        *self = Self {
            blocks,
            pinned,
            ..Self::new()
        };
    }

    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of acknowledged bytes above `base`, which are kept only because of missing
    /// ones before them.
    pub(super) fn acked_ahead(&self) -> u64 {
        self.acked.bytes()
    }

    /// Returns the number of bytes in the blocks.
    #[cfg(test)]
    const fn pinned(&self) -> usize {
        self.pinned
    }

    /// Returns the allocated memory in bytes: the blocks, and the ranges of their data.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(super) fn memory(&self) -> usize {
        self.pinned + memory::vec_deque(&self.blocks) + self.acked.memory() + self.lost.memory()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.fin != Fin::Open
    }

    pub(super) fn is_all_acked(&self) -> bool {
        self.fin == Fin::Acked && self.base == self.end
    }

    /// Appends a copy of `data`.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory, of which the difference is that of a larger and a smaller; offsets below 2^62"
    )]
    pub(super) fn write(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let before = match self.blocks.back() {
                Some(Block {
                    storage: Storage::Gathered(bytes),
                    ..
                }) if bytes.len() < BLOCK => bytes.capacity(),
                Some(_) | None => {
                    self.push(Storage::Gathered(Vec::new()));
                    0
                }
            };
            let Some(Block {
                storage: Storage::Gathered(tail),
                ..
            }) = self.blocks.back_mut()
            else {
                return;
            };
            let (now, later) = data.split_at(data.len().min(BLOCK.saturating_sub(tail.len())));
            if tail.capacity() - tail.len() < now.len() {
                let grown = (tail.len() + now.len()).max(tail.capacity() * 2).min(BLOCK);
                tail.reserve_exact(grown - tail.len());
            }
            tail.extend_from_slice(now);
            self.pinned += tail.capacity() - before;
            self.end += now.len() as u64;
            data = later;
        }
    }

    /// Appends a chunk without a copy, unless it is small.
    pub(super) fn write_chunk(&mut self, chunk: Bytes) {
        if chunk.len() <= COPY_UP_TO {
            return self.write(&chunk);
        }
        self.pinned = self.pinned.saturating_add(chunk.len());
        let end = self.end.saturating_add(chunk.len() as u64);
        self.push(Storage::Shared(chunk));
        self.end = end;
    }

    fn push(&mut self, storage: Storage) {
        if self.blocks.is_empty() {
            // Most streams never have a second one.
            self.blocks.reserve_exact(1);
        }
        self.blocks.push_back(Block {
            start: self.end,
            storage,
        });
    }

    /// Ends the data: no more will be written.
    pub(super) fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Pending;
        }
    }

    /// Returns what can be sent without new credit: a lost range, or the FIN alone.
    pub(super) fn next_free(&self) -> Option<Span> {
        self.lost.first().or_else(|| {
            (self.fin == Fin::Pending && self.sent == self.end)
                .then_some(Span::new(self.end, self.end))
        })
    }

    /// Records that the `len` bytes at `offset` are sent, and returns whether the frame
    /// carries the FIN.
    #[inline]
    pub(super) fn on_sent(&mut self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        debug_assert!(end <= self.end, "sent what was not written");
        self.lost.remove(Span::new(offset, end));
        self.sent = self.sent.max(end);
        let fin = end == self.end && self.is_finished();
        if fin && self.fin == Fin::Pending {
            self.fin = Fin::Sent;
        }
        fin
    }

    /// Copies what was written from `offset` on into `out`.
    pub(super) fn copy_to(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset;
        let mut rest = out;
        let first = self.blocks.partition_point(|b| b.end() <= offset);
        for block in self.blocks.range(first..) {
            if rest.is_empty() {
                break;
            }
            let held = block.from(at);
            let len = held.len().min(rest.len());
            let (now, later) = core::mem::take(&mut rest).split_at_mut(len);
            if let Some(held) = held.get(..len) {
                now.copy_from_slice(held);
            }
            rest = later;
            at = at.saturating_add(len as u64);
        }
        debug_assert!(rest.is_empty(), "asked for bytes that are not held");
    }

    pub(super) fn on_acked(&mut self, offset: u64, len: u64, fin: bool) {
        let span = Span::new(offset, offset.saturating_add(len).min(self.sent));
        if fin && self.fin != Fin::Open {
            self.fin = Fin::Acked;
        }
        self.lost.remove(span);
        if span.start > self.base {
            self.acked.insert(span);
            return;
        }
        self.base = self.base.max(span.end);
        while let Some(end) = self.acked.absorb(self.base) {
            self.base = end;
        }
        self.free();
    }

    /// Schedules a lost range again, except for the parts that are acknowledged.
    pub(super) fn on_lost(&mut self, offset: u64, len: u64, fin: bool) {
        // After a reset, what was sent may end beyond what is delivered.
        let end = offset.saturating_add(len).min(self.sent).min(self.end);
        let lost = &mut self.lost;
        let span = Span::new(offset.max(self.base).min(end), end);
        if !span.is_empty() {
            self.acked.for_each_gap(span, |gap| lost.insert(gap));
        }
        if fin && self.fin == Fin::Sent {
            self.fin = Fin::Pending;
        }
    }

    /// Resets what was sent, after the server has rejected 0-RTT.
    pub(super) fn unsend(&mut self) {
        self.sent = self.base;
        self.lost.clear();
        self.acked.clear();
        if self.fin == Fin::Sent {
            self.fin = Fin::Pending;
        }
    }

    /// Frees unused memory.
    pub(super) fn release_memory(&mut self) {
        if self.is_all_acked() {
            self.blocks = VecDeque::new();
            self.pinned = 0;
        }
        self.blocks.shrink_to_fit();
        self.acked.release_memory();
        self.lost.release_memory();
    }

    /// Drops the data from `end` on, and the FIN: what was sent of it is not repeated.
    pub(super) fn truncate(&mut self, end: u64) {
        self.end = end.min(self.end).max(self.base);
        self.fin = Fin::Open;
        self.lost.remove(Span::new(self.end, u64::MAX));
        while self
            .blocks
            .back()
            .is_some_and(|block| block.start >= self.end)
        {
            let dropped = self.blocks.pop_back();
            let pinned = dropped.map_or(0, |block| block.storage.pinned());
            self.pinned = self.pinned.saturating_sub(pinned);
        }
    }

    /// Drops all data; offsets stay.
    pub(super) fn discard(&mut self) {
        self.blocks = VecDeque::new();
        self.lost.clear();
        self.acked.clear();
        self.base = self.end;
        self.pinned = 0;
    }

    /// Drops the blocks that are acknowledged, but for a small last one of a finished stream, whose
    /// memory the next stream uses.
    fn free(&mut self) {
        while let Some(block) = self.blocks.front() {
            let is_last = block.end() == self.end && self.is_all_acked();
            if block.end() > self.base || is_last && block.is_kept() {
                break;
            }
            self.pinned = self.pinned.saturating_sub(block.storage.pinned());
            self.blocks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(from: u64, len: usize) -> Vec<u8> {
        (0..len)
            .map(|i| ((from as usize + i) % 251) as u8)
            .collect()
    }

    fn copied(buffer: &SendBuffer, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        buffer.copy_to(offset, &mut out);
        out
    }

    #[test]
    fn any_range_is_read_back_across_blocks() {
        let mut buffer = SendBuffer::new();
        buffer.write(&pattern(0, 70_000));
        buffer.write_chunk(Bytes::from(pattern(70_000, 10_000)));
        buffer.write_chunk(Bytes::from(pattern(80_000, 100)));
        buffer.write(&pattern(80_100, 900));
        assert_eq!(buffer.end(), 81_000);
        assert_eq!(buffer.blocks.len(), 4);
        for (offset, len) in [(0, 81_000), (65_535, 2), (69_990, 10_500), (80_999, 1)] {
            assert_eq!(copied(&buffer, offset, len), pattern(offset, len));
        }
    }

    #[test]
    fn acknowledged_blocks_are_freed_and_rest_is_readable() {
        let mut buffer = SendBuffer::new();
        buffer.write(&pattern(0, 3 * BLOCK));
        buffer.on_sent(0, 3 * BLOCK as u64);
        assert_eq!(buffer.pinned(), 3 * BLOCK);
        buffer.on_acked(BLOCK as u64, BLOCK as u64, false);
        assert_eq!(buffer.pinned(), 3 * BLOCK);
        buffer.on_acked(0, BLOCK as u64, false);
        assert_eq!(buffer.pinned(), BLOCK);
        assert_eq!(buffer.base(), 2 * BLOCK as u64);
        assert_eq!(copied(&buffer, 150_000, 7), pattern(150_000, 7));
    }

    #[test]
    fn loss_of_acknowledged_data_is_ignored() {
        let mut buffer = SendBuffer::new();
        buffer.write(&pattern(0, 100));
        buffer.finish();
        assert!(buffer.on_sent(0, 100));
        buffer.on_acked(40, 20, false);
        buffer.on_lost(0, 100, true);
        buffer.on_lost(0, 100, true);
        assert_eq!(buffer.next_free(), Some(Span::new(0, 40)));
        assert!(!buffer.on_sent(0, 40));
        assert_eq!(buffer.next_free(), Some(Span::new(60, 100)));
        assert!(buffer.on_sent(60, 40));
        assert_eq!(buffer.next_free(), None);
        buffer.on_acked(0, 100, true);
        assert!(buffer.is_all_acked());
        buffer.on_lost(0, 100, true);
        assert_eq!(buffer.next_free(), None);
        buffer.release_memory();
        assert_eq!(buffer.pinned(), 0);
    }

    #[test]
    fn memory_of_a_short_message_is_used_by_the_next_stream() {
        let mut buffer = SendBuffer::new();
        for len in [1_000, 900, 1_000, 1_800] {
            buffer.write(&pattern(0, len));
            let pinned = buffer.pinned();
            assert!((len..=2_200).contains(&pinned), "{len}: {pinned}");
            assert_eq!(copied(&buffer, 0, len), pattern(0, len));
            buffer.finish();
            buffer.on_sent(0, len as u64);
            buffer.on_acked(0, len as u64, true);
            buffer.clear();
            assert_eq!((buffer.pinned(), buffer.end()), (pinned, 0));
        }
        // Neither what is large nor what is the application's.
        for message in [
            Bytes::from(pattern(0, 3_000)),
            Bytes::from(pattern(0, 9_000)),
        ] {
            buffer.write_chunk(message.clone());
            assert_eq!(copied(&buffer, 0, message.len()), message);
            buffer.finish();
            buffer.on_sent(0, message.len() as u64);
            buffer.on_acked(0, message.len() as u64, true);
            buffer.clear();
            assert_eq!(buffer.pinned(), 0);
        }
    }

    /// A peer that acknowledges every second packet, from the newest down as
    /// ACK frames go, then lets the others be declared lost: each costs the
    /// same, however many there are.
    #[test]
    fn acknowledging_every_second_packet_is_constant_work() {
        const PACKET: u64 = 1200;
        const PACKETS: u64 = 20_000;
        let mut buffer = SendBuffer::new();
        buffer.write(&vec![0; (PACKETS * PACKET) as usize]);
        for i in 0..PACKETS {
            buffer.on_sent(i * PACKET, PACKET);
        }
        for i in (0..PACKETS).rev().step_by(2) {
            buffer.on_acked(i * PACKET, PACKET, false);
        }
        assert_eq!(buffer.acked.len() as u64, PACKETS / 2);
        for i in (0..PACKETS).step_by(2) {
            buffer.on_lost(i * PACKET, PACKET, false);
        }
        assert_eq!(buffer.lost.len() as u64, PACKETS / 2);
        while let Some(span) = buffer.next_free() {
            buffer.on_sent(span.start, span.len());
        }
        for i in (0..PACKETS).step_by(2) {
            buffer.on_acked(i * PACKET, PACKET, false);
        }
        assert_eq!((buffer.base(), buffer.pinned()), (PACKETS * PACKET, 0));
        let shifted = buffer.acked.shifted() + buffer.lost.shifted();
        assert!(shifted as u64 <= 2 * PACKETS, "{shifted} spans shifted");
    }

    #[test]
    fn fin_after_all_data_was_sent_is_sent_alone() {
        let mut buffer = SendBuffer::new();
        buffer.write(b"x");
        assert!(!buffer.on_sent(0, 1));
        assert_eq!(buffer.next_free(), None);
        buffer.finish();
        assert_eq!(buffer.next_free(), Some(Span::new(1, 1)));
        assert!(buffer.on_sent(1, 0));
        buffer.on_lost(1, 0, true);
        assert_eq!(buffer.next_free(), Some(Span::new(1, 1)));
    }

    #[test]
    fn small_writes_share_blocks() {
        let mut buffer = SendBuffer::new();
        for _ in 0..100_000 {
            buffer.write(b"ab");
        }
        assert_eq!(buffer.blocks.len(), 200_000_usize.div_ceil(BLOCK));
        assert!(buffer.pinned() <= 200_000 + BLOCK);
    }
}
