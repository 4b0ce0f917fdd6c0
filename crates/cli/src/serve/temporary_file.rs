//! A file that is not whole yet.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::StatusCode;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fstat, linkat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

use super::leftovers::tidy_once;
use super::limits::{Client, Permit};
use super::place::{Place, UPLOAD_PREFIX};
use super::root::Root;
use super::upload::Refusal;

/// A file under a name of its own until it is whole; gone if it never is.
pub(super) struct Half {
    /// Locked: somebody is at it.
    file: File,
    directory: OwnedFd,
    /// Where it is; `None` once that name is gone.
    temporary: Option<OsString>,
    name: OsString,
    /// Uploads with a file are counted.
    _permit: Permit<Client>,
}

impl Half {
    /// Makes a file for an upload to `place`. Blocks.
    ///
    /// # Errors
    /// If there cannot be one.
    pub(super) fn begin(root: &Root, place: &Place, permit: Permit<Client>) -> Result<Self, Errno> {
        let name = place.path.file_name().ok_or(Errno::ISDIR)?;
        let directory = root.parent(&place.path)?;
        tidy_once(&directory);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let (file, temporary) = loop {
            let temporary = temporary_name();
            match openat(&directory, &temporary, flags | OFlags::NOFOLLOW, mode) {
                // Left behind by a server that was killed.
                Err(Errno::EXIST) => {}
                opened => break (opened?, temporary),
            }
        };
        // From here on the file goes with this, whatever fails.
        let half = Self {
            file: file.into(),
            directory,
            temporary: Some(temporary),
            name: name.to_owned(),
            _permit: permit,
        };
        half.claim()?;
        Ok(half)
    }

    /// Marks it as in use, so that nobody takes it for left behind.
    fn claim(&self) -> Result<(), Errno> {
        // Another server may just be looking whether it was left behind; then it is
        // removed, and this upload fails: both servers began within microseconds.
        match flock(&self.file, FlockOperation::LockExclusive) {
            // Without locks nobody can find it free either.
            Err(_) => Ok(()),
            Ok(()) if fstat(&self.file)?.st_nlink > 0 => Ok(()),
            Ok(()) => Err(Errno::AGAIN),
        }
    }

    /// Adds to it. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(mut self, batch: &[Bytes]) -> Result<Self, Errno> {
        for piece in batch {
            self.file.write_all(piece).map_err(|error| errno(&error))?;
        }
        Ok(self)
    }

    /// Gives it its name, and answers whether nothing else had that name. Blocks.
    ///
    /// # Errors
    /// If it cannot have it.
    pub(super) fn finish(mut self, only_new: bool) -> Result<bool, Refusal> {
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

/// A name no other upload of this process has.
fn temporary_name() -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    format!("{UPLOAD_PREFIX}{}.{number}", std::process::id()).into()
}
