//! A file that is read forwards, with the offset.

use std::io::{self, Read};

/// Bytes that are read at once into a growing buffer, so that a length that lies costs no memory.
const STEP: usize = 1 << 16;

/// An input and how much of it has been read.
#[derive(Debug)]
pub(super) struct Input<R> {
    inner: R,
    offset: u64,
}

impl<R: Read> Input<R> {
    pub(super) const fn new(inner: R) -> Self {
        Self { inner, offset: 0 }
    }

    /// Bytes read so far.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads `len` bytes into `into`, which is emptied first; fewer at the end of the file.
    pub(super) fn read(&mut self, len: usize, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        while into.len() < len {
            let missing = len.saturating_sub(into.len()).min(STEP);
            let limit = u64::try_from(missing).unwrap_or(u64::MAX);
            let read = self.inner.by_ref().take(limit).read_to_end(into)?;
            self.offset = self
                .offset
                .saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
            if read == 0 {
                break;
            }
        }
        Ok(())
    }
}
