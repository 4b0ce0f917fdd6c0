//! The encoder's view of the dynamic table: finding entries by content, and
//! knowing which may leave.

use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use foldhash::fast::FixedState;
use rustc_hash::FxHashMap;

use crate::memory;
use crate::qpack::dynamic_table::{DynamicTable, Entry};
use crate::qpack::field;

/// Entries in the oldest eighth of the table are draining: no longer referred
/// to, so that they can leave (RFC 9204 §2.1.1.1).
const DRAINING_SHARE: usize = 8;

/// What the encoder knows of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    hashes: Hashes,
    /// Bytes that were inserted before it, ever.
    begin: u64,
    /// Outstanding sections of which this is the oldest entry.
    holds: u32,
}

/// A field's hashes. The seed is fixed: two fields of one hash displace each
/// other in the index, which costs compression, never correctness, and no more
/// time than the index has entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hashes {
    pub(super) name: u64,
    pub(super) field: u64,
}

impl Hashes {
    pub(super) fn of(name: &[u8], value: &[u8]) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(name);
        let name = hasher.finish();
        hasher.write(value);
        // A field of empty value is not its name.
        Self {
            name,
            field: !hasher.finish(),
        }
    }
}

/// What may not leave, besides what outstanding sections refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pins {
    /// The Known Received Count: entries from here on.
    pub(super) known: u64,
    /// The lowest entry the section being encoded refers to: from here on.
    pub(super) lowest: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    entries: DynamicTable<Note>,
    /// The newest entry with this field, by hash.
    fields: FxHashMap<u64, u64>,
    /// An entry with this name, by hash.
    names: FxHashMap<u64, u64>,
    /// Bytes inserted, ever.
    inserted: u64,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            entries: DynamicTable::new(),
            fields: FxHashMap::default(),
            names: FxHashMap::default(),
            inserted: 0,
        }
    }

    /// Sets the first capacity, and the only one above zero.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.entries.set_capacity(capacity);
    }

    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(super) fn insert_count(&self) -> u64 {
        self.entries.insert_count()
    }

    /// An absolute index as one from the newest entry down (RFC 9204 §3.2.5); `None` if
    /// there is no such entry yet.
    pub(super) fn below_newest(&self, absolute: u64) -> Option<u64> {
        self.insert_count().checked_sub(1)?.checked_sub(absolute)
    }

    /// The newest entry that is this field.
    pub(super) fn find(&self, hashes: Hashes, name: &[u8], value: &[u8]) -> Option<u64> {
        let &absolute = self.fields.get(&hashes.field)?;
        let entry = self.entries.get(absolute)?;
        (entry.name == name && entry.value == value).then_some(absolute)
    }

    /// An entry that has this name.
    pub(super) fn find_name(&self, hashes: Hashes, name: &[u8]) -> Option<u64> {
        let &absolute = self.names.get(&hashes.name)?;
        let entry = self.entries.get(absolute)?;
        (entry.name == name).then_some(absolute)
    }

    /// The name and value of an entry, with its hashes.
    pub(super) fn get(&self, absolute: u64) -> Option<(&Bytes, &Bytes, Hashes)> {
        let entry = self.entries.get(absolute)?;
        Some((&entry.name, &entry.value, entry.note.hashes))
    }

    /// Whether this entry should be left alone, to leave soon.
    pub(super) fn is_draining(&self, absolute: u64) -> bool {
        let capacity = self.capacity();
        let Some(entry) = self.entries.get(absolute) else {
            return true;
        };
        let since = self.inserted.saturating_sub(entry.note.begin);
        since > capacity.saturating_sub(capacity / DRAINING_SHARE) as u64
    }

    /// Whether an entry of this size can be inserted: what has to leave for it is
    /// acknowledged and not referred to (RFC 9204 §2.1.1).
    pub(super) fn has_room(&self, size: usize, pins: Pins) -> bool {
        let Some(most) = self.capacity().checked_sub(size) else {
            return false;
        };
        let mut left = self.entries.size();
        let mut oldest = self.entries.dropped();
        while left > most {
            let Some(entry) = self.entries.get(oldest) else {
                return false;
            };
            if entry.note.holds > 0 || oldest >= pins.known.min(pins.lowest) {
                return false;
            }
            left = left.saturating_sub(entry.size());
            oldest = oldest.saturating_add(1);
        }
        true
    }

    /// Inserts an entry there is room for, and says its absolute index.
    pub(super) fn insert(&mut self, name: Bytes, value: Bytes, hashes: Hashes) -> u64 {
        let size = field::size(&name, &value);
        let most = self.capacity().saturating_sub(size);
        while self.entries.size() > most {
            self.evict();
        }
        let absolute = self.entries.insert_count();
        let note = Note {
            hashes,
            begin: self.inserted,
            holds: 0,
        };
        self.entries.push(Entry { name, value, note });
        self.inserted = self.inserted.saturating_add(size as u64);
        self.fields.insert(hashes.field, absolute);
        // An older name is more likely to be acknowledged, a draining one of no use.
        let older = self.names.get(&hashes.name);
        if older.is_none_or(|&older| self.is_draining(older)) {
            self.names.insert(hashes.name, absolute);
        }
        absolute
    }

    fn evict(&mut self) {
        let absolute = self.entries.dropped();
        let Some(entry) = self.entries.evict() else {
            return;
        };
        let Hashes { name, field } = entry.note.hashes;
        if self.fields.get(&field) == Some(&absolute) {
            self.fields.remove(&field);
        }
        if self.names.get(&name) == Some(&absolute) {
            self.names.remove(&name);
        }
    }

    /// An outstanding section refers to this entry and to none older.
    pub(super) fn hold(&mut self, lowest: u64) {
        if let Some(entry) = self.entries.get_mut(lowest) {
            entry.note.holds = entry.note.holds.saturating_add(1);
        }
    }

    /// That section is outstanding no more.
    pub(super) fn release(&mut self, lowest: u64) {
        if let Some(entry) = self.entries.get_mut(lowest) {
            entry.note.holds = entry.note.holds.saturating_sub(1);
        }
    }

    /// Gives back room for entries there are not.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink();
        self.fields.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(super) fn memory(&self) -> usize {
        self.entries.memory() + memory::table(&self.fields) + memory::table(&self.names)
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> Vec<(u64, Bytes, Bytes)> {
        self.entries.fields()
    }
}
