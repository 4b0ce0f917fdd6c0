//! A block of memory with received data.

use bytes::{Buf, Bytes, BytesMut};

/// Size of the largest block, bytes: about twenty packets.
pub(super) const BLOCK: usize = 32 << 10;

/// Contiguous received bytes in one allocation. The whole allocation is charged as long as a byte
/// of it is unread.
#[derive(Debug)]
pub(super) struct Block {
    bytes: BytesMut,
    /// Size of the allocation, bytes.
    charge: usize,
}

impl Block {
    /// Creates an empty block for at least `room` bytes.
    pub(super) fn with_room(room: usize) -> Self {
        let bytes = BytesMut::with_capacity(room);
        Self {
            charge: bytes.capacity(),
            bytes,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of bytes of memory that it pins.
    pub(super) const fn charge(&self) -> usize {
        self.charge
    }

    /// Returns the number of bytes that still find room.
    pub(super) fn room(&self) -> usize {
        self.bytes.capacity().saturating_sub(self.bytes.len())
    }

    /// Appends the front of `data`, as much as there is room for, and returns the
    /// rest. Never allocates.
    pub(super) fn append<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let (now, later) = data
            .split_at_checked(self.room())
            .unwrap_or((data, &[][..]));
        self.bytes.extend_from_slice(now);
        later
    }

    /// Hands out the front without a copy, at most `max` bytes.
    pub(super) fn take_front(&mut self, max: usize) -> Bytes {
        if max >= self.len() && self.room() == 0 {
            return core::mem::take(&mut self.bytes).freeze();
        }
        let len = self.len().min(max);
        self.bytes.split_to(len).freeze()
    }

    /// Copies the front into `out` and returns how many bytes that took.
    pub(super) fn read(&mut self, out: &mut [u8]) -> usize {
        let len = self.len().min(out.len());
        self.bytes
            .copy_to_slice(out.get_mut(..len).unwrap_or_default());
        len
    }
}
