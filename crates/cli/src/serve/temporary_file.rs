//! Files that are not complete yet.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::StatusCode;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, fchmod, flock, fstat, fsync,
    linkat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::leftovers::tidy_once;
use super::limits::{Client, Permit};
use super::root::Root;
use super::site_path::{SitePath, UPLOAD_PREFIX};
use super::upload::Refusal;

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o777;

/// A file under a temporary name until it is complete; removed when dropped before.
pub(super) struct TemporaryFile {
    /// Locked, which shows that it is in use.
    file: File,
    directory: OwnedFd,
    /// Its path; `None` once that name is gone.
    temporary: Option<OsString>,
    name: OsString,
    /// The mode of a new file.
    new_mode: Mode,
    /// The mode that it has now.
    mode: Mode,
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
        let mut half = Self {
            file: file.into(),
            directory,
            temporary: Some(temporary),
            name: name.to_owned(),
            new_mode: mode,
            mode,
            _permit: permit,
        };
        half.claim()?;
        // As the umask allows.
        half.new_mode = permissions(fstat(&half.file)?.st_mode);
        half.mode = half.new_mode;
        // From the first byte on, nobody may read it who must not read it later.
        half.take_mode()?;
        Ok(half)
    }

    /// Takes the mode of the file that it will replace, or that of a new file.
    fn take_mode(&mut self) -> Result<(), Errno> {
        let mode = match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                permissions(stat.st_mode)
            }
            Ok(_) | Err(Errno::NOENT) => self.new_mode,
            Err(error) => return Err(error),
        };
        if mode != self.mode {
            fchmod(&self.file, mode)?;
            self.mode = mode;
        }
        Ok(())
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

    /// Gives it its final name, unless `check` forbids that, and returns whether the name was free.
    /// When it returns, file and name are on the disk. Uploads are checked and named one after the
    /// other, so that of two with the same condition only one succeeds. Blocks.
    ///
    /// # Errors
    /// That of `check`; if it cannot be written to the disk or named.
    pub(super) fn finish(
        mut self,
        only_new: bool,
        check: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<bool, Refusal> {
        /// One for all directories: what is done under it takes microseconds.
        static NAMING: Mutex<()> = Mutex::new(());
        // Data before the name: a crash must not leave an empty file in place of a whole one.
        fsync(&self.file)?;
        let was_free = {
            let _naming = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
            check()?;
            self.take_mode()?;
            self.publish(only_new)?
        };
        match fsync(&self.directory) {
            // Some file systems write names at once and cannot be asked to.
            Ok(()) | Err(Errno::INVAL) => Ok(was_free),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives it its final name.
    fn publish(&mut self, only_new: bool) -> Result<bool, Refusal> {
        let Some(temporary) = &self.temporary else {
            return Ok(false);
        };
        let (at, name) = (&self.directory, &self.name);
        // A hard link is created only if the name is free: no simultaneous upload, and no file of
        // somebody else, is overwritten unknowingly.
        let free = match linkat(at, temporary, at, name, AtFlags::empty()) {
            // The temporary name is removed with this value.
            Ok(()) => return Ok(true),
            // Some file systems have no hard links.
            Err(error) if error != Errno::EXIST => {
                renameat_with(at, temporary, at, name, RenameFlags::NOREPLACE)
            }
            taken => taken,
        };
        match free {
            Ok(()) => {
                self.temporary = None;
                return Ok(true);
            }
            Err(Errno::EXIST) if only_new => {
                return Err(Refusal::Status(StatusCode::PRECONDITION_FAILED));
            }
            // This file system cannot do it without replacing a file.
            Err(Errno::INVAL | Errno::NOSYS) if only_new => {
                return Err(Refusal::Status(StatusCode::NOT_IMPLEMENTED));
            }
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        let was_free = statat(at, name, AtFlags::SYMLINK_NOFOLLOW).is_err();
        renameat(at, temporary, at, name)?;
        self.temporary = None;
        Ok(was_free)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = unlinkat(&self.directory, temporary, AtFlags::empty());
        }
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & PERMISSIONS)
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
