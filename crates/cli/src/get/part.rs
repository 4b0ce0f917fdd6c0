//! Partial downloads.
//!
//! `FILE.part` holds the data received so far; `FILE.part.json` describes its content
//! ([`description`](super::description)), and marks both as ours. The description is written before the first byte of data, and data of other
//! content is removed before that: whenever the program dies, the two belong together. Only content
//! that arrives complete at once needs no description. While one download writes these files no
//! other does; unrelated files with these names are left alone.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use bytes::Bytes;
use http::Uri;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::description::{Description, SyncedMark};
use super::temporary::names;

/// How many of the last bytes are requested again and compared: a server may have other content
/// under the same tag.
const OVERLAP: u64 = 64 << 10;

/// How much is received between two times that it is brought to the disk: what may have to be
/// fetched again after a crash of the system.
const SYNC_EVERY: u64 = 64 << 20;

/// The content that a partial file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) url: String,
    /// A strong entity tag: equal tags mean equal bytes (RFC 9110 §8.8.1). Without one the download
    /// cannot be resumed.
    pub(super) etag: Option<String>,
}

/// A file being downloaded.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    length: u64,
    /// Whether it can be resumed later; otherwise it is removed when dropped.
    kept: bool,
    /// Whether the description is ours.
    described: bool,
    /// Records how much is on the disk, if it can be resumed.
    mark: Option<SyncedMark>,
    /// The length up to which it was brought to the disk, or is being.
    synced: u64,
    syncing: Option<JoinHandle<io::Result<()>>>,
    /// Whether dropping it leaves the file: because it was renamed, is to be kept, or is not ours.
    settled: bool,
}

/// A partial file to resume from.
#[derive(Debug)]
pub(super) struct ResumePoint {
    part: Part,
    pub(super) etag: String,
    /// The last bytes of the existing data.
    pub(super) tail: Bytes,
}

impl Part {
    /// Starts a new partial file. Without a `source` the content cannot be resumed.
    ///
    /// # Errors
    /// If no file can be written beside `path`, or an unrelated file exists there.
    pub(super) fn create(path: &Path, source: Option<&Source>) -> io::Result<Self> {
        let mode = mode(path)?;
        let [part, about] = names(path);
        let (file, new) = open(&part)?;
        let mut this = Self {
            file,
            path: path.to_owned(),
            length: 0,
            kept: false,
            described: false,
            mark: None,
            synced: 0,
            syncing: None,
            settled: !new,
        };
        match (Description::read(&about)?, this.file.metadata()?.len()) {
            (Description::Ours { .. }, _) => this.described = true,
            (Description::Missing | Description::SomebodyElses, 1..) => {
                return Err(in_the_way(&part));
            }
            (Description::SomebodyElses, 0) if source.is_some() => return Err(in_the_way(&about)),
            // An empty file holds nothing to lose: a start that was killed leaves one.
            (Description::Missing | Description::SomebodyElses, 0) => {}
        }
        this.settled = false;
        this.file.set_len(0)?;
        if let Some(mode) = mode {
            // Until then nobody else may read it who must not read it later.
            this.file
                .set_permissions(Permissions::from_mode(mode | 0o600))?;
        }
        match source {
            Some(source) => {
                this.described = true;
                let mark = Description::write(&about, source)?;
                this.kept = source.etag.is_some();
                this.mark = Some(mark).filter(|_| this.kept);
            }
            None if std::mem::take(&mut this.described) => remove(&about)?,
            None => {}
        }
        Ok(this)
    }

    pub(super) fn write(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        for piece in pieces {
            self.file.write_all(piece)?;
            self.length += piece.len() as u64;
        }
        if self.length.saturating_sub(self.synced) >= SYNC_EVERY {
            self.begin_sync()?;
        }
        Ok(())
    }

    /// Begins to bring the data so far to the disk, on another thread, unless that is still at
    /// work.
    fn begin_sync(&mut self) -> io::Result<()> {
        if self
            .syncing
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            return Ok(());
        }
        self.end_sync()?;
        let Some(mark) = &self.mark else {
            return Ok(());
        };
        let (mark, file, length) = (mark.try_clone()?, self.file.try_clone()?, self.length);
        self.synced = length;
        let work = move || mark.sync(&file, length);
        let named = std::thread::Builder::new().name("sync".into());
        self.syncing = Some(named.spawn(work)?);
        Ok(())
    }

    /// Waits until the last sync is done.
    fn end_sync(&mut self) -> io::Result<()> {
        let Some(thread) = self.syncing.take() else {
            return Ok(());
        };
        let panicked = |_| io::Error::other("the thread that syncs the file has panicked");
        thread.join().map_err(panicked).and_then(|done| done)
    }

    /// Renames it to its final name, and returns when both are on the disk. An existing file's
    /// permissions are kept.
    ///
    /// # Errors
    /// If it cannot be brought to the disk or renamed.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end_sync()?;
        let [part, about] = names(&self.path);
        if !is_at(&self.file, &part)? {
            let message = format!(
                "{} was replaced by another file during the download",
                part.display()
            );
            return Err(io::Error::other(message));
        }
        if let Some(mode) = mode(&self.path)? {
            self.file.set_permissions(Permissions::from_mode(mode))?;
        }
        // Data before the name: a crash must not leave an empty file in place of a whole one.
        self.file.sync_all()?;
        fs::rename(part, &self.path)?;
        self.settled = true;
        if self.described {
            remove(&about)?;
        }
        sync_directory(&self.path)
    }

    /// Keeps what can be resumed, and returns where; removes what cannot.
    pub(super) fn abandon(mut self) -> Option<(PathBuf, u64)> {
        if !self.is_of_use() {
            return None;
        }
        self.settled = true;
        // It is of use without that too, until the system is started again.
        let _ = self.end_sync();
        if let Some(mark) = &self.mark {
            let _ = mark.sync(&self.file, self.length);
        }
        let [part, _] = names(&self.path);
        Some((part, self.length))
    }

    fn is_of_use(&self) -> bool {
        self.kept && self.length > 0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.settled || self.is_of_use() {
            return;
        }
        let [part, about] = names(&self.path);
        if is_at(&self.file, &part).unwrap_or(false) {
            let _ = remove(&part);
        }
        if self.described {
            let _ = remove(&about);
        }
    }
}

impl ResumePoint {
    /// The partial file of `url` for `path`, if there is one.
    ///
    /// # Errors
    /// If it exists and cannot be used.
    pub(super) fn find(path: &Path, url: &str) -> io::Result<Option<Self>> {
        let [part, about] = names(path);
        // An unrelated file counts as none here.
        let Description::Ours { .. } = Description::read(&about)? else {
            return Ok(None);
        };
        let how = OpenOptions::new().read(true).write(true).to_owned();
        let mut file = match lock(&part, how) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            locked => locked?,
        };
        // Now that no other process writes them.
        let Description::Ours { source, survived } = Description::read(&about)? else {
            return Ok(None);
        };
        let there = file.metadata()?.len();
        // What was not on the disk when the system crashed may be damaged anywhere.
        let length = survived.map_or(there, |survived| survived.min(there));
        let (true, Some(etag), 1..) = (source.url == url, source.etag.clone(), length) else {
            return Ok(None);
        };
        let mark = SyncedMark::open(&about, &source)?;
        if length < there {
            file.set_len(length)?;
        }
        if survived.is_some() {
            // From now on this run of the system counts.
            mark.sync(&file, length)?;
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
                described: true,
                mark: Some(mark),
                synced: length,
                syncing: None,
                settled: false,
            },
            etag,
            tail: tail.into(),
        }))
    }

    /// The offset from which content is needed: that of `tail`, then the rest.
    pub(super) fn offset(&self) -> u64 {
        self.part.length - self.tail.len() as u64
    }

    /// Length of the existing data.
    pub(super) fn length(&self) -> u64 {
        self.part.length
    }

    /// Continues after the existing data.
    pub(super) fn into_part(self) -> Part {
        self.part
    }
}

/// Whether there is a partial file of `url` for `path` that `-C` can resume.
pub(super) fn can_resume(path: &Path, url: &Uri) -> bool {
    let [part, about] = names(path);
    let Ok(Description::Ours { source, .. }) = Description::read(&about) else {
        return false;
    };
    let there = fs::symlink_metadata(part);
    let is_some = there.is_ok_and(|there| there.is_file() && there.len() > 0);
    is_some && source.etag.is_some() && source.url == url.to_string()
}

/// Brings the names in the directory of `path` to the disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new(".")))?;
    match directory.sync_all() {
        // Some file systems write names at once and cannot be asked to.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// The permissions of the existing file.
fn mode(path: &Path) -> io::Result<Option<u32>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => Ok(Some(found?.mode() & 0o777)),
    }
}

/// Opens or creates a partial file; returns whether it was created.
fn open(part: &Path) -> io::Result<(File, bool)> {
    let how = OpenOptions::new().write(true).to_owned();
    match lock(part, how.clone().create_new(true).to_owned()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return Ok((made?, true)),
    }
    match lock(part, how) {
        Ok(file) if file.metadata()?.is_file() => Ok((file, false)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        Ok(_) | Err(_) => Err(in_the_way(part)),
    }
}

/// Opens the partial file for this process alone: two downloads must not write to one file.
fn lock(path: &Path, mut how: OpenOptions) -> io::Result<File> {
    let taken = || {
        io::Error::new(
            io::ErrorKind::WouldBlock,
            "another download is writing to this file",
        )
    };
    // Do not follow a symbolic link, and do not wait for a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = how.custom_flags(flags.bits().cast_signed()).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(taken()),
        locked => locked?,
    }
    // Another process may just have renamed it.
    if is_at(&file, path).map_err(|_| taken())? {
        Ok(file)
    } else {
        Err(taken())
    }
}

/// Whether this is the file at that path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    let there = fs::symlink_metadata(path)?;
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

fn in_the_way(file: &Path) -> io::Error {
    let message = format!(
        "{} exists and does not belong to a download that can be resumed; move it or choose another -o",
        file.display()
    );
    io::Error::new(io::ErrorKind::AlreadyExists, message)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::test_dir::TestDir;

    fn source() -> Source {
        Source {
            url: "https://h/a".into(),
            etag: Some("\"1\"".into()),
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
    fn resumed_download_leaves_only_the_finished_file() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        let long = Bytes::from(vec![7; 100_000]);
        let mut part = Part::create(&path, Some(&source())).unwrap();
        part.write(&[long.clone(), Bytes::from_static(b"xyz")])
            .unwrap();
        let (kept, length) = part.abandon().unwrap();
        assert_eq!((kept, length), (dir.path().join("a.part"), 100_003));
        assert_eq!(files(&dir), ["a.part", "a.part.json"]);

        let beginning = ResumePoint::find(&path, "https://h/a").unwrap().unwrap();
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
    fn partial_file_of_other_content_is_not_resumed() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        assert!(ResumePoint::find(&path, "https://h/a").unwrap().is_none());
        let mut part = Part::create(&path, Some(&source())).unwrap();
        part.write(&[Bytes::from_static(b"x")]).unwrap();
        part.abandon();
        assert!(ResumePoint::find(&path, "https://h/b").unwrap().is_none());
        assert!(ResumePoint::find(&path, "https://h/a").unwrap().is_some());
        fs::write(dir.path().join("a.part.json"), "nonsense").unwrap();
        assert!(ResumePoint::find(&path, "https://h/a").unwrap().is_none());
    }

    #[test]
    fn second_download_to_the_same_file_is_rejected() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        let mut part = Part::create(&path, Some(&source())).unwrap();
        part.write(&[Bytes::from_static(b"x")]).unwrap();
        for second in [
            Part::create(&path, None).map(drop),
            ResumePoint::find(&path, "https://h/a").map(drop),
        ] {
            assert_eq!(second.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        part.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        Part::create(&path, None).unwrap().finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn partial_file_without_strong_etag_is_removed() {
        let dir = TestDir::new();
        let mut part = Part::create(&dir.path().join("a"), None).unwrap();
        part.write(&[Bytes::from_static(b"x")]).unwrap();
        assert!(part.abandon().is_none());
        assert!(files(&dir).is_empty());
    }

    #[test]
    fn unrelated_file_with_part_name_is_left_alone() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        let [part, about] = names(&path);
        let refused = |source: Option<&Source>, named: &Path| {
            let error = Part::create(&path, source).unwrap_err();
            assert!(
                error.to_string().contains(named.to_str().unwrap()),
                "{error}"
            );
        };
        for json in [None, Some("{\"url\":\"x\",\"etag\":\"y\",\"mine\":1}")] {
            fs::write(&part, "precious").unwrap();
            if let Some(json) = json {
                fs::write(&about, json).unwrap();
            }
            refused(None, &part);
            refused(Some(&source()), &part);
            assert_eq!(fs::read(&part).unwrap(), b"precious");
        }
        fs::remove_file(&part).unwrap();
        refused(Some(&source()), &about);
        assert_eq!(files(&dir), ["a.part.json"], "no empty part");
        // Content that is complete at once needs no description.
        Part::create(&path, None).unwrap().finish().unwrap();
        assert_eq!(files(&dir), ["a", "a.part.json"]);
        fs::remove_file(&about).unwrap();
        fs::write(dir.path().join("b"), "precious").unwrap();
        std::os::unix::fs::symlink("b", &part).unwrap();
        refused(None, &part);
        fs::remove_file(&part).unwrap();
        fs::create_dir(&part).unwrap();
        refused(None, &part);
        assert_eq!(fs::read(dir.path().join("b")).unwrap(), b"precious");
    }

    #[test]
    fn file_swapped_during_download_is_not_renamed() {
        let dir = TestDir::new();
        let path = dir.path().join("a");
        let [part, _] = names(&path);
        for finished in [true, false] {
            let download = Part::create(&path, Some(&source())).unwrap();
            fs::remove_file(&part).unwrap();
            fs::write(&part, "other").unwrap();
            if finished {
                download.finish().unwrap_err();
            } else {
                drop(download);
            }
            assert_eq!(files(&dir), ["a.part"]);
            fs::remove_file(&part).unwrap();
        }
    }

    #[test]
    fn part_dropped_before_first_byte_leaves_no_file() {
        let dir = TestDir::new();
        let part = Part::create(&dir.path().join("a"), Some(&source())).unwrap();
        assert_eq!(files(&dir), ["a.part", "a.part.json"]);
        drop(part);
        assert!(files(&dir).is_empty());
    }
}
