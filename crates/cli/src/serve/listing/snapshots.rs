//! A cache of directories that were read recently.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::names::{Names, Version};

/// Maximum number of directories in the cache.
const REMEMBERED: usize = 8;

/// The directories read last: clients that list the same one share its names, and listing it
/// repeatedly costs little.
#[derive(Debug, Default)]
pub(in crate::serve) struct Snapshots(Mutex<VecDeque<(Version, Arc<Names>)>>);

impl Snapshots {
    /// The names of a directory in this state, if cached.
    pub(super) fn find(&self, version: Version) -> Option<Arc<Names>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(other, _)| *other == version);
        found.map(|(_, names)| names.clone())
    }

    pub(super) fn keep(&self, version: Version, names: Arc<Names>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(other, _)| *other != version);
        known.push_front((version, names));
        known.truncate(REMEMBERED);
    }

    /// Empties the cache, to free memory.
    pub(super) fn clear(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
    }
}
