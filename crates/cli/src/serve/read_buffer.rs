//! Memory that parts of files are read into, used again.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::limits::LARGEST_PIECE;

/// The size of what is kept, bytes.
const SIZE: usize = LARGEST_PIECE as usize;

/// Most buffers that are kept while nobody uses them: 4 MiB, about what fast connections have in
/// flight. They are not part of any client's account.
const CAPACITY: usize = 16;

/// Buffers that nobody uses, of [`SIZE`] bytes each.
///
/// Memory fresh from the allocator would have to be filled with zeros for each piece of a file, and
/// the allocator gives pieces of this size back to the system, which then maps new ones.
static UNUSED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Memory for a part of a file. What was in it before is overwritten or not shown.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    memory: Vec<u8>,
    /// Bytes to show.
    length: usize,
}

impl ReadBuffer {
    /// Returns room for `length` bytes.
    pub(super) fn new(length: usize) -> Self {
        let unused = (length == SIZE).then(take_unused).flatten();
        Self {
            memory: unused.unwrap_or_else(|| vec![0; length]),
            length,
        }
    }

    /// The room to read into.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Returns the first `length` bytes. The memory is used again when all handles to them are gone.
    pub(super) fn freeze(mut self, length: usize) -> Bytes {
        if self.memory.len() != SIZE {
            let mut memory = std::mem::take(&mut self.memory);
            memory.truncate(length);
            return memory.into();
        }
        self.length = length.min(SIZE);
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        self.memory.get(..self.length).unwrap_or_default()
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        if self.memory.len() == SIZE {
            let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
            if unused.len() < CAPACITY {
                unused.push(std::mem::take(&mut self.memory));
            }
        }
    }
}

fn take_unused() -> Option<Vec<u8>> {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_shows_only_what_was_read() {
        let mut first = ReadBuffer::new(SIZE);
        first.room().fill(1);
        let first = first.freeze(SIZE);
        let part = first.slice(SIZE - 2..);
        drop(first);
        assert_eq!(part[..], [1, 1]);
        drop(part);
        // Other tests may take it first.
        let mut again = ReadBuffer::new(SIZE);
        assert_eq!(again.room().len(), SIZE);
        again.room()[..3].copy_from_slice(&[7, 8, 9]);
        assert_eq!(again.freeze(3)[..], [7, 8, 9]);
    }

    #[test]
    fn small_buffers_have_the_size_asked_for_and_are_not_kept() {
        let small = ReadBuffer::new(10);
        assert_eq!(small.memory.capacity(), 10);
        assert_eq!(small.freeze(10).len(), 10);
        let all: Vec<ReadBuffer> = (0..CAPACITY * 2).map(|_| ReadBuffer::new(SIZE)).collect();
        drop(all);
        assert!(UNUSED.lock().unwrap().len() <= CAPACITY);
        assert!(UNUSED.lock().unwrap().iter().all(|one| one.len() == SIZE));
    }
}
