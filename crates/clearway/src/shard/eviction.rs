//! Closing connections to free memory, or places for new clients.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clearway_quic::connection::Config;
use clearway_quic::endpoint::{AdmissionControl, ConnectionHandle};
use clearway_quic::error::{Code, TransportError};
use clearway_quic::{Instant, Role};

use super::connections::{Connections, Entry};
use super::link::count;
use crate::connection::Activity;
use crate::endpoint::{BufferLimit, Shortage};

/// Most places that are kept free for new clients.
const MAX_SPARE_PLACES: usize = 16;

/// Idle connections that one search returns. A search goes through all connections, so its
/// result has to last for a while.
const MAX_IDLE_CANDIDATES: usize = 256;

/// Time between two searches for idle connections, for each connection searched: a hundred
/// times what that takes.
const SEARCH_PAUSE_PER_CONNECTION: Duration = Duration::from_micros(1);

/// Time after a search that could free no memory.
const FRUITLESS_SEARCH_PAUSE: Duration = Duration::from_millis(10);

/// Time after a search for idle connections while the budget is not exceeded: they become idle after
/// [`IDLE_AFTER`], and windows narrow meanwhile.
const IDLE_SEARCH_PAUSE: Duration = Duration::from_millis(100);

/// Most idle connections that such a search returns.
const MAX_COSTLY_CANDIDATES: usize = 1_024;

/// Idle connections evicted in each turn while the budget is not exceeded: hundreds at once would delay
/// everybody for milliseconds.
const IDLE_EVICTIONS_PER_TURN: usize = 4;

/// Added to the time since a connection last transferred data, so that among active ones the
/// one with the most memory is evicted first: a client whose handshake takes half a second is not evicted
/// before one that holds a MiB and now and then reads a byte.
const IDLE_TIME_BIAS: Duration = Duration::from_millis(20);

/// A connection that has transferred data within this time is active, and is evicted after all
/// that have not: it may wait for a retransmission, or for its turn on a busy machine.
/// Otherwise a download that pauses would be evicted before thousands of idle connections
/// that hold little each and most of the memory together.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// A unit of merit, in bytes that a connection has transferred in total, beyond what it holds. The priority of
/// an active connection is divided by its merit. A running download holds megabytes, and so does a
/// client that requests much and reads nothing, or begins many requests and ends none, but these have
/// transferred little or hold all of it.
const BYTES_PER_MERIT: u64 = 16 << 10;

/// The largest merit of a connection that has paused for longer than [`IDLE_AFTER`]. It halves with
/// each second, and the connection is idle when none is left, 11 seconds after its last transfer at
/// most: an upload that makes no progress because of an attack is not evicted before attackers that
/// have never transferred anything.
const MAX_PAUSED_MERIT: u64 = 256;

/// The order in which connections are evicted when memory is short, the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionPriority {
    is_idle: bool,
    /// Bytes × microseconds.
    cost: u128,
}

impl EvictionPriority {
    /// Returns the priority of a connection that holds `bytes` of memory, has not transferred
    /// data for `idle`, and has transferred `moved` bytes in total.
    fn new(idle: Duration, bytes: usize, moved: u64) -> Self {
        let mut merit = moved.saturating_sub(bytes as u64) / BYTES_PER_MERIT;
        if let Some(over) = idle.checked_sub(IDLE_AFTER) {
            let halvings = u32::try_from(over.as_secs()).unwrap_or(u32::MAX);
            merit = merit.min(MAX_PAUSED_MERIT);
            merit = merit.checked_shr(halvings).unwrap_or(0);
        }
        let is_idle = idle >= IDLE_AFTER && merit == 0;
        let time = idle.saturating_add(IDLE_TIME_BIAS).as_micros();
        let merit = u128::from(merit).saturating_add(1);
        Self {
            is_idle,
            cost: (time.saturating_mul(bytes as u128)).div_ceil(merit),
        }
    }
}

/// A shard's state of evictions.
#[derive(Debug, Default)]
pub(super) struct EvictionState {
    /// How much each connection may buffer now.
    pub(super) buffer_limit: BufferLimit,
    /// The configuration of new connections for that limit.
    reduced_config: Option<(BufferLimit, Arc<Config>)>,
    /// Idle connections found by the last search, the longest idle first.
    idle_candidates: VecDeque<ConnectionHandle>,
    /// The time of the next search for idle connections.
    idle_search_after: Instant,
    /// Idle connections found by the last search for memory, the most costly last.
    costly_candidates: Vec<ConnectionHandle>,
    /// The time of the next search for idle connections that hold memory.
    costly_search_after: Instant,
    /// The time of the next search for memory.
    memory_search_after: Instant,
}

impl Connections {
    /// Updates how much each connection may buffer, once in each turn of the loop.
    pub(super) fn update_buffer_limit(&mut self) {
        if self.link.budget.is_limited() {
            self.eviction.buffer_limit = self.link.budget.buffer_limit(self.eviction.buffer_limit);
        }
    }

    /// Returns a configuration with smaller windows for a new connection, if memory is short
    /// and no ticket promises the usual ones.
    pub(super) fn reduced_config(&mut self) -> Option<Arc<Config>> {
        let limit = self.eviction.buffer_limit;
        let base = self.endpoint_shared.eviction.new_client_config.as_ref()?;
        if limit == BufferLimit::Configured {
            return None;
        }
        if let Some((for_limit, config)) = &self.eviction.reduced_config
            && *for_limit == limit
        {
            return Some(config.clone());
        }
        let mut config = Config::clone(base);
        let most = limit.bytes() as u64;
        let streams = &mut config.streams;
        for window in [&mut streams.stream_window, &mut streams.connection_window] {
            *window = most.min(*window);
        }
        let config = Arc::new(config);
        self.eviction.reduced_config = Some((limit, config.clone()));
        Some(config)
    }

    /// Closes connections while the endpoint's memory budget is exceeded: first those that
    /// hold the most memory for the longest time without transferring data, and active ones
    /// last. Each shard frees its part of the excess.
    ///
    /// Searches all connections. A sixteenth of the budget is free afterwards, so that this
    /// is rare.
    pub(super) fn evict_for_memory(&mut self, now: Instant) {
        let budget = &self.link.budget;
        let used = budget.used();
        let Shortage::Exceeded(excess) = budget.shortage() else {
            return;
        };
        if now < self.eviction.memory_search_after {
            return;
        }
        // Other shards may be asleep, with memory to free.
        self.endpoint_shared.wake_all_shards();
        let mut own = 0_usize;
        let mut costs = BinaryHeap::with_capacity(self.table.len());
        for (handle, entry) in self.table.iter().filter(|(_, entry)| entry.is_server()) {
            let bytes = entry.shared.charged();
            own = own.saturating_add(bytes);
            costs.push((entry.eviction_priority(now), *handle, bytes));
        }
        let goal = own_part(excess, own, used);
        let mut freed = 0_usize;
        while freed < goal
            && let Some((_, handle, bytes)) = costs.pop()
        {
            if self.evict_for_want_of_memory(handle) {
                freed = freed.saturating_add(bytes);
            }
        }
        tracing::debug!(used, freed, "closed connections to free memory");
        if freed == 0 {
            self.eviction.memory_search_after = now + FRUITLESS_SEARCH_PAUSE;
        }
    }

    /// Closes a few idle connections while little of the memory budget is left, because every
    /// connection's windows narrow with it. Called once in each turn.
    pub(super) fn evict_idle_for_memory(&mut self, now: Instant) {
        if self.link.budget.shortage() == Shortage::None {
            return;
        }
        self.search_costly(now);
        for _ in 0..IDLE_EVICTIONS_PER_TURN {
            let Some(handle) = self.eviction.costly_candidates.pop() else {
                return;
            };
            // It may have become active or ended since the search.
            let entry = self.table.get(&handle);
            if entry.is_some_and(|entry| entry.eviction_priority(now).is_idle) {
                self.evict_for_want_of_memory(handle);
            }
        }
    }

    /// Finds idle connections that hold memory, if none are known and the last search was a while ago.
    fn search_costly(&mut self, now: Instant) {
        if !self.eviction.costly_candidates.is_empty() || now < self.eviction.costly_search_after {
            return;
        }
        self.eviction.costly_search_after = now + IDLE_SEARCH_PAUSE;
        self.endpoint_shared.wake_all_shards();
        let servers = self.table.iter().filter(|(_, entry)| entry.is_server());
        let mut costly: Vec<_> = servers
            .map(|(handle, entry)| (entry.eviction_priority(now), *handle))
            .filter(|(priority, _)| priority.is_idle)
            .collect();
        if let Some(surplus) = costly.len().checked_sub(MAX_COSTLY_CANDIDATES)
            && surplus > 0
        {
            costly.select_nth_unstable(surplus);
            costly.drain(..surplus);
        }
        costly.sort_unstable();
        let handles = costly.into_iter().map(|(_, handle)| handle);
        self.eviction.costly_candidates = handles.collect();
    }

    /// Evicts a connection to free memory. Returns whether it was still there.
    fn evict_for_want_of_memory(&mut self, handle: ConnectionHandle) -> bool {
        let reason = TransportError::new(Code::INTERNAL_ERROR, "server out of memory");
        let evicted = self.evict(handle, &reason);
        if evicted {
            count(&self.link.counts.evicted_for_memory);
        }
        evicted
    }

    /// Keeps places free for new clients while nearly all are in use, by closing the
    /// connections that have been idle longest.
    pub(super) fn evict_for_new_clients(&mut self, now: Instant) {
        let Some(admission) = &self.endpoint_shared.eviction.admission else {
            return;
        };
        let limit = admission.limits().connections;
        let spare = (limit / 64).clamp(1, MAX_SPARE_PLACES);
        let surplus = |all: &AdmissionControl| {
            let wanted = all.connections().saturating_add(spare);
            wanted.saturating_sub(limit)
        };
        if surplus(admission) == 0 {
            return;
        }
        let admission = admission.clone();
        if self.begun > 0 {
            // Other shards may be asleep, with connections that are idle longer.
            self.endpoint_shared.wake_all_shards();
        }
        for _ in 0..surplus(&admission) {
            // Other shards evict for the same new clients.
            if surplus(&admission) == 0 {
                return;
            }
            let Some(handle) = self.next_idle(now) else {
                return;
            };
            let reason = TransportError::new(
                Code::NO_ERROR,
                "closed while idle because the server is full",
            );
            if self.evict(handle, &reason) {
                count(&self.link.counts.evicted_for_new_clients);
            }
        }
    }

    /// Returns the longest idle connection that may be closed for a new client.
    fn next_idle(&mut self, now: Instant) -> Option<ConnectionHandle> {
        let patience = self.endpoint_shared.eviction.evict_idle_after;
        if self.eviction.idle_candidates.is_empty() && now >= self.eviction.idle_search_after {
            let connections = u32::try_from(self.table.len()).unwrap_or(u32::MAX);
            self.eviction.idle_search_after =
                now + SEARCH_PAUSE_PER_CONNECTION.saturating_mul(connections);
            let idle = self.table.iter();
            let idle = idle.filter(|(_, entry)| entry.is_idle(now, patience));
            let mut idle: Vec<_> = idle
                .map(|(handle, entry)| (entry.activity.last, *handle))
                .collect();
            if idle.len() > MAX_IDLE_CANDIDATES {
                idle.select_nth_unstable(MAX_IDLE_CANDIDATES);
                idle.truncate(MAX_IDLE_CANDIDATES);
            }
            idle.sort_unstable();
            let handles = idle.into_iter().map(|(_, handle)| handle);
            self.eviction.idle_candidates = handles.collect();
        }
        loop {
            let handle = self.eviction.idle_candidates.pop_front()?;
            // It may have become active or ended since the search.
            let entry = self.table.get(&handle);
            if entry.is_some_and(|entry| entry.is_idle(now, patience)) {
                return Some(handle);
            }
        }
    }

    /// Evicts a connection. Returns whether it was still there.
    fn evict(&mut self, handle: ConnectionHandle, reason: &TransportError) -> bool {
        let Some(entry) = self.table.get(&handle) else {
            return false;
        };
        let shared = entry.shared.clone();
        let evicted = shared.evict(reason);
        // The memory or place is needed now, not after its next turn.
        self.forget_terminated(&shared);
        self.release(shared);
        evicted
    }
}

impl Entry {
    fn is_server(&self) -> bool {
        self.role == Role::Server
    }

    fn eviction_priority(&self, now: Instant) -> EvictionPriority {
        let idle = now.saturating_since(self.activity.last);
        EvictionPriority::new(idle, self.shared.charged(), self.activity.moved)
    }

    fn is_idle(&self, now: Instant, patience: Duration) -> bool {
        let Activity {
            last,
            busy,
            moved: _,
            unanswered: _,
        } = self.activity;
        self.is_server() && !busy && now.saturating_since(last) >= patience
    }
}

/// Returns `excess · own / used`, rounded up.
fn own_part(excess: usize, own: usize, used: usize) -> usize {
    let limit = (excess as u128).saturating_mul(own as u128);
    let part = limit.div_ceil(used.max(1) as u128);
    usize::try_from(part).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_connections_are_evicted_last_and_costly_idle_ones_first() {
        let priority = |millis, kib: usize, moved: u64| {
            EvictionPriority::new(Duration::from_millis(millis), kib << 10, moved << 10)
        };
        let order = [
            priority(60_000, 100, 0),
            // What an idle connection has transferred long ago does not count.
            priority(11_000, 100, 1 << 20),
            priority(10_000, 16, 0),
            priority(2_000, 16, 0),
            priority(1_999, 8_192, 0),
            priority(500, 8_192, 0),
            // It has received all that it holds.
            priority(500, 800, 800),
            priority(500, 16, 0),
            // An upload that cannot go on.
            priority(3_000, 256, 64 << 10),
            // A running download.
            priority(500, 8_192, 64 << 10),
            priority(0, 16, 0),
        ];
        assert!(order.windows(2).all(|pair| pair[0] > pair[1]), "{order:?}");
    }

    #[test]
    fn shard_frees_its_part_of_the_excess_rounded_up() {
        assert_eq!(own_part(100, 500, 1_000), 50);
        assert_eq!(own_part(1, 1, 1_000), 1);
        assert_eq!(own_part(0, 500, 1_000), 0);
        assert_eq!(own_part(usize::MAX, usize::MAX, 1), usize::MAX);
        assert_eq!(own_part(5, 5, 0), 25);
    }
}
