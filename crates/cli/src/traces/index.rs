//! What has been read of a large trace, kept beside it, so that its page opens at once next time.
//!
//! `a.sqlog.index` has a line that says of which content it is, then a panel a line. It is only a
//! copy: it may be deleted at any time, and where it cannot be written there is none.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// Smaller files are read in less than a second, and have no index.
const SMALLEST: u64 = 64 << 20;
/// Changes with the format of panels.
const FORMAT: u32 = 1;
/// Maximum size of an index that is read: that of a page, and some room.
const LARGEST: u64 = 32 << 20;

/// Of which content an index is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    format: u32,
    /// The version of the program, since detectors change.
    version: String,
    /// The size of the trace in bytes.
    size: u64,
    /// When the trace was changed, in nanoseconds since 1970.
    modified: u64,
    /// The title of the trace.
    title: String,
}

/// A trace as it is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) title: String,
    /// Its panels in JSON.
    pub(crate) panels: Vec<String>,
}

/// The index of a trace that is large enough to have one.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    size: u64,
    modified: u64,
}

impl Index {
    /// The index of this file; `None` if the file is small. To be called before the file is read,
    /// so that what is added meanwhile is noticed.
    pub(crate) fn of(trace: &Path) -> Option<Self> {
        Self::of_size(trace, SMALLEST)
    }

    fn of_size(trace: &Path, smallest: u64) -> Option<Self> {
        let metadata = fs::metadata(trace).ok()?;
        let since = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        if !metadata.is_file() || metadata.len() < smallest {
            return None;
        }
        let mut path = trace.as_os_str().to_owned();
        path.push(".index");
        Some(Self {
            path: path.into(),
            size: metadata.len(),
            modified: u64::try_from(since.as_nanos()).ok()?,
        })
    }

    fn header(&self, title: &str) -> Header {
        Header {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            size: self.size,
            modified: self.modified,
            title: title.to_owned(),
        }
    }

    /// What it says, if it is of this content.
    pub(crate) fn read(&self) -> Option<Drawn> {
        let mut input = BufReader::new(fs::File::open(&self.path).ok()?).take(LARGEST);
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let header: Header = serde_json::from_str(&line).ok()?;
        if header != self.header(&header.title) {
            return None;
        }
        let panels: Result<Vec<String>, io::Error> = input.lines().collect();
        let panels = panels.ok()?;
        // The last line says that the file is complete, and each panel is valid JSON.
        let (end, panels) = panels.split_last()?;
        let valid = |panel: &String| serde_json::from_str::<serde::de::IgnoredAny>(panel).is_ok();
        let complete = end == "end" && !panels.is_empty() && panels.iter().all(valid);
        complete.then(|| Drawn {
            title: header.title,
            panels: panels.to_vec(),
        })
    }

    /// Writes it, if that is possible.
    pub(crate) fn write(&self, drawn: &Drawn) {
        let mut temporary = self.path.as_os_str().to_owned();
        temporary.push(format!(".{}", std::process::id()));
        let written = self.write_to(Path::new(&temporary), drawn);
        // A reader sees the whole of it, or nothing.
        if written
            .and_then(|()| fs::rename(&temporary, &self.path))
            .is_err()
        {
            let _ = fs::remove_file(&temporary);
        }
    }

    fn write_to(&self, path: &Path, drawn: &Drawn) -> io::Result<()> {
        let mut out = io::BufWriter::new(fs::File::create(path)?);
        serde_json::to_writer(&mut out, &self.header(&drawn.title))?;
        writeln!(out)?;
        for panel in &drawn.panels {
            writeln!(out, "{panel}")?;
        }
        writeln!(out, "end")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let name = format!("clearway-index-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn trace(&self, content: &str) -> PathBuf {
            let path = self.0.join("a.sqlog");
            fs::write(&path, content).unwrap();
            path
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn drawn() -> Drawn {
        Drawn {
            title: "a \"title\"".into(),
            panels: vec!["{\"end\":1}".into(), "{\"end\":2}".into()],
        }
    }

    #[test]
    fn index_is_read_only_for_the_content_it_was_written_for() {
        let dir = Dir::new("content");
        let trace = dir.trace("0123456789");
        assert!(Index::of_size(&trace, 11).is_none());
        let index = Index::of_size(&trace, 10).unwrap();
        assert_eq!(index.read(), None);
        index.write(&drawn());
        assert_eq!(index.read(), Some(drawn()));
        assert_eq!(Index::of_size(&trace, 10).unwrap().read(), Some(drawn()));
        // More of it.
        dir.trace("0123456789a");
        assert_eq!(Index::of_size(&trace, 10).unwrap().read(), None);
        // As much, but later.
        dir.trace("9876543210");
        let file = fs::File::options().write(true).open(&trace).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(9))
            .unwrap();
        assert_eq!(Index::of_size(&trace, 10).unwrap().read(), None);
    }

    #[test]
    fn damaged_index_is_not_used() {
        let dir = Dir::new("damaged");
        let index = Index::of_size(&dir.trace("0123456789"), 1).unwrap();
        index.write(&drawn());
        let whole = fs::read_to_string(&index.path).unwrap();
        for length in 0..whole.len() - 1 {
            fs::write(&index.path, &whole[..length]).unwrap();
            assert_eq!(index.read(), None, "{length}");
        }
        fs::write(&index.path, whole.replace("{\"end\":2}", "{\"end\":}")).unwrap();
        assert_eq!(index.read(), None);
        fs::write(&index.path, whole.replace("\"format\":1", "\"format\":0")).unwrap();
        assert_eq!(index.read(), None);
    }

    #[test]
    fn index_that_cannot_be_written_is_left_out() {
        let dir = Dir::new("unwritable");
        let index = Index::of_size(&dir.trace("0123456789"), 1).unwrap();
        fs::create_dir(&index.path).unwrap();
        index.write(&drawn());
        assert_eq!(index.read(), None);
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 2);
    }
}
