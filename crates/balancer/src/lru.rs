//! A map with a bound that forgets the entry unused for longest.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

/// A place in the list of entries.
type Index = u32;

const NONE: Index = Index::MAX;

/// A map of at most `capacity` entries, ordered by when they were last used. Hashes are keyed,
/// because strangers choose the keys.
#[derive(Debug)]
pub struct LruMap<K, V> {
    by_key: HashMap<K, Index, RandomState>,
    entries: Vec<Entry<K, V>>,
    free: Vec<Index>,
    oldest: Index,
    newest: Index,
    capacity: usize,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    /// `None` = the place is free.
    value: Option<V>,
    used: Duration,
    older: Index,
    newer: Index,
}

impl<K: Copy + Eq + Hash, V> LruMap<K, V> {
    /// Creates a map of at most `capacity` entries. Memory is allocated as it fills.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            by_key: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            capacity: capacity.clamp(1, NONE as usize),
        }
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns the value of `key`, and marks it as used at `now`.
    pub fn get(&mut self, now: Duration, key: &K) -> Option<&mut V> {
        let index = *self.by_key.get(key)?;
        self.unlink(index);
        self.link_newest(index);
        let entry = self.entries.get_mut(index as usize)?;
        entry.used = now;
        entry.value.as_mut()
    }

    /// Returns the value of `key` without marking it as used.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<&V> {
        let index = *self.by_key.get(key)?;
        self.entries.get(index as usize)?.value.as_ref()
    }

    /// Returns the value of `key` for a change, without marking it as used.
    pub(crate) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        let index = *self.by_key.get(key)?;
        self.entries.get_mut(index as usize)?.value.as_mut()
    }

    /// Returns all entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.entries.iter();
        entries.filter_map(|entry| Some((&entry.key, entry.value.as_ref()?)))
    }

    /// Returns when the entry of `key` was last used.
    #[must_use]
    pub fn used(&self, key: &K) -> Option<Duration> {
        let index = *self.by_key.get(key)?;
        Some(self.entries.get(index as usize)?.used)
    }

    /// Stores a value. Returns the entry that had to make room: the one unused for longest, or
    /// the former one of the same key.
    pub fn insert(&mut self, now: Duration, key: K, value: V) -> Option<(K, V)> {
        if let Some(former) = self.get(now, &key) {
            return Some((key, std::mem::replace(former, value)));
        }
        let removed = (self.len() >= self.capacity)
            .then(|| self.remove_oldest())
            .flatten();
        let entry = Entry {
            key,
            value: Some(value),
            used: now,
            older: NONE,
            newer: NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                if let Some(place) = self.entries.get_mut(index as usize) {
                    *place = entry;
                }
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as Index
            }
        };
        self.by_key.insert(key, index);
        self.link_newest(index);
        removed
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let index = self.by_key.remove(key)?;
        self.unlink(index);
        self.free.push(index);
        self.entries.get_mut(index as usize)?.value.take()
    }

    /// Returns keys and when they were last used, that unused for longest first.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = (&K, Duration)> {
        let at = |index: Index| self.entries.get(index as usize);
        let entries = std::iter::successors(at(self.oldest), move |entry| at(entry.newer));
        entries.map(|entry| (&entry.key, entry.used))
    }

    /// Returns when the entry unused for longest was last used.
    #[must_use]
    pub fn oldest(&self) -> Option<Duration> {
        Some(self.entries.get(self.oldest as usize)?.used)
    }

    /// Removes the entry unused for longest.
    pub fn remove_oldest(&mut self) -> Option<(K, V)> {
        let key = self.entries.get(self.oldest as usize)?.key;
        self.remove(&key).map(|value| (key, value))
    }

    /// Removes an entry that was not used for `timeout`; call it until it returns `None`.
    pub fn remove_expired(&mut self, now: Duration, timeout: Duration) -> Option<(K, V)> {
        let expired = self.oldest()?.saturating_add(timeout) <= now;
        expired.then(|| self.remove_oldest()).flatten()
    }

    fn link_newest(&mut self, index: Index) {
        let former = std::mem::replace(&mut self.newest, index);
        if let Some(entry) = self.entries.get_mut(index as usize) {
            entry.older = former;
            entry.newer = NONE;
        }
        match self.entries.get_mut(former as usize) {
            Some(former) => former.newer = index,
            None => self.oldest = index,
        }
    }

    fn unlink(&mut self, index: Index) {
        let Some(entry) = self.entries.get(index as usize) else {
            return;
        };
        let (older, newer) = (entry.older, entry.newer);
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn full_map_forgets_entry_unused_for_longest() {
        let mut map = LruMap::new(2);
        assert_eq!(map.insert(at(1), 'a', 1), None);
        assert_eq!(map.insert(at(2), 'b', 2), None);
        assert_eq!(map.get(at(3), &'a'), Some(&mut 1));
        assert_eq!(map.insert(at(4), 'c', 3), Some(('b', 2)));
        assert_eq!(map.insert(at(5), 'c', 4), Some(('c', 3)));
        assert_eq!((map.len(), map.peek(&'a')), (2, Some(&1)));
    }

    #[test]
    fn entries_expire_in_order_of_use() {
        let mut map = LruMap::new(9);
        for (second, key) in [(1, 'a'), (2, 'b'), (3, 'c')] {
            map.insert(at(second), key, ());
        }
        map.get(at(4), &'a');
        assert_eq!(map.remove_expired(at(7), at(5)), Some(('b', ())));
        assert_eq!(map.remove_expired(at(7), at(5)), None);
        assert_eq!(map.oldest(), Some(at(3)));
    }

    proptest! {
        /// Against a list that does the same slowly.
        #[test]
        fn map_agrees_with_model(
            capacity in 1_usize..6,
            steps in proptest::collection::vec((0_u8..3, 0_u8..8), 0..200),
        ) {
            let mut map = LruMap::new(capacity);
            let mut model: Vec<(u8, usize)> = Vec::new();
            for (n, (step, key)) in steps.into_iter().enumerate() {
                let now = at(n as u64);
                let place = model.iter().position(|entry| entry.0 == key);
                match step {
                    0 => {
                        let expected = place.map(|place| model.remove(place));
                        let expected = expected.or_else(|| {
                            (model.len() == capacity).then(|| model.remove(0))
                        });
                        model.push((key, n));
                        prop_assert_eq!(map.insert(now, key, n), expected);
                    }
                    1 => {
                        let expected = place.map(|place| model.remove(place));
                        model.extend(expected);
                        let got = map.get(now, &key).copied();
                        prop_assert_eq!(got, expected.map(|entry| entry.1));
                    }
                    _ => {
                        let expected = place.map(|place| model.remove(place).1);
                        prop_assert_eq!(map.remove(&key), expected);
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert!(map.entries.len() <= capacity);
            }
            let rest: Vec<_> = std::iter::from_fn(|| map.remove_oldest()).collect();
            prop_assert_eq!(rest, model);
        }
    }
}
