//! Where content goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::part::{Part, Source};

/// Where the content of a URL goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Stdout,
    /// A device or a pipe, written as content comes.
    Special(PathBuf),
    /// A file that appears when it is whole.
    File(PathBuf),
}

/// A destination that is being written.
#[derive(Debug)]
pub(super) enum Sink {
    Stdout,
    Special(File),
    Part(Part),
}

impl Destination {
    pub(super) fn of(path: PathBuf) -> Self {
        // Through symbolic links, as when it is written.
        let special = fs::metadata(&path).is_ok_and(|found| !found.is_file());
        if special {
            Self::Special(path)
        } else {
            Self::File(path)
        }
    }

    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Stdout | Self::Special(_) => None,
        }
    }

    /// Begins to write what `source` describes, if a part of it may be of use
    /// later. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open(&self, source: Option<&Source>) -> io::Result<Sink> {
        match self {
            Self::Stdout => Ok(Sink::Stdout),
            Self::Special(path) => Ok(Sink::Special(OpenOptions::new().write(true).open(path)?)),
            Self::File(path) => Ok(Sink::Part(Part::create(path, source)?)),
        }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Special(path) | Self::File(path) => path.display().fmt(f),
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

    /// The content is whole. Blocks.
    ///
    /// # Errors
    /// If it cannot get its name.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Stdout | Self::Special(_) => Ok(()),
            Self::Part(part) => part.finish(),
        }
    }

    /// The content will not become whole. Blocks. Answers where the beginning
    /// is kept, and how long it is.
    pub(super) fn abandon(self) -> Option<(PathBuf, u64)> {
        match self {
            Self::Stdout | Self::Special(_) => None,
            Self::Part(part) => part.abandon(),
        }
    }
}
