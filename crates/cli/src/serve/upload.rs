//! Answers to PUT: a file that is there whole or not at all.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use clearway::http::Incoming;
use http::header::{CONTENT_RANGE, IF_NONE_MATCH};
use http::{Response, StatusCode, request};
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, flock, fstat, linkat, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;
use tokio::task::{JoinError, spawn_blocking};

use super::conditions::{Verdict, judge};
use super::content::Content;
use super::download::{status, status_of};
use super::log::Entry;
use super::place::{Place, UPLOAD_PREFIX};
use super::root::Root;
use super::validators::Validators;

/// How much of an upload is gathered for one change of threads.
const BATCH: usize = 256 << 10;

/// Why an upload is not stored.
enum Refusal {
    Status(StatusCode),
    System(Errno),
    /// The client broke off.
    BrokenOff,
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl From<JoinError> for Refusal {
    fn from(_: JoinError) -> Self {
        Self::Status(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Stores the body of a PUT.
pub(super) async fn upload(
    root: &Arc<Root>,
    request: &request::Parts,
    body: Incoming,
    entry: &mut Entry,
) -> Response<Content> {
    match store(root, request, body, entry).await {
        Ok(true) => empty(StatusCode::CREATED),
        Ok(false) => empty(StatusCode::NO_CONTENT),
        Err(Refusal::Status(refused)) => status(refused),
        Err(Refusal::System(Errno::ISDIR | Errno::NOTEMPTY)) => status(StatusCode::CONFLICT),
        Err(Refusal::System(error)) => status(status_of(error)),
        Err(Refusal::BrokenOff) => {
            entry.broken_off();
            status(StatusCode::BAD_REQUEST)
        }
    }
}

fn empty(status: StatusCode) -> Response<Content> {
    let mut response = Response::new(Content::nothing());
    *response.status_mut() = status;
    response
}

/// Stores it and answers whether there was nothing before.
async fn store(
    root: &Arc<Root>,
    request: &request::Parts,
    mut body: Incoming,
    entry: &mut Entry,
) -> Result<bool, Refusal> {
    // Half a file must not replace a whole one (RFC 9110 §14.5).
    if request.headers.contains_key(CONTENT_RANGE) {
        return Err(Refusal::Status(StatusCode::BAD_REQUEST));
    }
    let place = Place::of(request.uri.path()).ok_or(Refusal::Status(StatusCode::FORBIDDEN))?;
    if place.slash {
        return Err(Refusal::Status(StatusCode::CONFLICT));
    }
    let headers = request.headers.clone();
    let only_new = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .any(|value| value == "*");
    let root = root.clone();
    let begin = move || {
        let current = root.stat(&place.path).ok();
        let current = current.map(|stat| Validators::of(&stat, SystemTime::now()));
        match judge(&headers, current.as_ref(), false) {
            Verdict::Proceed => Half::begin(&root, &place).map_err(Refusal::System),
            Verdict::NotModified | Verdict::Failed => {
                Err(Refusal::Status(StatusCode::PRECONDITION_FAILED))
            }
        }
    };
    let mut writing = spawn_blocking(begin);
    let mut batch: Vec<Bytes> = Vec::new();
    let mut gathered = 0;
    while let Some(piece) = body.chunk().await.map_err(|_| Refusal::BrokenOff)? {
        entry.received(piece.len() as u64);
        gathered += piece.len();
        batch.push(piece);
        // While one batch is written, the next is gathered.
        if gathered >= BATCH {
            let half = writing.await??;
            let full = std::mem::take(&mut batch);
            writing = spawn_blocking(move || half.write(&full).map_err(Refusal::System));
            gathered = 0;
        }
    }
    let half = writing.await??;
    let finish = move || half.write(&batch)?.finish(only_new);
    spawn_blocking(finish).await?
}

/// A file under a name of its own until it is whole; gone if it never is.
struct Half {
    /// Locked: somebody is at it.
    file: File,
    directory: OwnedFd,
    /// Where it is; `None` once that name is gone.
    temporary: Option<OsString>,
    name: OsString,
}

impl Half {
    fn begin(root: &Root, place: &Place) -> Result<Self, Errno> {
        let name = place.path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let directory = root.parent(&place.path)?;
        tidy_once(&directory);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        loop {
            let temporary = temporary_name();
            let opened = openat(&directory, &temporary, flags | OFlags::NOFOLLOW, mode);
            // Left behind by a server that was killed.
            if matches!(opened, Err(Errno::EXIST)) {
                continue;
            }
            let half = Self {
                file: opened?.into(),
                directory: directory.try_clone().map_err(|error| errno(&error))?,
                temporary: Some(temporary),
                name: name.clone(),
            };
            if half.claim()? {
                return Ok(half);
            }
        }
    }

    /// Marks it as in use, so that nobody takes it for left behind; answers
    /// whether nobody did before.
    fn claim(&self) -> Result<bool, Errno> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            // Without locks nobody can find it free either.
            Err(_) => Ok(true),
            Ok(()) => Ok(fstat(&self.file)?.st_nlink > 0),
        }
    }

    fn write(mut self, batch: &[Bytes]) -> Result<Self, Errno> {
        for piece in batch {
            self.file.write_all(piece).map_err(|error| errno(&error))?;
        }
        Ok(self)
    }

    /// Gives it its name, and answers whether nothing else had that name.
    fn finish(mut self, only_new: bool) -> Result<bool, Refusal> {
        let Some(temporary) = self.temporary.take() else {
            return Ok(false);
        };
        let at = &self.directory;
        // A second name can be given only if nothing has it: no upload at the
        // same time is overwritten unknowingly.
        let linked = linkat(at, &temporary, at, &self.name, AtFlags::empty());
        let done = match linked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if only_new => Err(Refusal::Status(StatusCode::PRECONDITION_FAILED)),
            Err(error) => {
                let renamed = renameat(at, &temporary, at, &self.name);
                // Some file systems have no second names.
                renamed
                    .map(|()| error != Errno::EXIST)
                    .map_err(Refusal::System)
            }
        };
        // Renaming leaves no such name.
        let _ = unlinkat(at, &temporary, AtFlags::empty());
        done
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = unlinkat(&self.directory, temporary, AtFlags::empty());
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Removes what servers that were killed left in a directory; once, since it
/// takes looking at all names there.
fn tidy_once(directory: &OwnedFd) {
    static TIDY: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
    let opened = directory.try_clone().map(File::from);
    let Ok(found) = opened.and_then(|opened| opened.metadata()) else {
        return;
    };
    let mut tidy = TIDY.lock().unwrap_or_else(PoisonError::into_inner);
    if tidy.insert((found.dev(), found.ino())) {
        drop(tidy);
        // The upload matters more.
        let _ = tidy_up(directory);
    }
}

fn tidy_up(directory: &OwnedFd) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_temporary(name.to_bytes()) {
            // The next may be gone or somebody else's: no reason to stop.
            let _ = remove_left_behind(directory, name);
        }
    }
    Ok(())
}

/// Removes a file unless somebody is writing it: each process locks what it
/// writes.
fn remove_left_behind(directory: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    // Kept to the end: who makes a file and finds it locked takes another.
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let ours = fstat(&file)?;
    let there = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) {
        unlinkat(directory, name, AtFlags::empty())?;
    }
    Ok(())
}

/// Whether [`temporary_name`] makes such names; others may be somebody's.
fn is_temporary(name: &[u8]) -> bool {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let numbers = name.strip_prefix(UPLOAD_PREFIX.as_bytes());
    let mut numbers = numbers.unwrap_or_default().splitn(2, |byte| *byte == b'.');
    let (process, upload) = (numbers.next(), numbers.next());
    process.is_some_and(digits) && upload.is_some_and(digits)
}

/// A name no other upload of this process has.
fn temporary_name() -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    format!("{UPLOAD_PREFIX}{}.{number}", std::process::id()).into()
}
