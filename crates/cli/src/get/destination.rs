//! Destinations of content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::part::{Part, Source};

/// The destination of a URL's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Stdout,
    /// A device or a pipe, written as content comes.
    Special(PathBuf),
    /// A file that appears when it is complete.
    File {
        /// The path as given by the user.
        named: PathBuf,
        /// The path it resolves to: a name in a directory, not a link.
        real: PathBuf,
    },
}

/// A destination that is being written.
#[derive(Debug)]
pub(super) enum Sink {
    Stdout,
    Special(File),
    Part(Part),
}

impl Destination {
    pub(super) fn of(named: PathBuf) -> Self {
        // Through symbolic links, as when it is written.
        let real = match fs::metadata(&named) {
            Ok(found) if !found.is_file() => return Self::Special(named),
            Ok(_) => real(&named),
            Err(error) if error.kind() == io::ErrorKind::NotFound => real(&named),
            // A link the kernel does not follow (protected_symlinks of proc(5)) is
            // not followed here either: opening will say so.
            Err(_) => named.clone(),
        };
        Self::File { named, real }
    }

    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File { real, .. } => Some(real),
            Self::Stdout | Self::Special(_) => None,
        }
    }

    /// Begins to write the content that `source` describes, which allows resuming later if
    /// possible. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open(&self, source: Option<&Source>) -> io::Result<Sink> {
        match self {
            Self::Stdout => Ok(Sink::Stdout),
            Self::Special(path) => Ok(Sink::Special(OpenOptions::new().write(true).open(path)?)),
            Self::File { real, .. } => Ok(Sink::Part(Part::create(real, source)?)),
        }
    }

    /// Writes something complete that is not content, such as response headers. An existing file or
    /// part is left alone. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write_new(&self, text: Bytes) -> io::Result<()> {
        let mut sink = match self {
            Self::Stdout => Sink::Stdout,
            Self::Special(_) => self.open(None)?,
            Self::File { real, .. } => {
                let how = OpenOptions::new().write(true).create_new(true).to_owned();
                Sink::Special(how.open(real)?)
            }
        };
        sink.write(&[text])
    }
}

/// The path that writing to `path` ends up at.
fn real(path: &Path) -> PathBuf {
    let mut end = path.to_owned();
    // As many links as the kernel follows (path_resolution(7)).
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&end) else { break };
        end = end.parent().unwrap_or(Path::new("")).join(next);
    }
    let (Some(parent), Some(name)) = (end.parent(), end.file_name()) else {
        return end;
    };
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    match fs::canonicalize(parent) {
        Ok(directory) => directory.join(name),
        // Opening will report the reason.
        Err(_) => std::path::absolute(&end).unwrap_or(end),
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Special(named) | Self::File { named, .. } => named.display().fmt(f),
        }
    }
}

impl Sink {
    /// Writes. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                pieces
                    .iter()
                    .try_for_each(|piece| stdout.write_all(piece))?;
                stdout.flush()
            }
            Self::Special(file) => pieces.iter().try_for_each(|piece| file.write_all(piece)),
            Self::Part(part) => part.write(pieces),
        }
    }

    /// Completes the content. Blocks.
    ///
    /// # Errors
    /// If the file cannot be renamed.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Stdout | Self::Special(_) => Ok(()),
            Self::Part(part) => part.finish(),
        }
    }

    /// Abandons the content. Blocks. Returns where the partial file is kept, and its length.
    pub(super) fn abandon(self) -> Option<(PathBuf, u64)> {
        match self {
            Self::Stdout | Self::Special(_) => None,
            Self::Part(part) => part.abandon(),
        }
    }
}
