//! The order in which streams send: by eight urgencies, within each round-robin or in order
//! (RFC 9218 §4, §10).

use std::collections::BTreeSet;
use std::ops::Bound;

use super::StreamId;
use crate::memory;

/// The priority of a stream relative to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 (first) to 7 (last); larger values count as 7.
    pub urgency: u8,
    /// Shares bandwidth round-robin with streams of the same urgency. If false, the stream is sent
    /// to its end, in order of ID, before those.
    pub incremental: bool,
}

impl Default for Priority {
    /// Urgency 3 as in RFC 9218 §4.1, but incremental: without HTTP, a bulk stream must not starve a
    /// control stream opened after it.
    fn default() -> Self {
        Self {
            urgency: 3,
            incremental: true,
        }
    }
}

const LEVELS: usize = 8;

#[derive(Debug, Default)]
struct Level {
    in_order: BTreeSet<StreamId>,
    in_turn: BTreeSet<StreamId>,
    served: Option<StreamId>,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.in_turn.is_empty()
    }

    #[inline]
    fn next(&self) -> Option<StreamId> {
        if let Some(&id) = self.in_order.first() {
            return Some(id);
        }
        let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.in_turn.range((after, Bound::Unbounded)).next();
        next.or_else(|| self.in_turn.first()).copied()
    }
}

/// The default urgency.
const USUAL: usize = 3;

/// The streams that can send, so that the others need not be looked at.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Level [`USUAL`].
    usual: Level,
    /// The other levels, allocated when one of them is used. Most connections never use one, and
    /// they would take half a kilobyte in each of two schedules.
    others: Option<Box<[Level; LEVELS]>>,
    /// Bit `u` is set while level `u` holds a stream.
    occupied: u8,
}

impl Schedule {
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    #[inline]
    fn level(&mut self, urgency: usize) -> &mut Level {
        if urgency == USUAL {
            &mut self.usual
        } else {
            let others = self.others.get_or_insert_default();
            others.get_mut(urgency).unwrap_or(&mut self.usual)
        }
    }

    pub(super) fn insert(&mut self, id: StreamId, priority: Priority) {
        let urgency = usize::from(priority.urgency).min(LEVELS - 1);
        let level = self.level(urgency);
        if priority.incremental {
            level.in_turn.insert(id);
        } else {
            level.in_order.insert(id);
        }
        self.occupied |= 1 << urgency;
    }

    pub(super) fn remove(&mut self, id: StreamId, priority: Priority) {
        let urgency = usize::from(priority.urgency).min(LEVELS - 1);
        let level = self.level(urgency);
        if priority.incremental {
            level.in_turn.remove(&id);
        } else {
            level.in_order.remove(&id);
        }
        if level.is_empty() {
            self.occupied &= !(1 << urgency);
        }
    }

    /// Frees the levels that only few connections use.
    pub(super) fn release_memory(&mut self) {
        if self.occupied & !(1 << USUAL) == 0 {
            self.others = None;
        }
        if self.usual.is_empty() {
            // A tree that was emptied keeps a node.
            self.usual.in_order = BTreeSet::new();
            self.usual.in_turn = BTreeSet::new();
        }
    }

    /// Returns the allocated memory in bytes.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(super) fn memory(&self) -> usize {
        let others = self.others.iter().flat_map(|others| others.iter());
        let levels = others.chain([&self.usual]);
        levels
            .map(|level| memory::btree_set(&level.in_order) + memory::btree_set(&level.in_turn))
            .sum::<usize>()
            + self.others.as_deref().map_or(0, size_of_val)
    }

    /// Returns the next stream to send, which stays scheduled.
    #[inline]
    pub(super) fn next(&self) -> Option<StreamId> {
        let urgency = self.occupied.trailing_zeros() as usize;
        if urgency == USUAL {
            return self.usual.next();
        }
        self.others.as_ref()?.get(urgency)?.next()
    }

    /// Records that `id` has sent a frame.
    pub(super) fn served(&mut self, id: StreamId, priority: Priority) {
        let urgency = usize::from(priority.urgency).min(LEVELS - 1);
        self.level(urgency).served = Some(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority {
            urgency,
            incremental,
        }
    }

    fn serve(schedule: &mut Schedule, priority: Priority, turns: usize) -> Vec<u64> {
        (0..turns)
            .filter_map(|_| {
                let id = schedule.next()?;
                schedule.served(id, priority);
                Some(id.as_u64())
            })
            .collect()
    }

    #[test]
    fn schedule_is_by_urgency_then_order_then_round_robin() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next(), None);
        for id in [8, 4, 0] {
            schedule.insert(StreamId::from_wire(id), priority(3, true));
        }
        assert_eq!(serve(&mut schedule, priority(3, true), 5), [0, 4, 8, 0, 4]);
        for id in [16, 12] {
            schedule.insert(StreamId::from_wire(id), priority(3, false));
        }
        assert_eq!(serve(&mut schedule, priority(3, false), 2), [12, 12]);
        schedule.insert(StreamId::from_wire(20), priority(0, false));
        assert_eq!(schedule.next().map(StreamId::as_u64), Some(20));
        schedule.remove(StreamId::from_wire(20), priority(0, false));
        schedule.remove(StreamId::from_wire(12), priority(3, false));
        assert_eq!(schedule.next().map(StreamId::as_u64), Some(16));
    }

    #[test]
    fn default_urgency_needs_no_allocation() {
        let mut schedule = Schedule::default();
        let id = StreamId::from_wire(0);
        schedule.insert(id, Priority::default());
        schedule.remove(id, Priority::default());
        assert_eq!(schedule.memory(), 0);
        schedule.insert(id, priority(4, true));
        assert_eq!(schedule.next(), Some(id));
        assert!(schedule.memory() > size_of::<[Level; LEVELS]>());
        assert!(size_of::<Schedule>() <= 96);
    }

    #[test]
    fn urgency_out_of_range_is_lowest() {
        let mut schedule = Schedule::default();
        let id = StreamId::from_wire(0);
        schedule.insert(id, priority(255, false));
        assert_eq!(schedule.next(), Some(id));
        schedule.remove(id, priority(7, false));
        assert!(schedule.is_empty());
    }
}
