//! Descriptions of partial downloads: what the content is, and how much of it is on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::part::Source;

/// Maximum length of a description in bytes: room for the longest URLs and tags.
const LONGEST: u64 = 64 << 10;

/// Room for the number that changes, so that the description keeps its length.
const ROOM: usize = 24;

/// A description, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    url: String,
    etag: Option<String>,
    /// The boot of the system in which the content was written: what was written is there until the
    /// system crashes or is started again.
    #[serde(default)]
    boot: Option<String>,
    /// How many bytes of the content are on the disk whatever happens.
    #[serde(default)]
    synced: u64,
}

/// What there is under the name of a description.
#[derive(Debug)]
pub(super) enum Description {
    Missing,
    Ours {
        source: Source,
        /// How many bytes of the content have survived if the system was started again since;
        /// `None` if it was not.
        survived: Option<u64>,
    },
    SomebodyElses,
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(about: &Path) -> io::Result<Self> {
        let mut text = Vec::new();
        match open(about, OpenOptions::new().read(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Missing),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                return Ok(Self::SomebodyElses);
            }
            opened => opened?.take(LONGEST).read_to_end(&mut text)?,
        };
        // Left behind if the program died while it wrote this.
        if text.is_empty() {
            return Ok(Self::Missing);
        }
        let Ok(stored) = serde_json::from_slice::<Stored>(&text) else {
            return Ok(Self::SomebodyElses);
        };
        let same = stored.boot.is_some() && stored.boot == boot();
        Ok(Self::Ours {
            survived: (!same).then_some(stored.synced),
            source: Source {
                url: stored.url,
                etag: stored.etag,
            },
        })
    }

    /// Writes a new description, for content of which nothing was written yet.
    ///
    /// # Errors
    /// If it cannot be written, or another file is there that is not a regular one.
    pub(super) fn write(about: &Path, source: &Source) -> io::Result<SyncedMark> {
        let mut how = OpenOptions::new();
        let file = open(about, how.write(true).create(true))?;
        let mark = SyncedMark {
            file,
            source: source.clone(),
        };
        mark.file.set_len(0)?;
        mark.store(0)?;
        Ok(mark)
    }
}

/// The description of a file that is being written, which says how much of it is on the disk.
#[derive(Debug)]
pub(super) struct SyncedMark {
    file: File,
    source: Source,
}

impl SyncedMark {
    /// Opens a description that is ours.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(about: &Path, source: &Source) -> io::Result<Self> {
        Ok(Self {
            file: open(about, OpenOptions::new().write(true))?,
            source: source.clone(),
        })
    }

    /// Another handle, for another thread.
    ///
    /// # Errors
    /// If there are too many open files.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            source: self.source.clone(),
        })
    }

    /// Brings `part` to the disk, and records that its first `length` bytes are there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn sync(&self, part: &File, length: u64) -> io::Result<()> {
        part.sync_all()?;
        self.store(length)?;
        self.file.sync_all()
    }

    /// In one write of a constant length, which a crash does not tear.
    fn store(&self, synced: u64) -> io::Result<()> {
        let Source { url, etag } = self.source.clone();
        let stored = Stored {
            url,
            etag,
            boot: boot(),
            synced,
        };
        let mut text = serde_json::to_vec(&stored)?;
        let digits = synced.to_string().len();
        text.resize(text.len() + ROOM.saturating_sub(digits), b' ');
        self.file.write_all_at(&text, 0)
    }
}

/// Opens a regular file. A symbolic link is not followed: it may lead to a file of somebody else.
fn open(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = how.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other(format!(
        "{} is not a regular file",
        path.display()
    )))
}

/// What names this run of the system (random(4)); `None` where there is no such thing.
fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::test_dir::TestDir;

    #[test]
    fn description_has_one_length_whatever_is_synced() {
        let dir = TestDir::new();
        let [about, part] = ["about", "part"].map(|name| dir.path().join(name));
        let source = Source {
            url: "https://h/a".into(),
            etag: Some("\"1\"".into()),
        };
        let mark = Description::write(&about, &source).unwrap();
        let part = File::create(part).unwrap();
        let length = fs::metadata(&about).unwrap().len();
        for synced in [7, u64::MAX, 0] {
            mark.sync(&part, synced).unwrap();
            assert_eq!(fs::metadata(&about).unwrap().len(), length);
            let stored: Stored = serde_json::from_slice(&fs::read(&about).unwrap()).unwrap();
            assert_eq!((stored.synced, stored.boot), (synced, boot()));
            let read = Description::read(&about).unwrap();
            let same = boot().is_none();
            assert!(
                matches!(read, Description::Ours { survived, .. } if survived.is_some() == same)
            );
        }
        fs::write(&about, "{\"url\":\"x\",\"etag\":\"y\",\"mine\":1}").unwrap();
        let read = Description::read(&about).unwrap();
        assert!(matches!(read, Description::SomebodyElses), "{read:?}");
        // One of another boot, or of a version that did not record it.
        fs::write(&about, "{\"url\":\"x\",\"etag\":\"y\"}").unwrap();
        let read = Description::read(&about).unwrap();
        assert!(
            matches!(
                read,
                Description::Ours {
                    survived: Some(0),
                    ..
                }
            ),
            "{read:?}"
        );
    }
}
