//! The configuration file, and its changes.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clearway_balancer::config::File;

use crate::failure::{Failure, Kind};

/// Reads and parses a configuration file.
///
/// # Errors
/// If it cannot be read, or is invalid.
pub(crate) fn read(path: &Path) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let what = format!("cannot read {}", path.display());
        Failure::caused(Kind::Arguments, what, &error)
    })?;
    File::parse(&text).map_err(|error| invalid(path, &error))
}

/// The failure of an invalid file.
pub(crate) fn invalid(path: &Path, error: &clearway_balancer::config::FileError) -> Failure {
    Failure::new(Kind::Arguments, format!("{}: {error}", path.display()))
}

/// Notices when a file is replaced or written.
#[derive(Debug)]
pub(crate) struct Watched {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
}

impl Watched {
    pub(crate) fn new(path: &Path) -> Self {
        let mut this = Self {
            path: path.to_owned(),
            seen: None,
        };
        this.changed();
        this
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file changed since the last call.
    pub(crate) fn changed(&mut self) -> bool {
        let metadata = std::fs::metadata(&self.path).ok();
        let now = metadata.and_then(|found| Some((found.modified().ok()?, found.len())));
        let changed = now != self.seen;
        self.seen = now;
        changed
    }
}
