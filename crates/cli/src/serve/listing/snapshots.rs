//! Directories that were read not long ago.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::names::{Names, Version};

/// How many are remembered.
const REMEMBERED: usize = 8;

/// The directories read last: who lists the same one shares its names, and reading
/// one again and again costs little.
#[derive(Debug, Default)]
pub(in crate::serve) struct Snapshots(Mutex<VecDeque<(Version, Arc<Names>)>>);

impl Snapshots {
    /// The names of a directory in this state, if they are known.
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

    /// Forgets all of them, for the memory.
    pub(super) fn clear(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
    }
}
