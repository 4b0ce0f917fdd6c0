//! Output files of runs. They are opened before the first run, so that nobody waits for results
//! that cannot be written.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Access, access};

use crate::failure::{Failure, Kind};

/// The first file that could not be written.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstWriteError(Arc<Mutex<Option<String>>>);

impl FirstWriteError {
    pub(super) fn note(&self, file: &Path, error: &io::Error) {
        let message = format!("cannot write {}: {error}", file.display());
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(message);
    }

    /// Returns the first error.
    ///
    /// # Errors
    /// If a file could not be written.
    pub(super) fn conclude(&self) -> Result<(), Failure> {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*first {
            None => Ok(()),
            Some(message) => Err(Failure::new(Kind::Output, message.clone())),
        }
    }
}

fn unwritable(file: &Path, error: &io::Error) -> Failure {
    Failure::caused(
        Kind::Output,
        format!("cannot write {}", file.display()),
        error,
    )
}

/// A file that is written at once when its run is done.
#[derive(Clone, Debug)]
pub(super) struct OutputFile {
    pub(super) path: PathBuf,
    file: Arc<File>,
}

impl OutputFile {
    /// Opens the file, and keeps its content until there is new content.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| unwritable(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
        })
    }

    /// Writes the content.
    pub(super) fn fill(&self, bytes: &[u8], broken: &FirstWriteError) {
        let written = self.file.metadata().and_then(|about| {
            // Pipes and devices have no length to set.
            if about.is_file() {
                self.file.set_len(0)?;
            }
            (&*self.file).write_all(bytes)
        });
        if let Err(error) = written {
            broken.note(&self.path, &error);
        }
    }
}

/// Creates a directory for output files.
///
/// # Errors
/// If it does not exist, or nothing can be written to it.
pub(super) fn directory(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| {
        let what = format!("cannot create {}", dir.display());
        Failure::caused(Kind::Output, what, &error)
    })?;
    access(dir, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| unwritable(dir, &error.into()))
}

/// A file that is written while its run proceeds.
#[derive(Debug)]
pub(super) struct StreamedFile {
    path: PathBuf,
    file: File,
    broken: FirstWriteError,
}

impl StreamedFile {
    /// `None` if it cannot be created, which is recorded.
    pub(super) fn create(path: PathBuf, broken: &FirstWriteError) -> Option<Self> {
        match File::create(&path) {
            Ok(file) => Some(Self {
                path,
                file,
                broken: broken.clone(),
            }),
            Err(error) => {
                broken.note(&path, &error);
                None
            }
        }
    }
}

impl Write for StreamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        if let Err(error) = &written
            && !matches!(
                error.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
            )
        {
            self.broken.note(&self.path, error);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// File names that are valid and distinct, one for each text.
pub(super) fn file_names(texts: &[String]) -> Vec<String> {
    /// Bytes of a name, with room for seed, flow and end below the usual 255.
    const LONGEST: usize = 160;
    let mut names: Vec<String> = Vec::new();
    for text in texts {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let characters = text.chars().map(|c| if plain(c) { c } else { '_' });
        let name: String = characters.take(LONGEST).collect();
        let hidden = name.starts_with(['.', '-']);
        let name = if hidden { format!("_{name}") } else { name };
        // Some file systems do not distinguish case.
        let taken = |name: &String| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        let numbered = (2_u32..).map(|number| format!("{name}_{number}"));
        let free = core::iter::once(name.clone()).chain(numbered);
        let own = free.into_iter().find(|name| !taken(name));
        names.push(own.unwrap_or(name));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<String> {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        file_names(&texts)
    }

    #[test]
    fn file_names_are_printable_unique_and_stay_in_the_directory() {
        assert_eq!(names(&["../../evil/x"]), ["_.._.._evil_x"]);
        assert_eq!(names(&["-rf", "a b"]), ["_-rf", "a_b"]);
        assert_eq!(names(&["a b", "a/b", "A_B"]), ["a_b", "a_b_2", "A_B_3"]);
        let long = "x".repeat(1_000);
        let both = names(&[&long, &long]);
        assert_eq!(both[0].len(), 160);
        assert_ne!(both[0], both[1]);
    }
}
