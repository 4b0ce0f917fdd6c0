//! What hash tables allocate, for the figures of
//! [`Connection::memory`](crate::Connection::memory).

use std::collections::HashMap;

/// Bytes a hash table has allocated: it is seven eighths full at its capacity,
/// and keeps a byte besides each entry.
pub(crate) fn table<K, V, S>(table: &HashMap<K, V, S>) -> usize {
    let entry = size_of::<(K, V)>().saturating_add(1);
    (table.capacity().saturating_mul(8) / 7).saturating_mul(entry)
}
