//! What containers allocate, for the figures of
//! [`Connection::memory`](crate::connection::Connection::memory).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use smallvec::{Array, SmallVec};

/// Longest ring that is kept for reuse when what it was for is over, items.
pub(crate) const MAX_RETAINED_CAPACITY: usize = 4;

/// Bytes of so many items.
#[inline]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "they are allocated, in half the address space at most"
)]
const fn allocated<T>(items: usize) -> usize {
    items * size_of::<T>()
}

/// Bytes a ring has allocated.
pub(crate) fn vec_deque<T>(ring: &VecDeque<T>) -> usize {
    allocated::<T>(ring.capacity())
}

/// Bytes a list has allocated.
pub(crate) fn vec<T>(list: &Vec<T>) -> usize {
    allocated::<T>(list.capacity())
}

/// Bytes a short list has allocated, which is none while it fits in itself.
pub(crate) fn small_vec<A: Array>(list: &SmallVec<A>) -> usize {
    if list.spilled() {
        allocated::<A::Item>(list.capacity())
    } else {
        0
    }
}

/// Bytes a hash table has allocated: it is seven eighths full at its capacity,
/// and keeps a byte besides each entry.
pub(crate) fn hash_map<K, V, S>(table: &HashMap<K, V, S>) -> usize {
    let entry = size_of::<(K, V)>().saturating_add(1);
    (table.capacity().saturating_mul(8) / 7).saturating_mul(entry)
}

/// Bytes a map has allocated, at most.
pub(crate) fn btree_map<K, V>(map: &BTreeMap<K, V>) -> usize {
    tree(map.len(), size_of::<(K, V)>())
}

/// Bytes a set has allocated, at most.
pub(crate) fn btree_set<T>(set: &BTreeSet<T>) -> usize {
    tree(set.len(), size_of::<T>())
}

/// A B-tree does not tell its memory. Its nodes have room for eleven entries
/// and hold five at least (the root may hold fewer); a sixth of them also have
/// twelve pointers. So an entry pays for 11/5 of itself and 29 bytes.
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
