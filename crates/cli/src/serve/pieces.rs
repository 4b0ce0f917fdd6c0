//! A file read piece by piece, away from the event loop.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::task::JoinHandle;

/// How much is read at once: large enough that changing threads for it costs
/// little, small enough for thousands of downloads at a time.
const PIECE: u64 = 256 << 10;

/// A part of a file. While one piece is being sent, the next is read.
#[derive(Debug)]
pub(crate) struct Pieces {
    file: Arc<File>,
    /// Of the next piece to read.
    offset: u64,
    /// Bytes to read from there.
    unread: u64,
    /// Bytes not handed out yet.
    left: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Pieces {
    /// The `length` bytes from `offset`.
    pub(crate) fn new(file: File, offset: u64, length: u64) -> Self {
        Self {
            file: Arc::new(file),
            offset,
            unread: length,
            left: length,
            reading: None,
        }
    }

    /// Bytes to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The next piece; `None` after the last.
    ///
    /// # Errors
    /// If the file cannot be read or has become shorter.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let mut reading = self.reading.take().unwrap_or_else(|| self.read_on());
        let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
            self.reading = Some(reading);
            return Poll::Pending;
        };
        let piece = match read.map_err(io::Error::other).and_then(|read| read) {
            Ok(piece) => piece,
            Err(error) => {
                self.left = 0;
                return Poll::Ready(Some(Err(error)));
            }
        };
        self.left -= piece.len() as u64;
        if self.unread > 0 {
            self.reading = Some(self.read_on());
        }
        Poll::Ready(Some(Ok(piece)))
    }

    fn read_on(&mut self) -> JoinHandle<io::Result<Bytes>> {
        let (file, offset) = (self.file.clone(), self.offset);
        let length = self.unread.min(PIECE);
        self.offset += length;
        self.unread -= length;
        tokio::task::spawn_blocking(move || read_exactly(&file, offset, length as usize))
    }
}

/// So many bytes from there.
///
/// # Errors
/// If there are fewer.
pub(super) fn read_exactly(file: &File, mut offset: u64, length: usize) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(length);
    while piece.len() < length {
        let room = rustix::buffer::spare_capacity(&mut piece);
        match rustix::io::pread(file, room, offset) {
            Ok(0) => {
                let why = "the file has become shorter";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            Ok(count) => offset += count as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may have given more room than was asked for.
    piece.truncate(length);
    Ok(piece.into())
}
