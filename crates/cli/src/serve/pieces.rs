//! Reading a file piece by piece, away from the event loop.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::task::{JoinError, spawn_blocking};

use super::limits::{BufferCharge, Buffers, CancelFlag, Client, Disk, LARGEST_PIECE, Permit};
use super::read_buffer::ReadBuffer;
use super::root::{LookupMode, ReopenedFile};

/// A part of a file. While one piece is sent, the next is read, if there is memory for it.
pub(crate) struct Pieces {
    access: Access,
    /// Shared resources and the client; `None` without other clients.
    shared: Option<Shared>,
    /// Offset of the next byte to hand out.
    offset: u64,
    /// Bytes left.
    left: u64,
    reading: Option<Reading>,
    /// Whether part of the file is not cached by the kernel, so that it is read on threads that may
    /// block.
    cold: bool,
    unsent: UnsentPieces,
}

/// The account of the last two pieces handed out: one waits in HTTP/3 for the transport, and one to
/// get there. When another is requested, the first has gone to the transport, whose buffers are
/// bounded.
#[derive(Debug, Default)]
pub(super) struct UnsentPieces([Option<BufferCharge>; 2]);

impl UnsentPieces {
    pub(super) fn push(&mut self, charge: Option<BufferCharge>) {
        let Self([older, newer]) = self;
        *older = std::mem::replace(newer, charge);
    }
}

/// What downloads share, and the client of this one.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) disk: Arc<Disk>,
    pub(super) buffers: Arc<Buffers>,
}

/// How the file is accessed.
#[derive(Clone, Debug)]
enum Access {
    /// Open all the time.
    Open(Arc<OpenFile>),
    /// Opened for each piece: a client that waits uses no descriptor.
    Again(Arc<ReopenedFile>),
}

/// An open file, and the permit to keep it open, where one is needed.
#[derive(Debug)]
struct OpenFile {
    file: File,
    _permit: Option<Permit<Client>>,
}

/// The data read, and its charge.
type Piece = (Bytes, Option<BufferCharge>);

type Reading = Pin<Box<dyn Future<Output = io::Result<Piece>> + Send + Sync>>;

impl Pieces {
    /// The first `length` bytes of a file without other clients.
    pub(crate) fn of_file(file: File, length: u64) -> Self {
        let kept = OpenFile {
            file,
            _permit: None,
        };
        Self::new(Access::Open(Arc::new(kept)), None, 0, length)
    }

    /// The `length` bytes from `offset` of a file that stays open.
    pub(super) fn kept(
        (file, permit): (File, Permit<Client>),
        shared: Shared,
        offset: u64,
        length: u64,
    ) -> Self {
        let kept = OpenFile {
            file,
            _permit: Some(permit),
        };
        Self::new(Access::Open(Arc::new(kept)), Some(shared), offset, length)
    }

    /// The same for a file that is opened for each piece. It fails if the file is replaced in the
    /// meantime.
    pub(super) fn reopened(file: ReopenedFile, shared: Shared, offset: u64, length: u64) -> Self {
        Self::new(Access::Again(Arc::new(file)), Some(shared), offset, length)
    }

    fn new(access: Access, shared: Option<Shared>, offset: u64, length: u64) -> Self {
        Self {
            access,
            shared,
            offset,
            left: length,
            reading: None,
            cold: false,
            unsent: UnsentPieces::default(),
        }
    }

    /// Bytes left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The next piece; `None` after the last.
    ///
    /// # Errors
    /// If the file cannot be read, has shrunk, or was replaced.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let (piece, charge) = match self.read_cached() {
            Some(piece) => piece,
            None => {
                let mut reading = self.reading.take().unwrap_or_else(|| self.read_on());
                let Poll::Ready(read) = reading.as_mut().poll(cx) else {
                    self.reading = Some(reading);
                    return Poll::Pending;
                };
                match read {
                    Ok(read) => read,
                    Err(error) => {
                        self.left = 0;
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
        };
        self.offset += piece.len() as u64;
        self.left -= piece.len() as u64;
        let piece = match charge {
            // There is no request after the last piece: it stays on the account until the client
            // has it.
            Some(charge) if self.left == 0 => charge.attach(piece),
            charge => {
                self.unsent.push(charge);
                piece
            }
        };
        if self.cold {
            self.read_ahead();
        }
        Poll::Ready(Some(Ok(piece)))
    }

    /// The next piece, or the beginning of it, if the kernel has it cached: reading it is then only
    /// a copy, and cheaper than a thread switch.
    fn read_cached(&mut self) -> Option<Piece> {
        if self.cold {
            return None;
        }
        let shared = self.shared.as_ref();
        let most = shared.map_or(LARGEST_PIECE, |shared| shared.buffers.piece(shared.client));
        // No piece is larger than `LARGEST_PIECE`.
        let piece = self
            .access
            .read_cached(self.offset, self.left.min(most) as usize);
        self.cold = piece.is_none();
        let piece = piece?;
        let charge = |shared: &Shared| shared.buffers.charge(shared.client, piece.len() as u64);
        let charge = shared.map(charge);
        Some((piece, charge))
    }

    /// Starts to read the next piece while this one is sent, if there is memory for it and nobody
    /// waits for the disk. Reading ahead never waits: a client that does not take this piece would
    /// delay others.
    fn read_ahead(&mut self) {
        if self.left == 0 {
            return;
        }
        let Some(shared) = &self.shared else {
            let read = self.next();
            let reading = spawn_blocking(move || read.run(&CancelFlag::default()));
            self.reading = Some(Box::pin(flatten(reading)));
            return;
        };
        if !shared.buffers.is_ample(shared.client) {
            return;
        }
        let read = self.next();
        let reading = shared
            .disk
            .try_begin(shared.client, move |abandoned| read.run(abandoned));
        self.reading = reading.map(|reading| -> Reading { Box::pin(flatten(reading.result())) });
    }

    /// Reads the next piece, when it is this client's turn.
    fn read_on(&self) -> Reading {
        let read = self.next();
        match self.shared.clone() {
            Some(Shared { client, disk, .. }) => {
                let work = move |abandoned: &CancelFlag| read.run(abandoned);
                Box::pin(flatten(async move { disk.run(client, work).await }))
            }
            None => {
                let reading = spawn_blocking(move || read.run(&CancelFlag::default()));
                Box::pin(flatten(reading))
            }
        }
    }

    /// The next piece to read.
    fn next(&self) -> Read {
        let shared = self.shared.as_ref();
        Read {
            access: self.access.clone(),
            account: shared.map(|shared| (shared.buffers.clone(), shared.client)),
            offset: self.offset,
            left: self.left,
        }
    }
}

/// A piece to read.
struct Read {
    access: Access,
    account: Option<(Arc<Buffers>, Client)>,
    offset: u64,
    left: u64,
}

impl Read {
    /// Reads it. Blocks.
    fn run(self, abandoned: &CancelFlag) -> io::Result<Piece> {
        // The client went away while it waited for its turn.
        if abandoned.get() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        // Only once there is a thread for it: many may wait for one, and need to know of each
        // other.
        let account = self.account.as_ref();
        let most = account.map_or(LARGEST_PIECE, |(buffers, client)| buffers.piece(*client));
        let length = self.left.min(most);
        let charge = account.map(|(buffers, client)| buffers.charge(*client, length));
        Ok((self.access.read(self.offset, length)?, charge))
    }
}

async fn flatten(
    reading: impl Future<Output = Result<io::Result<Piece>, JoinError>>,
) -> io::Result<Piece> {
    reading.await.map_err(io::Error::other)?
}

impl Access {
    /// See [`read_cached`]. What else is wrong with a file that is opened again, reading it finds out.
    fn read_cached(&self, offset: u64, length: usize) -> Option<Bytes> {
        match self {
            Self::Open(kept) => read_cached(&kept.file, offset, length),
            Self::Again(reopen) => {
                let file = reopen.open(LookupMode::CachedOnly).ok()?;
                read_cached(&file, offset, length)
            }
        }
    }

    fn read(&self, offset: u64, length: u64) -> io::Result<Bytes> {
        // A piece is no larger than `LARGEST_PIECE`.
        let length = usize::try_from(length).map_err(io::Error::other)?;
        match self {
            Self::Open(kept) => read_exactly(&kept.file, offset, length),
            Self::Again(reopen) => {
                read_exactly(&reopen.open(LookupMode::MayBlock)?, offset, length)
            }
        }
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces")
            .field("access", &self.access)
            .field("offset", &self.offset)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

/// Reads up to this many bytes from there that the kernel has cached; `None` if it has not even the
/// first, or cannot tell.
pub(super) fn read_cached(file: &File, offset: u64, length: usize) -> Option<Bytes> {
    #[cfg(target_os = "linux")]
    {
        use rustix::io::{ReadWriteFlags, preadv2};
        let mut buffer = ReadBuffer::new(length);
        let room = &mut [io::IoSliceMut::new(buffer.room())];
        let read = preadv2(file, room, offset, ReadWriteFlags::NOWAIT).unwrap_or(0);
        if read > 0 {
            return Some(buffer.freeze(read));
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, length);
    None
}

/// Reads this many bytes from there.
///
/// # Errors
/// If there are fewer.
pub(super) fn read_exactly(file: &File, mut offset: u64, length: usize) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(length);
    while piece.len() < length {
        let room = rustix::buffer::spare_capacity(&mut piece);
        match rustix::io::pread(file, room, offset) {
            Ok(0) => {
                let why = "the file shrank while it was being read";
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use clearway::MemoryAccount;

    use super::*;
    use crate::serve::root::{Lookup, Root};
    use crate::serve::test_dir::TestDir;

    /// There is no runtime here, so a thread switch would panic.
    #[test]
    fn file_without_a_permit_is_read_at_once_if_it_is_cached_and_not_if_it_was_replaced() {
        let dir = TestDir::new();
        let content = vec![7; LARGEST_PIECE as usize + 10];
        std::fs::write(dir.path().join("file"), &content).unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let Ok(Lookup::File(file, stat)) = root.find("file".as_ref(), LookupMode::CachedOnly)
        else {
            // A kernel that does not tell what it has cached.
            return;
        };
        if read_cached(&file, 0, 1).is_none() {
            return;
        }
        let shared = Shared {
            client: (0, None),
            disk: Arc::default(),
            buffers: Arc::new(Buffers::new(64 << 20, MemoryAccount::default())),
        };
        let file = ReopenedFile {
            root,
            path: "file".into(),
            stat,
        };
        let mut pieces = Pieces::reopened(file, shared, 0, content.len() as u64);
        let first = pieces.poll_next(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(Ok(first))) = first else {
            panic!("{first:?}");
        };
        assert_eq!(first[..], content[..LARGEST_PIECE as usize]);

        // Of the same size, so that only its identity tells.
        let other = dir.path().join("other");
        std::fs::write(&other, vec![8; content.len()]).unwrap();
        std::fs::rename(other, dir.path().join("file")).unwrap();
        assert_eq!(pieces.access.read_cached(LARGEST_PIECE, 10), None);
        assert!(pieces.access.read(LARGEST_PIECE, 10).is_err());
    }
}
