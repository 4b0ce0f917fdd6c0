//! Memory use of hash tables, for [`Connection::memory`](crate::Connection::memory).

use std::collections::HashMap;

/// Returns how many bytes a hash table has allocated: at its capacity it is seven eighths full, and
/// it keeps a byte besides each entry.
pub(crate) fn hash_table<K, V, S>(table: &HashMap<K, V, S>) -> usize {
    let entry = size_of::<(K, V)>().saturating_add(1);
    (table.capacity().saturating_mul(8) / 7).saturating_mul(entry)
}
