//! The directory that is served, and nothing but it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

/// A directory all opening starts from.
///
/// Opening resolves names in the kernel relative to this directory and fails
/// where they would leave it, `..` and symbolic links included, however the tree
/// changes meanwhile: no check comes before the use.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// What a name turned out to be.
#[derive(Debug)]
pub(super) enum Found {
    File(File, Stat),
    Directory(OwnedFd),
}

/// A file that is opened whenever it is read, as long as it is the same one.
#[derive(Debug)]
pub(super) struct Reopen {
    pub(super) root: Arc<Root>,
    pub(super) path: PathBuf,
    /// What it was.
    pub(super) stat: Stat,
}

/// Whether the file system may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all: what is not in the kernel's memory is [`Errno::AGAIN`].
    None,
    /// As long as it takes, on a thread that may block.
    ForDisk,
}

impl Reopen {
    /// Opens it. Blocks.
    ///
    /// # Errors
    /// If it cannot be opened, or was replaced or written to meanwhile: half of one
    /// and half of another is neither.
    pub(super) fn open(&self) -> io::Result<File> {
        let Found::File(file, stat) = self.root.find(&self.path, Patience::ForDisk)? else {
            return Err(Errno::ISDIR.into());
        };
        let identity = |stat: &Stat| {
            let id = (stat.st_dev, stat.st_ino, stat.st_size);
            (id, (stat.st_mtime, stat.st_mtime_nsec))
        };
        if identity(&stat) == identity(&self.stat) {
            return Ok(file);
        }
        Err(io::Error::other("the file has changed while it was sent"))
    }
}

impl Root {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it is none, or must not be read.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, dir, flags, Mode::empty())?))
    }

    /// Opens a file or a directory for reading.
    ///
    /// # Errors
    /// If there is nothing of either kind, or it is outside, or must not be
    /// read; or [`Errno::AGAIN`] if that cannot be known without waiting.
    pub(super) fn find(&self, path: &Path, patience: Patience) -> Result<Found, Errno> {
        // Opening a pipe must not wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = beneath(&self.0, path, flags, patience)?;
        let stat = fstat(&opened)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Found::File(opened.into(), stat)),
            FileType::Directory => Ok(Found::Directory(opened)),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(Errno::NOENT),
        }
    }

    /// Opens the directory in which `path` is, to put something there.
    ///
    /// # Errors
    /// If there is no such directory, or it is outside.
    pub(super) fn parent(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        beneath(&self.0, parent, flags, Patience::ForDisk)
    }

    /// What is at `path`, which is not opened for reading.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn stat(&self, path: &Path) -> Result<Stat, Errno> {
        fstat(beneath(&self.0, path, OFlags::PATH, Patience::ForDisk)?)
    }

    /// What an entry of the directory at `path` is: of a symbolic link what it leads
    /// to, if that is inside.
    ///
    /// # Errors
    /// If it is gone or leads outside.
    pub(super) fn stat_entry(
        &self,
        directory: &OwnedFd,
        path: &Path,
        name: &OsStr,
    ) -> Result<Stat, Errno> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return self.stat(&path.join(name));
        }
        Ok(stat)
    }
}

/// Opens `path` relative to `directory`, without leaving it.
fn beneath(
    directory: &OwnedFd,
    path: &Path,
    flags: OFlags,
    patience: Patience,
) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{ResolveFlags, openat2};
        let name = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        resolve.set(ResolveFlags::CACHED, patience == Patience::None);
        match openat2(
            directory,
            name,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            // A kernel before 5.6, or a sandbox that does not know the call.
            Err(Errno::NOSYS) => {}
            // A kernel before 5.12 does not know what "cached" means.
            Err(Errno::INVAL) if patience == Patience::None => return Err(Errno::AGAIN),
            opened => return opened,
        }
    }
    if patience == Patience::None {
        return Err(Errno::AGAIN);
    }
    step_by_step(directory, path, flags)
}

/// The same where the kernel does not help: name by name, following no symbolic
/// link at all.
fn step_by_step(directory: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names = path.components().peekable();
    if names.peek().is_none() {
        return openat(directory, ".", flags, Mode::empty());
    }
    let mut at: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else {
            return Err(Errno::XDEV);
        };
        let from = at.as_ref().unwrap_or(directory).as_fd();
        let flags = match names.peek() {
            Some(_) => OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            None => flags,
        };
        at = Some(openat(from, name, flags, Mode::empty())?);
    }
    at.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::serve::test_dir::TestDir;

    fn tree() -> TestDir {
        let dir = TestDir::new();
        fs::create_dir_all(dir.path().join("root/sub")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::write(dir.path().join("root/sub/file"), "content").unwrap();
        for (name, target) in [
            ("inside", "sub/file"),
            ("up", "../secret"),
            ("out", ".."),
            ("sub/back", "../sub/file"),
            ("loop", "loop"),
        ] {
            symlink(target, dir.path().join("root").join(name)).unwrap();
        }
        symlink("/etc", dir.path().join("root/etc")).unwrap();
        dir
    }

    fn content(found: Result<Found, Errno>) -> Option<String> {
        let Ok(Found::File(mut file, _)) = found else {
            return None;
        };
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn links_are_followed_inside_and_nowhere_else() {
        let dir = tree();
        let root = Root::open(&dir.path().join("root")).unwrap();
        let read = |name: &str| content(root.find(Path::new(name), Patience::ForDisk));
        for inside in ["sub/file", "inside", "sub/back"] {
            assert_eq!(read(inside).as_deref(), Some("content"), "{inside}");
        }
        for outside in [
            "up",
            "out/secret",
            "etc/passwd",
            "../secret",
            "sub/../../secret",
            "/etc/passwd",
            "loop",
            "missing",
        ] {
            for patience in [Patience::None, Patience::ForDisk] {
                let found = root.find(Path::new(outside), patience);
                assert!(found.is_err(), "{outside}");
            }
            assert!(root.stat(Path::new(outside)).is_err(), "{outside}");
        }
        for outside in ["out/new", "etc/new", "../new"] {
            assert!(root.parent(Path::new(outside)).is_err(), "{outside}");
        }
    }

    #[test]
    fn without_the_kernels_help_no_link_is_followed() {
        let dir = tree();
        let Root(root) = Root::open(&dir.path().join("root")).unwrap();
        let open = |name: &str| step_by_step(&root, Path::new(name), OFlags::RDONLY);
        for plain in ["sub/file", "sub", ""] {
            open(plain).unwrap();
        }
        for refused in ["inside", "up", "out/secret", "../secret", "/etc/passwd"] {
            assert!(open(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn pipes_are_neither_waited_for_nor_served() {
        let dir = TestDir::new();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(
            root.find(Path::new("pipe"), Patience::ForDisk).unwrap_err(),
            Errno::NOENT
        );
    }
}
