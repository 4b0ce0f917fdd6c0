//! The key of Retry, address tokens and stateless resets, in a file.
//!
//! Anyone who has it can end any connection of the server, so the file must be private; if the key
//! changes with a restart, earlier clients wait until they time out.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::{Failure, Kind};

/// The key's length in bytes.
const LENGTH: usize = 32;

/// Reads the key from a file, which is created if it does not exist.
///
/// # Errors
/// If the file is not a valid key, or others may have read it.
pub(super) fn load(file: &Path) -> Result<[u8; LENGTH], Failure> {
    let failure = |error: Errno| {
        let what = format!("--secret: cannot use {}", file.display());
        Failure::caused(Kind::Arguments, what, &std::io::Error::from(error))
    };
    match open(file) {
        Err(Errno::NOENT) => create(file).map_err(failure)?,
        Err(Errno::LOOP) => {
            return Err(unfit(
                file,
                "it is a symbolic link; give the path of its target",
            ));
        }
        Err(error) => return Err(failure(error)),
        Ok(found) => return read(file, found),
    }
    // Two servers may start at the same time: both use what is there now.
    read(file, open(file).map_err(failure)?)
}

fn open(file: &Path) -> Result<File, Errno> {
    // Do not follow a symbolic link, which may change, and do not wait for a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(CWD, file, flags, Mode::empty()).map(File::from)
}

fn read(file: &Path, found: File) -> Result<[u8; LENGTH], Failure> {
    let metadata = found.metadata()?;
    if !metadata.is_file() {
        return Err(unfit(file, "it is not a regular file"));
    }
    let owner = metadata.uid();
    if owner != geteuid().as_raw() && owner != 0 {
        return Err(unfit(file, "it is owned by another user, who can read it"));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!(
            "it is accessible to other users (its mode is {mode:03o}); remove it to have a new one \
             created, or run chmod 600 if nobody has read it"
        );
        return Err(unfit(file, &why));
    }
    let mut key = Vec::with_capacity(LENGTH + 1);
    found.take(LENGTH as u64 + 1).read_to_end(&mut key)?;
    <[u8; LENGTH]>::try_from(key).map_err(|_| {
        let length = metadata.len();
        let why = format!(
            "expected a key of {LENGTH} bytes, found {length}; remove it to have a new one created"
        );
        unfit(file, &why)
    })
}

fn unfit(file: &Path, why: &str) -> Failure {
    let message = format!("--secret: cannot use {}: {why}", file.display());
    Failure::new(Kind::Arguments, message)
}

/// Creates a key under another name and renames it: nobody ever reads half of it.
fn create(file: &Path) -> Result<(), Errno> {
    let mut key = [0; LENGTH];
    // So few bytes are returned at once or not at all (getrandom(2)).
    getrandom(&mut key, GetRandomFlags::empty())?;
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut made: File = match openat(CWD, &temporary, flags, mode) {
        // Left behind by a process that died, with the same number.
        Err(Errno::EXIST) => {
            unlinkat(CWD, &temporary, AtFlags::empty())?;
            openat(CWD, &temporary, flags, mode)?
        }
        made => made?,
    }
    .into();
    let named = fill(&mut made, &key).and_then(|()| {
        match linkat(CWD, &temporary, CWD, file, AtFlags::empty()) {
            Err(Errno::EXIST) => Ok(()),
            linked => linked,
        }
    });
    unlinkat(CWD, &temporary, AtFlags::empty())?;
    named
}

fn fill(made: &mut File, key: &[u8]) -> Result<(), Errno> {
    let filled = made.write_all(key).and_then(|()| made.sync_all());
    filled.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
