//! The directory that is served.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

/// The directory that all paths are resolved in.
///
/// The kernel resolves names relative to this directory and fails where they would leave it,
/// through `..` and symbolic links too, however the tree changes in the meantime: there is no check
/// before the use.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// What a path refers to.
#[derive(Debug)]
pub(super) enum Lookup {
    File(File, Stat),
    Directory(OwnedFd),
}

/// A file that is opened for each read, as long as it is the same one.
#[derive(Debug)]
pub(super) struct ReopenedFile {
    pub(super) root: Arc<Root>,
    pub(super) path: PathBuf,
    /// Its identity when first opened.
    pub(super) stat: Stat,
}

/// Whether a lookup may wait for the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupMode {
    /// It may not: if something is not cached by the kernel, the error is [`Errno::AGAIN`].
    CachedOnly,
    /// It may, on a thread that may block.
    MayBlock,
}

impl ReopenedFile {
    /// Opens it.
    ///
    /// # Errors
    /// Like [`Root::find`], or if it was replaced or written to in the meantime: the content must
    /// not be a mixture.
    pub(super) fn open(&self, mode: LookupMode) -> io::Result<File> {
        let Lookup::File(file, stat) = self.root.find(&self.path, mode)? else {
            return Err(Errno::ISDIR.into());
        };
        let identity = |stat: &Stat| {
            let id = (stat.st_dev, stat.st_ino, stat.st_size);
            (id, (stat.st_mtime, stat.st_mtime_nsec))
        };
        if identity(&stat) == identity(&self.stat) {
            return Ok(file);
        }
        Err(io::Error::other("the file changed while it was being sent"))
    }
}

impl Root {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it is not a directory, or cannot be read.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, dir, flags, Mode::empty())?))
    }

    /// Opens a file or a directory for reading.
    ///
    /// # Errors
    /// If it does not exist, is of another type, is outside, or cannot be read; [`Errno::AGAIN`] if
    /// that cannot be determined without waiting.
    pub(super) fn find(&self, path: &Path, mode: LookupMode) -> Result<Lookup, Errno> {
        // Opening a pipe must not wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = beneath(&self.0, path, flags, mode)?;
        let stat = fstat(&opened)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Lookup::File(opened.into(), stat)),
            FileType::Directory => Ok(Lookup::Directory(opened)),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(Errno::NOENT),
        }
    }

    /// Opens the parent directory of `path`, to create something there.
    ///
    /// # Errors
    /// If there is no such directory, or it is outside.
    pub(super) fn parent(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        beneath(&self.0, parent, flags, LookupMode::MayBlock)
    }

    /// The metadata of `path`, without opening it for reading.
    ///
    /// # Errors
    /// Like [`find`](Self::find).
    pub(super) fn stat(&self, path: &Path) -> Result<Stat, Errno> {
        fstat(beneath(&self.0, path, OFlags::PATH, LookupMode::MayBlock)?)
    }

    /// The metadata of an entry of the directory at `path`; a symbolic link is followed if it stays
    /// inside.
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
    mode: LookupMode,
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
        resolve.set(ResolveFlags::CACHED, mode == LookupMode::CachedOnly);
        match openat2(
            directory,
            name,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            // A kernel before 5.6, or a sandbox that does not allow the call.
            Err(Errno::NOSYS) => {}
            // A kernel before 5.12, which does not know RESOLVE_CACHED.
            Err(Errno::INVAL) if mode == LookupMode::CachedOnly => return Err(Errno::AGAIN),
            opened => return opened,
        }
    }
    if mode == LookupMode::CachedOnly {
        return Err(Errno::AGAIN);
    }
    step_by_step(directory, path, flags)
}

/// The same without the kernel's help: name by name, following no symbolic links.
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

    fn content(found: Result<Lookup, Errno>) -> Option<String> {
        let Ok(Lookup::File(mut file, _)) = found else {
            return None;
        };
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn symlinks_inside_the_root_are_followed_and_others_rejected() {
        let dir = tree();
        let root = Root::open(&dir.path().join("root")).unwrap();
        let read = |name: &str| content(root.find(Path::new(name), LookupMode::MayBlock));
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
            for mode in [LookupMode::CachedOnly, LookupMode::MayBlock] {
                let found = root.find(Path::new(outside), mode);
                assert!(found.is_err(), "{outside}");
            }
            assert!(root.stat(Path::new(outside)).is_err(), "{outside}");
        }
        for outside in ["out/new", "etc/new", "../new"] {
            assert!(root.parent(Path::new(outside)).is_err(), "{outside}");
        }
    }

    #[test]
    fn without_openat2_no_symlink_is_followed() {
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
    fn named_pipe_is_not_served_and_does_not_block() {
        let dir = TestDir::new();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(
            root.find(Path::new("pipe"), LookupMode::MayBlock)
                .unwrap_err(),
            Errno::NOENT
        );
    }
}
