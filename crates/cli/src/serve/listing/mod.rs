//! Listings of directories without an index.
//!
//! The [`names`] are read once and shared by all clients that list the same directory at the same
//! time ([`snapshots`]); the [`page`] is generated chunk by chunk, as its client takes it, so that
//! a listing in progress costs one chunk of a page.

mod names;
pub(super) mod page;
mod snapshots;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use rustix::fs::fstat;
use rustix::io::Errno;

use self::names::{ListingError, Names, Version};
pub(super) use self::snapshots::Snapshots;
use super::limits::{BufferCharge, CancelFlag};
use super::pieces::{Shared, UnsentPieces};
use super::root::{Lookup, LookupMode, Root};
use super::site::SiteState;

/// Size of a chunk in bytes, unless memory is short; one more line may follow.
const BIT: u64 = 32 << 10;

/// Maximum number of entries examined for one chunk, so that a directory full of hidden names does
/// not occupy a thread for long.
const LOOKS: usize = 512;

/// A page that is being sent.
pub(crate) struct Listing {
    under_way: Arc<ListingState>,
    shared: Shared,
    /// Generated and not yet handed out.
    ready: Option<(Bytes, BufferCharge)>,
    making: Option<ChunkFuture>,
    /// The next name.
    next: usize,
    over: bool,
    unsent: UnsentPieces,
}

struct ListingState {
    served: Arc<SiteState>,
    path: PathBuf,
    names: Arc<Names>,
}

type ChunkFuture = Pin<Box<dyn Future<Output = io::Result<PageChunk>> + Send + Sync>>;

/// A chunk of a page, and the index of the name after it.
struct PageChunk {
    text: Bytes,
    next: usize,
    charge: BufferCharge,
}

/// The start of a listing.
pub(super) enum ListingStart {
    /// The complete page.
    Whole(Bytes),
    Listing(Box<Listing>),
}

/// Starts to list the directory at `path`, which is read when it is this client's turn.
///
/// # Errors
/// If it cannot be read, or (`EAGAIN`) there is no memory for it at the moment.
pub(super) async fn begin(
    served: &Arc<SiteState>,
    shared: &Shared,
    path: PathBuf,
) -> Result<ListingStart, Errno> {
    let client = shared.client;
    let names = {
        // One client reads it; those that waited for it find it in the cache.
        let _reading = served.resources.readings.acquire(client).await;
        let (served, path) = (served.clone(), path.clone());
        let read = move |abandoned: &CancelFlag| read(&served, &path, abandoned);
        let read = shared.disk.run(client, read).await;
        match read.map_err(|_| Errno::IO)? {
            Ok(names) => names,
            Err(ListingError::System(error)) => return Err(error),
            Err(ListingError::Busy | ListingError::CancelFlag) => return Err(Errno::AGAIN),
        }
    };
    let under_way = Arc::new(ListingState {
        served: served.clone(),
        path,
        names,
    });
    let first = make(under_way.clone(), shared.clone(), 0).await;
    let first = first.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if first.next >= under_way.names.len() {
        return Ok(ListingStart::Whole(first.charge.attach(first.text)));
    }
    Ok(ListingStart::Listing(Box::new(Listing {
        under_way,
        shared: shared.clone(),
        ready: Some((first.text, first.charge)),
        making: None,
        next: first.next,
        over: false,
        unsent: UnsentPieces::default(),
    })))
}

/// The names in a directory, from the cache or read now. Blocks.
fn read(
    served: &SiteState,
    path: &Path,
    abandoned: &CancelFlag,
) -> Result<Arc<Names>, ListingError> {
    if abandoned.get() {
        return Err(ListingError::CancelFlag);
    }
    let directory = open(&served.root, path)?;
    let version = Version::of(&fstat(&directory)?, SystemTime::now());
    let known = version.and_then(|version| served.snapshots.find(version));
    if let Some(names) = known {
        return Ok(names);
    }
    let memory = &served.resources.names;
    let names = match Names::read(&directory, memory, served.hidden, abandoned) {
        Err(ListingError::Busy) => {
            served.snapshots.clear();
            Names::read(&directory, memory, served.hidden, abandoned)?
        }
        read => read?,
    };
    let names = Arc::new(names);
    if let Some(version) = version {
        served.snapshots.keep(version, names.clone());
    }
    Ok(names)
}

fn open(root: &Root, path: &Path) -> Result<OwnedFd, Errno> {
    match root.find(path, LookupMode::MayBlock)? {
        Lookup::Directory(directory) => Ok(directory),
        Lookup::File(..) => Err(Errno::NOTDIR),
    }
}

/// Generates the chunk that begins with this name.
async fn make(under_way: Arc<ListingState>, shared: Shared, first: usize) -> io::Result<PageChunk> {
    let Shared {
        client,
        disk,
        buffers,
    } = shared;
    let make = move |abandoned: &CancelFlag| {
        let ListingState {
            served,
            path,
            names,
        } = &*under_way;
        let directory = open(&served.root, path)?;
        let enough = BIT.min(buffers.piece(client));
        let mut text = String::new();
        if first == 0 {
            page::begin(&mut text, path);
        }
        let mut next = first;
        for name in names.from(first).take(LOOKS) {
            if abandoned.get() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if text.len() as u64 >= enough {
                break;
            }
            next += 1;
            if let Some(size) = page::size(&served.root, &directory, path, name) {
                page::line(&mut text, name, size);
            }
        }
        if next >= names.len() {
            page::end(&mut text, names.more.then_some(names.len()));
        }
        Ok(PageChunk {
            charge: buffers.charge(client, text.len() as u64),
            text: text.into(),
            next,
        })
    };
    disk.try_run(client, make).await
}

impl Listing {
    /// Whether everything was handed out.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// The next chunk of the page; `None` after the last.
    ///
    /// # Errors
    /// If the directory is gone.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some((text, charge)) = self.ready.take() {
            self.unsent.push(Some(charge));
            return Poll::Ready(Some(Ok(text)));
        }
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            let mut making = self.making.take().unwrap_or_else(|| {
                let (under_way, shared) = (self.under_way.clone(), self.shared.clone());
                Box::pin(make(under_way, shared, self.next))
            });
            let Poll::Ready(made) = making.as_mut().poll(cx) else {
                self.making = Some(making);
                return Poll::Pending;
            };
            let bit = match made {
                Ok(bit) => bit,
                Err(error) => {
                    self.over = true;
                    return Poll::Ready(Some(Err(error)));
                }
            };
            self.next = bit.next;
            self.over = self.next >= self.under_way.names.len();
            // None of these names may be shown.
            if bit.text.is_empty() {
                continue;
            }
            if self.over {
                return Poll::Ready(Some(Ok(bit.charge.attach(bit.text))));
            }
            self.unsent.push(Some(bit.charge));
            return Poll::Ready(Some(Ok(bit.text)));
        }
    }
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing")
            .field("path", &self.under_way.path)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
