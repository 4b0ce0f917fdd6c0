//! What containers allocate, for the figures of
//! [`Connection::memory`](crate::connection::Connection::memory).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use smallvec::{Array, SmallVec};

/// Bytes a ring has allocated.
pub(crate) fn ring<T>(ring: &VecDeque<T>) -> usize {
    ring.capacity() * size_of::<T>()
}

/// Bytes a list has allocated.
pub(crate) fn list<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

/// Bytes a short list has allocated, which is none while it fits in itself.
pub(crate) fn short_list<A: Array>(list: &SmallVec<A>) -> usize {
    if list.spilled() {
        list.capacity() * size_of::<A::Item>()
    } else {
        0
    }
}

/// Bytes a hash table has allocated: it is seven eighths full at its capacity,
/// and keeps a byte besides each entry.
pub(crate) fn table<K, V, S>(table: &HashMap<K, V, S>) -> usize {
    table.capacity() * 8 / 7 * (size_of::<(K, V)>() + 1)
}

/// Bytes a map has allocated, at most.
pub(crate) fn map<K, V>(map: &BTreeMap<K, V>) -> usize {
    tree(map.len(), size_of::<(K, V)>())
}

/// Bytes a set has allocated, at most.
pub(crate) fn set<T>(set: &BTreeSet<T>) -> usize {
    tree(set.len(), size_of::<T>())
}

/// A B-tree does not tell its memory. Its nodes have room for eleven entries
/// and hold five at least (the root may hold fewer); a sixth of them also have
/// twelve pointers. So an entry pays for 11/5 of itself and 29 bytes.
const fn tree(len: usize, entry: usize) -> usize {
    let node = 16 + 11 * entry;
    if len == 0 {
        0
    } else if len <= 11 {
        node
    } else {
        len * (entry * 11 / 5 + 29)
    }
}
