//! Removal of files left behind by servers that were killed.
//!
//! A server locks each file that it writes (`flock`) under a name of the form
//! `.clearway-upload.PROCESS.NUMBER`. The lock ends with the process: a file of such a name that is
//! not locked belongs to nobody any more, and is removed: in the whole directory when a server
//! starts, and in each directory before its first upload.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::root::{Lookup, LookupMode, Root};
use super::site_path::UPLOAD_PREFIX;

/// Maximum number of directories searched when a server starts: files in others are removed before
/// the first upload there.
const MOST_DIRECTORIES: usize = 100_000;

/// Removes leftover files anywhere below the directory, on its own thread, because large trees take
/// a while. Symbolic links are not followed.
pub(super) fn sweep(root: &Arc<Root>) {
    let root = root.clone();
    // Without a thread it happens before the first upload.
    let _ = std::thread::Builder::new()
        .name("leftovers".into())
        .spawn(move || sweep_all(&root));
}

fn sweep_all(root: &Root) {
    let mut left = vec![PathBuf::new()];
    for _ in 0..MOST_DIRECTORIES {
        let Some(path) = left.pop() else { return };
        // It is gone or unreadable: nobody uploads there either.
        let Ok(Lookup::Directory(directory)) = root.find(&path, LookupMode::MayBlock) else {
            continue;
        };
        let _ = tidy_up(&directory, |name| {
            if left.len() < MOST_DIRECTORIES {
                left.push(path.join(name));
            }
        });
    }
}

/// Removes leftover files in a directory; once, because it takes reading all names there.
pub(super) fn tidy_once(directory: &OwnedFd) {
    static TIDY: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
    let opened = directory.try_clone().map(File::from);
    let Ok(found) = opened.and_then(|opened| opened.metadata()) else {
        return;
    };
    let mut tidy = TIDY.lock().unwrap_or_else(PoisonError::into_inner);
    if tidy.insert((found.dev(), found.ino())) {
        drop(tidy);
        // The upload is more important.
        let _ = tidy_up(directory, |_| ());
    }
}

/// Removes leftover files in a directory, and returns its subdirectories.
fn tidy_up(directory: &OwnedFd, mut below: impl FnMut(&OsStr)) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_temporary(name.to_bytes()) {
            // An entry may be gone or belong to somebody else: continue.
            let _ = remove_left_behind(directory, name);
        } else if is_directory(directory, name, entry.file_type()) {
            below(OsStr::from_bytes(name.to_bytes()));
        }
    }
    Ok(())
}

fn is_directory(directory: &OwnedFd, name: &CStr, kind: FileType) -> bool {
    if matches!(name.to_bytes(), b"." | b"..") {
        return false;
    }
    if kind != FileType::Unknown {
        return kind == FileType::Directory;
    }
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Removes a file unless it is being written: each process locks what it writes.
fn remove_left_behind(directory: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    // Kept to the end: a server that creates a file and finds it locked uses another.
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let ours = fstat(&file)?;
    let there = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) {
        unlinkat(directory, name, AtFlags::empty())?;
    }
    Ok(())
}

/// Whether the name has the form that servers use; others may belong to somebody.
fn is_temporary(name: &[u8]) -> bool {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let numbers = name.strip_prefix(UPLOAD_PREFIX.as_bytes());
    let mut numbers = numbers.unwrap_or_default().splitn(2, |byte| *byte == b'.');
    let (process, upload) = (numbers.next(), numbers.next());
    process.is_some_and(digits) && upload.is_some_and(digits)
}
