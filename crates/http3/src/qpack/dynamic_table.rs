//! The dynamic table (RFC 9204 §3.2) of an encoder or a decoder.

use std::collections::VecDeque;

use bytes::Bytes;

use super::field;

/// An entry, with metadata of the table's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<N> {
    pub(super) name: Bytes,
    pub(super) value: Bytes,
    pub(super) meta: N,
}

impl<N> Entry<N> {
    pub(super) fn size(&self) -> usize {
        field::size(&self.name, &self.value)
    }
}

/// Entries in the order of insertion, by absolute index (RFC 9204 §3.2.4).
#[derive(Clone, Debug)]
pub(super) struct DynamicTable<N> {
    /// The oldest entry comes first.
    entries: VecDeque<Entry<N>>,
    /// How many entries were evicted: the absolute index of the oldest entry that is left.
    dropped: u64,
    /// The size in bytes (RFC 9204 §3.2.1).
    size: usize,
    capacity: usize,
}

impl<N> DynamicTable<N> {
    /// Creates an empty table with capacity zero (RFC 9204 §3.2.2).
    pub(super) const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            dropped: 0,
            size: 0,
            capacity: 0,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of insertions so far, including duplicates: the next absolute index.
    pub(super) fn insert_count(&self) -> u64 {
        self.dropped.saturating_add(self.entries.len() as u64)
    }

    /// Returns the absolute index of the oldest entry.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn get(&self, absolute: u64) -> Option<&Entry<N>> {
        let at = usize::try_from(absolute.checked_sub(self.dropped)?).ok()?;
        self.entries.get(at)
    }

    pub(super) fn get_mut(&mut self, absolute: u64) -> Option<&mut Entry<N>> {
        let at = usize::try_from(absolute.checked_sub(self.dropped)?).ok()?;
        self.entries.get_mut(at)
    }

    /// Converts an index relative to the insertion point, as on the encoder stream (RFC 9204
    /// §3.2.5), to an absolute index. Returns `None` if it is before the first entry.
    pub(super) fn absolute(&self, relative: u64) -> Option<u64> {
        self.insert_count().checked_sub(relative)?.checked_sub(1)
    }

    /// Evicts the oldest entry.
    pub(super) fn evict(&mut self) -> Option<Entry<N>> {
        let entry = self.entries.pop_front()?;
        self.dropped = self.dropped.saturating_add(1);
        self.size = self.size.saturating_sub(entry.size());
        Some(entry)
    }

    /// Inserts an entry that fits without evictions.
    pub(super) fn push(&mut self, entry: Entry<N>) {
        self.size = self.size.saturating_add(entry.size());
        debug_assert!(
            self.size <= self.capacity,
            "there is no room for this entry"
        );
        self.entries.push_back(entry);
    }

    /// Evicts what is necessary and inserts an entry. Returns `false` if it is larger than the
    /// whole table (RFC 9204 §3.2.2).
    pub(super) fn insert(&mut self, entry: Entry<N>) -> bool {
        let Some(most) = self.capacity.checked_sub(entry.size()) else {
            return false;
        };
        while self.size > most {
            self.evict();
        }
        self.push(entry);
        true
    }

    /// Sets the capacity, and evicts what no longer fits.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.size > capacity {
            self.evict();
        }
        if capacity == 0 {
            self.entries.shrink_to_fit();
        }
    }

    /// Releases unused capacity.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Returns the memory in use, in bytes: the strings and the capacity for entries.
    pub(super) fn memory(&self) -> usize {
        let overhead = self.entries.len().saturating_mul(field::FIELD_OVERHEAD);
        let room = (self.entries.capacity()).saturating_mul(size_of::<Entry<N>>());
        self.size.saturating_sub(overhead).saturating_add(room)
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> Vec<(u64, Bytes, Bytes)> {
        (self.dropped..)
            .zip(&self.entries)
            .map(|(index, entry)| (index, entry.name.clone(), entry.value.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &'static str) -> Entry<()> {
        Entry {
            name: Bytes::from_static(b"n"),
            value: Bytes::from_static(value.as_bytes()),
            meta: (),
        }
    }

    fn values(table: &DynamicTable<()>) -> Vec<(u64, Bytes)> {
        table
            .fields()
            .into_iter()
            .map(|(index, _, value)| (index, value))
            .collect()
    }

    #[test]
    fn insertion_evicts_the_oldest_entries() {
        let mut table = DynamicTable::new();
        table.set_capacity(70);
        assert!(table.insert(entry("a")));
        assert!(table.insert(entry("b")));
        assert_eq!(
            (table.size(), table.insert_count(), table.dropped()),
            (68, 2, 0)
        );
        assert!(table.insert(entry("cc")));
        assert_eq!(values(&table), [(1, "b".into()), (2, "cc".into())]);
        assert_eq!(
            (table.size(), table.insert_count(), table.dropped()),
            (69, 3, 1)
        );
        assert!(table.get(0).is_none() && table.get(3).is_none());
        assert_eq!(table.get(2).unwrap().value, "cc");
        assert_eq!(table.absolute(0), Some(2));
        assert_eq!(table.absolute(2), Some(0));
        assert_eq!(table.absolute(3), None);
        assert_eq!(table.absolute(u64::MAX), None);
    }

    #[test]
    fn entry_larger_than_the_table_is_rejected_without_eviction() {
        let mut table = DynamicTable::new();
        assert!(!table.insert(entry("")));
        table.set_capacity(35);
        assert!(table.insert(entry("aa")));
        assert!(!table.insert(entry("aaa")));
        assert_eq!(values(&table), [(0, "aa".into())]);
    }

    #[test]
    fn reduced_capacity_evicts_entries() {
        let mut table = DynamicTable::new();
        table.set_capacity(4096);
        for value in ["a", "b", "c"] {
            assert!(table.insert(entry(value)));
        }
        table.set_capacity(34 + 33);
        assert_eq!(values(&table), [(2, "c".into())]);
        table.set_capacity(0);
        assert_eq!(
            (table.size(), table.insert_count(), table.memory()),
            (0, 3, 0)
        );
        table.set_capacity(34);
        assert!(table.insert(entry("d")));
        assert_eq!(values(&table), [(3, "d".into())]);
    }
}
