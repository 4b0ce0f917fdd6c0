//! Who has to go when there is no room: in memory, or for a newcomer.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clearway_quic::connection::Config;
use clearway_quic::endpoint::{AdmissionControl, ConnectionHandle};
use clearway_quic::error::{Code, TransportError};
use clearway_quic::{Instant, Role};

use super::connections::{Connections, Entry};
use super::link::count;
use crate::endpoint::Share;

/// Most places that are kept free for newcomers.
const SPARE_PLACES: usize = 16;

/// Idle connections found at once. Looking for them goes through all connections, so
/// what it finds has to last for a while.
const FOUND_AT_ONCE: usize = 256;

/// Time between two searches for idle connections, for each connection that is looked
/// at: a hundred times what that takes.
const BETWEEN_SEARCHES: Duration = Duration::from_micros(1);

/// Time between two searches for memory that find nothing.
const BETWEEN_FRUITLESS: Duration = Duration::from_millis(10);

/// What is added to the time for which a connection has moved no data, so that among
/// those at work the most expensive goes first: less than a round trip, so that a
/// newcomer in its handshake is not the first to go.
const AT_WORK: Duration = Duration::from_millis(1);

/// A connection that has moved data within this time is at work, and goes after all that
/// have not: it may wait for a packet to be sent again, or for its turn on a busy machine.
/// Otherwise a download that pauses would go before thousands of connections that hold
/// little each, do nothing, and are what the memory went to.
const REST: Duration = Duration::from_secs(2);

/// Among those at work, so many bytes moved in all are worth as much as nothing held: a
/// download in full swing holds megabytes, and so does a client that has just begun to ask
/// for much and to take nothing.
const WORTH: u64 = 16 << 10;

/// How much a connection deserves to go when memory is short; the most deserving first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waste {
    rests: bool,
    /// Bytes × microseconds.
    cost: u128,
}

impl Waste {
    /// Of a connection that holds `bytes`, has moved no data for a time of `idle`, and
    /// `moved` so many bytes before.
    fn of(idle: Duration, bytes: usize, moved: u64) -> Self {
        let rests = idle >= REST;
        let time = idle.saturating_add(AT_WORK).as_micros();
        let merit = if rests { 0 } else { moved / WORTH };
        let merit = u128::from(merit).saturating_add(1);
        Self {
            rests,
            cost: (time.saturating_mul(bytes as u128)).div_ceil(merit),
        }
    }
}

/// What a shard remembers of its want of room.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// How much each connection may buffer now.
    pub(super) share: Share,
    /// Settings for newcomers who get no more than that.
    narrow: Option<(Share, Arc<Config>)>,
    /// Idle connections, the idlest first, as they were when they were looked for.
    idlest: VecDeque<ConnectionHandle>,
    /// No search for idle connections before.
    search_after: Instant,
    /// No search for memory before.
    relieve_after: Instant,
}

/// What a connection was doing when it last had a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    /// When it last moved data.
    pub(crate) last: Instant,
    /// Bytes of stream data moved either way.
    pub(crate) moved: u64,
    /// Its handshake, a request or a stream is open.
    pub(crate) busy: bool,
}

impl Connections {
    /// What each connection may buffer until the next turn of the loop.
    pub(super) fn update_share(&mut self) {
        if self.link.budget.is_counted() {
            self.crowd.share = self.link.budget.share(self.crowd.share);
        }
    }

    /// Settings for a newcomer that are narrower than those of the endpoint, if memory is
    /// short and tickets promise nothing else.
    pub(super) fn narrow_config(&mut self) -> Option<Arc<Config>> {
        let share = self.crowd.share;
        let base = self.house.crowding.newcomers.as_ref()?;
        if share == Share::Whole {
            return None;
        }
        if let Some((for_share, config)) = &self.crowd.narrow
            && *for_share == share
        {
            return Some(config.clone());
        }
        let mut config = Config::clone(base);
        let most = share.bytes() as u64;
        let streams = &mut config.streams;
        for window in [&mut streams.stream_window, &mut streams.connection_window] {
            *window = most.min(*window);
        }
        let config = Arc::new(config);
        self.crowd.narrow = Some((share, config.clone()));
        Some(config)
    }

    /// Closes connections while the endpoint's memory budget is exceeded: those first
    /// that take the most for the longest without moving any data, and those that are at
    /// work last. Each shard frees its part of what is too much.
    ///
    /// Goes through all connections, which the sixteenth of the budget pays for that
    /// is free afterwards.
    pub(super) fn relieve(&mut self, now: Instant) {
        let budget = &self.link.budget;
        let (excess, used) = (budget.excess(), budget.used());
        if excess == 0 || now < self.crowd.relieve_after {
            return;
        }
        // Others may sleep on what they hold.
        self.house.ring_all();
        let mut own = 0_usize;
        let mut costs = BinaryHeap::with_capacity(self.table.len());
        for (handle, entry) in self.table.iter().filter(|(_, entry)| entry.is_server()) {
            let bytes = entry.shared.counted();
            own = own.saturating_add(bytes);
            let idle = now.saturating_since(entry.activity.last);
            let waste = Waste::of(idle, bytes, entry.activity.moved);
            costs.push((waste, *handle, bytes));
        }
        let goal = part(excess, own, used);
        let mut freed = 0_usize;
        while freed < goal
            && let Some((_, handle, bytes)) = costs.pop()
        {
            let reason = TransportError::new(Code::INTERNAL_ERROR, "server out of memory");
            if self.evict(handle, &reason) {
                count(&self.link.counts.evicted_for_memory);
                freed = freed.saturating_add(bytes);
            }
        }
        tracing::debug!(used, freed, "connections were closed for want of memory");
        if freed == 0 {
            self.crowd.relieve_after = now + BETWEEN_FRUITLESS;
        }
    }

    /// Keeps places free for newcomers while nearly all are taken, by closing the
    /// connections that have been idle for longest.
    pub(super) fn make_room(&mut self, now: Instant) {
        let Some(admission) = &self.house.crowding.admission else {
            return;
        };
        let limit = admission.limits().connections;
        let spare = (limit / 64).clamp(1, SPARE_PLACES);
        let surplus = |all: &AdmissionControl| {
            let wanted = all.connections().saturating_add(spare);
            wanted.saturating_sub(limit)
        };
        if surplus(admission) == 0 {
            return;
        }
        let admission = admission.clone();
        if self.begun > 0 {
            // Others may sleep on connections that are idler.
            self.house.ring_all();
        }
        for _ in 0..surplus(&admission) {
            // Other shards make room for the same newcomers.
            if surplus(&admission) == 0 {
                return;
            }
            let Some(handle) = self.next_idle(now) else {
                return;
            };
            let reason = TransportError::new(Code::NO_ERROR, "idle, and the server is full");
            if self.evict(handle, &reason) {
                count(&self.link.counts.evicted_for_newcomers);
            }
        }
    }

    /// The idlest connection that may be closed for a newcomer.
    fn next_idle(&mut self, now: Instant) -> Option<ConnectionHandle> {
        let patience = self.house.crowding.evict_idle_after;
        if self.crowd.idlest.is_empty() && now >= self.crowd.search_after {
            let connections = u32::try_from(self.table.len()).unwrap_or(u32::MAX);
            self.crowd.search_after = now + BETWEEN_SEARCHES.saturating_mul(connections);
            let idle = self.table.iter();
            let idle = idle.filter(|(_, entry)| entry.is_idle(now, patience));
            let mut idle: Vec<_> = idle
                .map(|(handle, entry)| (entry.activity.last, *handle))
                .collect();
            if idle.len() > FOUND_AT_ONCE {
                idle.select_nth_unstable(FOUND_AT_ONCE);
                idle.truncate(FOUND_AT_ONCE);
            }
            idle.sort_unstable();
            let handles = idle.into_iter().map(|(_, handle)| handle);
            self.crowd.idlest = handles.collect();
        }
        loop {
            let handle = self.crowd.idlest.pop_front()?;
            // It may have woken up since, or ended.
            let entry = self.table.get(&handle);
            if entry.is_some_and(|entry| entry.is_idle(now, patience)) {
                return Some(handle);
            }
        }
    }

    /// Ends a connection for want of room.
    fn evict(&mut self, handle: ConnectionHandle, reason: &TransportError) -> bool {
        let Some(entry) = self.table.get(&handle) else {
            return false;
        };
        let shared = entry.shared.clone();
        let evicted = shared.evict(reason);
        // The room is needed now, not after its next turn.
        self.forget_gone(&shared);
        self.release(shared);
        evicted
    }
}

impl Entry {
    fn is_server(&self) -> bool {
        self.role == Role::Server
    }

    fn is_idle(&self, now: Instant, patience: Duration) -> bool {
        let Activity {
            last,
            busy,
            moved: _,
        } = self.activity;
        self.is_server() && !busy && now.saturating_since(last) >= patience
    }
}

/// `excess · own / used`, rounded up.
fn part(excess: usize, own: usize, used: usize) -> usize {
    let share = (excess as u128).saturating_mul(own as u128);
    let part = share.div_ceil(used.max(1) as u128);
    usize::try_from(part).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_at_work_go_last_and_else_those_that_waste_most() {
        let waste = |millis, kib: usize, moved: u64| {
            Waste::of(Duration::from_millis(millis), kib << 10, moved << 10)
        };
        let order = [
            waste(60_000, 100, 0),
            // What it moved before it came to rest is past.
            waste(10_000, 100, 1 << 20),
            waste(10_000, 16, 0),
            waste(2_000, 16, 0),
            waste(1_999, 8_192, 0),
            waste(500, 8_192, 0),
            waste(500, 16, 0),
            // A download in full swing.
            waste(500, 8_192, 64 << 10),
            waste(0, 16, 0),
        ];
        assert!(order.windows(2).all(|pair| pair[0] > pair[1]), "{order:?}");
    }

    #[test]
    fn each_shard_frees_its_part_rounded_up() {
        assert_eq!(part(100, 500, 1_000), 50);
        assert_eq!(part(1, 1, 1_000), 1);
        assert_eq!(part(0, 500, 1_000), 0);
        assert_eq!(part(usize::MAX, usize::MAX, 1), usize::MAX);
        assert_eq!(part(5, 5, 0), 25);
    }
}
