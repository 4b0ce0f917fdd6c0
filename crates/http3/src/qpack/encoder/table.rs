//! The encoder's dynamic table: finding entries by content, and checking which may be evicted.

use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use foldhash::fast::FixedState;
use rustc_hash::FxHashMap;

use crate::memory;
use crate::qpack::dynamic_table::{DynamicTable, Entry};
use crate::qpack::field;

/// Entries in the oldest eighth of the table are draining: they get no new references, so that they
/// can be evicted (RFC 9204 §2.1.1.1).
const DRAINING_SHARE: usize = 8;

/// The encoder's metadata of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryMeta {
    hashes: FieldHashes,
    /// Total bytes inserted before this entry.
    inserted_before: u64,
    /// How many unacknowledged sections have this as their oldest entry.
    references: u32,
}

/// The hashes of a field. The seed is fixed: fields with equal hashes displace each other in the
/// index, which costs compression, but never correctness or more time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldHashes {
    pub(super) name: u64,
    pub(super) field: u64,
}

impl FieldHashes {
    pub(super) fn of(name: &[u8], value: &[u8]) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(name);
        let name = hasher.finish();
        hasher.write(value);
        // The hash of a field with an empty value must differ from that of its name.
        Self {
            name,
            field: !hasher.finish(),
        }
    }
}

/// The entries that may not be evicted, besides those that unacknowledged sections refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvictionBounds {
    /// Entries from the Known Received Count on.
    pub(super) known: u64,
    /// Entries from the lowest one on that the current section refers to.
    pub(super) lowest: u64,
}

#[derive(Debug)]
pub(super) struct EncoderTable {
    entries: DynamicTable<EntryMeta>,
    /// The newest entry with a name and value, by hash.
    fields: FxHashMap<u64, u64>,
    /// An entry with a name, by hash.
    names: FxHashMap<u64, u64>,
    /// Total bytes inserted.
    inserted: u64,
}

impl EncoderTable {
    pub(super) fn new() -> Self {
        Self {
            entries: DynamicTable::new(),
            fields: FxHashMap::default(),
            names: FxHashMap::default(),
            inserted: 0,
        }
    }

    /// Sets the capacity, once.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.entries.set_capacity(capacity);
    }

    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(super) fn insert_count(&self) -> u64 {
        self.entries.insert_count()
    }

    /// Converts an absolute index to one relative to the newest entry (RFC 9204 §3.2.5). Returns
    /// `None` if there is no such entry yet.
    pub(super) fn relative_index(&self, absolute: u64) -> Option<u64> {
        self.insert_count().checked_sub(1)?.checked_sub(absolute)
    }

    /// Returns the newest entry with this name and value.
    pub(super) fn find(&self, hashes: FieldHashes, name: &[u8], value: &[u8]) -> Option<u64> {
        let &absolute = self.fields.get(&hashes.field)?;
        let entry = self.entries.get(absolute)?;
        (entry.name == name && entry.value == value).then_some(absolute)
    }

    /// Returns an entry with this name.
    pub(super) fn find_name(&self, hashes: FieldHashes, name: &[u8]) -> Option<u64> {
        let &absolute = self.names.get(&hashes.name)?;
        let entry = self.entries.get(absolute)?;
        (entry.name == name).then_some(absolute)
    }

    /// Returns the name, the value and the hashes of an entry.
    pub(super) fn get(&self, absolute: u64) -> Option<(&Bytes, &Bytes, FieldHashes)> {
        let entry = self.entries.get(absolute)?;
        Some((&entry.name, &entry.value, entry.meta.hashes))
    }

    /// Returns whether an entry should get no new references, because it will be evicted soon.
    pub(super) fn is_draining(&self, absolute: u64) -> bool {
        let capacity = self.capacity();
        let Some(entry) = self.entries.get(absolute) else {
            return true;
        };
        let since = self.inserted.saturating_sub(entry.meta.inserted_before);
        since > capacity.saturating_sub(capacity / DRAINING_SHARE) as u64
    }

    /// Returns whether an entry of this size can be inserted: whether the entries to evict for it
    /// are acknowledged and not referred to (RFC 9204 §2.1.1).
    pub(super) fn has_room(&self, size: usize, bounds: EvictionBounds) -> bool {
        let Some(most) = self.capacity().checked_sub(size) else {
            return false;
        };
        let mut left = self.entries.size();
        let mut oldest = self.entries.dropped();
        while left > most {
            let Some(entry) = self.entries.get(oldest) else {
                return false;
            };
            if entry.meta.references > 0 || oldest >= bounds.known.min(bounds.lowest) {
                return false;
            }
            left = left.saturating_sub(entry.size());
            oldest = oldest.saturating_add(1);
        }
        true
    }

    /// Inserts an entry for which there is room, and returns its absolute index.
    pub(super) fn insert(&mut self, name: Bytes, value: Bytes, hashes: FieldHashes) -> u64 {
        let size = field::size(&name, &value);
        let most = self.capacity().saturating_sub(size);
        while self.entries.size() > most {
            self.evict();
        }
        let absolute = self.entries.insert_count();
        let meta = EntryMeta {
            hashes,
            inserted_before: self.inserted,
            references: 0,
        };
        self.entries.push(Entry { name, value, meta });
        self.inserted = self.inserted.saturating_add(size as u64);
        self.fields.insert(hashes.field, absolute);
        // An older entry with the name is more likely to be acknowledged, but a draining one is of
        // no use.
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
        let FieldHashes { name, field } = entry.meta.hashes;
        if self.fields.get(&field) == Some(&absolute) {
            self.fields.remove(&field);
        }
        if self.names.get(&name) == Some(&absolute) {
            self.names.remove(&name);
        }
    }

    /// Notes that an unacknowledged section has this as its oldest entry.
    pub(super) fn add_reference(&mut self, lowest: u64) {
        if let Some(entry) = self.entries.get_mut(lowest) {
            entry.meta.references = entry.meta.references.saturating_add(1);
        }
    }

    /// Notes that this section is no longer unacknowledged.
    pub(super) fn remove_reference(&mut self, lowest: u64) {
        if let Some(entry) = self.entries.get_mut(lowest) {
            entry.meta.references = entry.meta.references.saturating_sub(1);
        }
    }

    /// Releases unused capacity.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink();
        self.fields.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    pub(super) fn memory(&self) -> usize {
        self.entries.memory() + memory::hash_table(&self.fields) + memory::hash_table(&self.names)
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> Vec<(u64, Bytes, Bytes)> {
        self.entries.fields()
    }
}
