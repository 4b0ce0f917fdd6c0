//! A download that is not whole yet.
//!
//! `FILE.part` is what has come, `FILE.part.json` of what content it is. The
//! second is there before the first gets a byte, and a beginning of other
//! content is gone before that: whatever moment the program dies at, the two
//! belong together. While one download writes them, no other does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// How much of what is there is asked for again and compared: what a crash of
/// the system may have torn at the end.
const OVERLAP: u64 = 64 << 10;

/// What content a beginning is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    pub(super) url: String,
    /// A strong entity tag: equal tags are equal bytes (RFC 9110 §8.8.1).
    pub(super) etag: String,
}

/// A file being downloaded.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    length: u64,
    /// Somebody can go on with it later; otherwise it goes when it is dropped.
    kept: bool,
}

/// A beginning to go on with.
#[derive(Debug)]
pub(super) struct Beginning {
    part: Part,
    pub(super) etag: String,
    /// The end of what is there.
    pub(super) tail: Bytes,
}

impl Part {
    /// Begins anew.
    ///
    /// # Errors
    /// If a file cannot be written beside `path`.
    pub(super) fn create(path: &Path, source: Option<&Source>) -> io::Result<Self> {
        let [part, about] = names(path);
        let file = lock(&part, OpenOptions::new().write(true).create(true))?;
        file.set_len(0)?;
        match source {
            Some(source) => fs::write(&about, serde_json::to_vec(source)?)?,
            None => remove(&about)?,
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            length: 0,
            kept: source.is_some(),
        })
    }

    pub(super) fn write(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        for piece in pieces {
            self.file.write_all(piece)?;
            self.length += piece.len() as u64;
        }
        Ok(())
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// If it cannot have it.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let [part, about] = names(&self.path);
        fs::rename(part, &self.path)?;
        if !std::mem::replace(&mut self.kept, true) {
            return Ok(());
        }
        remove(&about)
    }

    /// Leaves what can be gone on with, and answers where; removes what cannot.
    pub(super) fn abandon(self) -> Option<(PathBuf, u64)> {
        let [part, about] = names(&self.path);
        if self.kept && self.length > 0 {
            return Some((part, self.length));
        }
        let _ = remove(&part);
        let _ = remove(&about);
        None
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.kept {
            let [part, _] = names(&self.path);
            let _ = remove(&part);
        }
    }
}

impl Beginning {
    /// What is there of `url` for `path`, if anything.
    ///
    /// # Errors
    /// If it is there and cannot be used.
    pub(super) fn find(path: &Path, url: &str) -> io::Result<Option<Self>> {
        let [part, about] = names(path);
        let Some(source) = read_if_there(&about)? else {
            return Ok(None);
        };
        // A file of somebody else's is as good as none.
        let Ok(source) = serde_json::from_slice::<Source>(&source) else {
            return Ok(None);
        };
        if source.url != url || !part.exists() {
            return Ok(None);
        }
        let mut file = lock(&part, OpenOptions::new().read(true).write(true))?;
        let length = file.metadata()?.len();
        if length == 0 {
            return Ok(None);
        }
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(length.saturating_sub(OVERLAP)))?;
        file.read_to_end(&mut tail)?;
        Ok(Some(Self {
            part: Part {
                file,
                path: path.to_owned(),
                length,
                kept: true,
            },
            etag: source.etag,
            tail: tail.into(),
        }))
    }

    /// From where on the content is needed: `tail` again, then the rest.
    pub(super) fn offset(&self) -> u64 {
        self.part.length - self.tail.len() as u64
    }

    /// Goes on after the end of what is there.
    pub(super) fn into_part(self) -> Part {
        self.part
    }
}

/// The part's file and the one about it.
fn names(path: &Path) -> [PathBuf; 2] {
    [".part", ".part.json"].map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    })
}

/// Opens the part's file for this process alone: two downloads in one file would
/// be none.
fn lock(path: &Path, how: &OpenOptions) -> io::Result<File> {
    let taken = || io::Error::new(io::ErrorKind::WouldBlock, "another download writes there");
    let file = how.open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(taken()),
        locked => locked?,
    }
    // Whoever had it may just have given it its name.
    let ours = file.metadata()?.ino();
    let there = fs::metadata(path).map_err(|_| taken())?.ino();
    if ours == there {
        Ok(file)
    } else {
        Err(taken())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::test_dir::TestDir;

    fn source() -> Source {
        Source {
            url: "https://h/a".into(),
            etag: "\"1\"".into(),
        }
    }

    fn files(dir: &TestDir) -> Vec<String> {
        let entries = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_beginning_is_gone_on_with_and_leaves_one_file() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        let long = Bytes::from(vec![7; 100_000]);
        let mut part = Part::create(&path, Some(&source())).unwrap();
        part.write(&[long.clone(), Bytes::from_static(b"xyz")])
            .unwrap();
        let (kept, length) = part.abandon().unwrap();
        assert_eq!((kept, length), (dir.path().join("a.part"), 100_003));
        assert_eq!(files(&dir), ["a.part", "a.part.json"]);

        let beginning = Beginning::find(&path, "https://h/a").unwrap().unwrap();
        assert_eq!(beginning.etag, "\"1\"");
        assert_eq!(beginning.offset(), 100_003 - OVERLAP);
        assert!(beginning.tail.ends_with(b"\x07xyz"));
        let mut part = beginning.into_part();
        part.write(&[Bytes::from_static(b"!")]).unwrap();
        part.finish().unwrap();
        assert_eq!(files(&dir), ["a"]);
        let whole = [&long[..], b"xyz!"].concat();
        assert_eq!(fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn beginnings_of_something_else_are_not_used() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        assert!(Beginning::find(&path, "https://h/a").unwrap().is_none());
        let mut part = Part::create(&path, Some(&source())).unwrap();
        part.write(&[Bytes::from_static(b"x")]).unwrap();
        part.abandon();
        assert!(Beginning::find(&path, "https://h/b").unwrap().is_none());
        fs::write(dir.path().join("a.part.json"), "nonsense").unwrap();
        assert!(Beginning::find(&path, "https://h/a").unwrap().is_none());
    }

    #[test]
    fn one_download_at_a_time_writes_there() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        let mut part = Part::create(&path, Some(&source())).unwrap();
        part.write(&[Bytes::from_static(b"x")]).unwrap();
        for second in [
            Part::create(&path, None).map(drop),
            Beginning::find(&path, "https://h/a").map(drop),
        ] {
            assert_eq!(second.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        part.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        Part::create(&path, None).unwrap().finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn what_cannot_be_resumed_is_not_kept() {
        let dir = TestDir::new();
        let mut part = Part::create(&dir.path().join("a"), None).unwrap();
        part.write(&[Bytes::from_static(b"x")]).unwrap();
        assert!(part.abandon().is_none());
        assert!(files(&dir).is_empty());
    }
}
