//! How much containers allocate, for
//! [`Connection::memory`](crate::connection::Connection::memory).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use smallvec::{Array, SmallVec};

/// Largest capacity in items of a `VecDeque` that is kept for reuse.
pub(crate) const MAX_RETAINED_CAPACITY: usize = 4;

/// Returns the bytes of this many items.
#[inline]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "allocated memory is at most half the address space"
)]
const fn allocated<T>(items: usize) -> usize {
    items * size_of::<T>()
}

/// Returns the bytes that a `VecDeque` has allocated.
pub(crate) fn vec_deque<T>(ring: &VecDeque<T>) -> usize {
    allocated::<T>(ring.capacity())
}

/// Returns the bytes that a `Vec` has allocated.
pub(crate) fn vec<T>(list: &Vec<T>) -> usize {
    allocated::<T>(list.capacity())
}

/// Returns the bytes that a `SmallVec` has allocated: none while its items are stored
/// inline.
pub(crate) fn small_vec<A: Array>(list: &SmallVec<A>) -> usize {
    if list.spilled() {
        allocated::<A::Item>(list.capacity())
    } else {
        0
    }
}

/// Returns the bytes that a `HashMap` has allocated. At its capacity it is seven eighths
/// full, and it has a control byte for each entry.
pub(crate) fn hash_map<K, V, S>(table: &HashMap<K, V, S>) -> usize {
    let entry = size_of::<(K, V)>().saturating_add(1);
    (table.capacity().saturating_mul(8) / 7).saturating_mul(entry)
}

/// Returns the most bytes that a `BTreeMap` can have allocated.
pub(crate) fn btree_map<K, V>(map: &BTreeMap<K, V>) -> usize {
    tree(map.len(), size_of::<(K, V)>())
}

/// Returns the most bytes that a `BTreeSet` can have allocated.
pub(crate) fn btree_set<T>(set: &BTreeSet<T>) -> usize {
    tree(set.len(), size_of::<T>())
}

/// Estimates the memory of a B-tree, which does not report it. Its nodes have room for
/// eleven entries and contain at least five (the root may contain fewer); a sixth of them
/// also have twelve pointers. So an entry accounts for 11/5 of its size and 29 bytes.
const fn tree(len: usize, entry: usize) -> usize {
    let node = entry.saturating_mul(11).saturating_add(16);
    if len == 0 {
        0
    } else if len <= 11 {
        node
    } else {
        let each = (entry.saturating_mul(11) / 5).saturating_add(29);
        len.saturating_mul(each)
    }
}
