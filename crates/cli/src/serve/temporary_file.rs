//! Files that are not complete yet.

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
use super::root::Root;
use super::site_path::{SitePath, UPLOAD_PREFIX};
use super::upload::Refusal;

/// A file under a temporary name until it is complete; removed when dropped before.
pub(super) struct TemporaryFile {
    /// Locked, which shows that it is in use.
    file: File,
    directory: OwnedFd,
    /// Its path; `None` once that name is gone.
    temporary: Option<OsString>,
    name: OsString,
    /// The permit for a file that is being uploaded.
    _permit: Permit<Client>,
}

impl TemporaryFile {
    /// Creates a file for an upload to `place`. Blocks.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn begin(
        root: &Root,
        place: &SitePath,
        permit: Permit<Client>,
    ) -> Result<Self, Errno> {
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
        // From here on the file is removed with this value, whatever fails.
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

    /// Marks it as in use, so that it is not taken for a leftover.
    fn claim(&self) -> Result<(), Errno> {
        // Another server may be checking at this moment whether it is a leftover; then it is
        // removed, and this upload fails: both servers started within microseconds.
        match flock(&self.file, FlockOperation::LockExclusive) {
            // Without locks nobody can find it unlocked either.
            Err(_) => Ok(()),
            Ok(()) if fstat(&self.file)?.st_nlink > 0 => Ok(()),
            Ok(()) => Err(Errno::AGAIN),
        }
    }

    /// Appends data. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(mut self, batch: &[Bytes]) -> Result<Self, Errno> {
        for piece in batch {
            self.file.write_all(piece).map_err(|error| errno(&error))?;
        }
        Ok(self)
    }

    /// Renames it to its final name, and returns whether that name was free. Blocks.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub(super) fn finish(mut self, only_new: bool) -> Result<bool, Refusal> {
        let Some(temporary) = self.temporary.take() else {
            return Ok(false);
        };
        let at = &self.directory;
        // A hard link is created only if the name is free: no simultaneous upload is overwritten
        // unknowingly.
        let linked = linkat(at, &temporary, at, &self.name, AtFlags::empty());
        let done = match linked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if only_new => Err(Refusal::Status(StatusCode::PRECONDITION_FAILED)),
            Err(error) => {
                let renamed = renameat(at, &temporary, at, &self.name);
                // Some file systems have no hard links.
                renamed
                    .map(|()| error != Errno::EXIST)
                    .map_err(Refusal::System)
            }
        };
        // Renaming leaves no temporary name.
        let _ = unlinkat(at, &temporary, AtFlags::empty());
        done
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = unlinkat(&self.directory, temporary, AtFlags::empty());
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A name that no other upload of this process has.
fn temporary_name() -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    format!("{UPLOAD_PREFIX}{}.{number}", std::process::id()).into()
}
