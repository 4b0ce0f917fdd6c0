//! Directories without an index.
//!
//! The [`names`] are read once and shared by all who list the same directory at the
//! same time ([`snapshots`]); the [`page`] is made of them bit by bit, as its client
//! takes it, so that a listing under way costs one bit of a page.

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

use self::names::{Names, Unlisted, Version};
pub(super) use self::snapshots::Snapshots;
use super::limits::{Abandoned, Charge};
use super::pieces::{Shared, Unsent};
use super::root::{Found, Patience, Root};
use super::site::Served;

/// How much of a page is made at once, in bytes, unless memory is short; and then
/// one more line.
const BIT: u64 = 32 << 10;

/// Most entries looked at for one bit of a page, so that no thread is kept for long
/// by names of which none may be shown.
const LOOKS: usize = 512;

/// A page on its way.
pub(crate) struct Listing {
    under_way: Arc<UnderWay>,
    shared: Shared,
    /// What is made already and not yet handed out.
    ready: Option<(Bytes, Charge)>,
    making: Option<Making>,
    /// The next name.
    next: usize,
    over: bool,
    unsent: Unsent,
}

struct UnderWay {
    served: Arc<Served>,
    path: PathBuf,
    names: Arc<Names>,
}

type Making = Pin<Box<dyn Future<Output = io::Result<Bit>> + Send + Sync>>;

/// A piece of a page, and the name after it.
struct Bit {
    text: Bytes,
    next: usize,
    charge: Charge,
}

/// How a listing begins.
pub(super) enum Begun {
    /// All of the page.
    Whole(Bytes),
    Listing(Box<Listing>),
}

/// Begins to list the directory at `path`, which is read when it is this client's
/// turn.
///
/// # Errors
/// If it cannot be read, or (`EAGAIN`) there is no memory for it now.
pub(super) async fn begin(
    served: &Arc<Served>,
    shared: &Shared,
    path: PathBuf,
) -> Result<Begun, Errno> {
    let client = shared.client;
    let names = {
        // One reads it, and who waited for that finds it read.
        let _reading = served.resources.readings.acquire(client).await;
        let (served, path) = (served.clone(), path.clone());
        let read = move |abandoned: &Abandoned| read(&served, &path, abandoned);
        let read = shared.disk.run(client, read).await;
        match read.map_err(|_| Errno::IO)? {
            Ok(names) => names,
            Err(Unlisted::System(error)) => return Err(error),
            Err(Unlisted::Busy | Unlisted::Abandoned) => return Err(Errno::AGAIN),
        }
    };
    let under_way = Arc::new(UnderWay {
        served: served.clone(),
        path,
        names,
    });
    let first = make(under_way.clone(), shared.clone(), 0).await;
    let first = first.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if first.next >= under_way.names.len() {
        return Ok(Begun::Whole(first.charge.attach(first.text)));
    }
    Ok(Begun::Listing(Box::new(Listing {
        under_way,
        shared: shared.clone(),
        ready: Some((first.text, first.charge)),
        making: None,
        next: first.next,
        over: false,
        unsent: Unsent::default(),
    })))
}

/// The names in a directory, read now unless they are known. Blocks.
fn read(served: &Served, path: &Path, abandoned: &Abandoned) -> Result<Arc<Names>, Unlisted> {
    if abandoned.get() {
        return Err(Unlisted::Abandoned);
    }
    let directory = open(&served.root, path)?;
    let version = Version::of(&fstat(&directory)?, SystemTime::now());
    let known = version.and_then(|version| served.snapshots.find(version));
    if let Some(names) = known {
        return Ok(names);
    }
    let memory = &served.resources.names;
    let names = match Names::read(&directory, memory, abandoned) {
        Err(Unlisted::Busy) => {
            served.snapshots.clear();
            Names::read(&directory, memory, abandoned)?
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
    match root.find(path, Patience::ForDisk)? {
        Found::Directory(directory) => Ok(directory),
        Found::File(..) => Err(Errno::NOTDIR),
    }
}

/// Makes the bit of the page that begins with this name.
async fn make(under_way: Arc<UnderWay>, shared: Shared, first: usize) -> io::Result<Bit> {
    let Shared {
        client,
        disk,
        buffers,
    } = shared;
    let make = move |abandoned: &Abandoned| {
        let UnderWay {
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
        Ok(Bit {
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

    /// The next bit of the page; `None` after the last.
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
            // None of these names could be shown.
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
