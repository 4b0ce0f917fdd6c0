//! The order in which streams send: by eight urgencies, within each round-robin or in order
//! (RFC 9218 §4, §10).
//!
//! RFC 9218 §10 has responses that are not incremental sent one after the other. Taken literally, a
//! download without end keeps every later response of its connection waiting for ever, and a
//! sequence of small responses an incremental one. So nothing at one urgency waits for ever here:
//! a stream is alone in its turn for its first [`IN_ORDER`] bytes only, and where streams of both
//! kinds have data, they send frames alternately.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::StreamId;
use crate::memory;

/// The priority of a stream relative to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 (first) to 7 (last); larger values count as 7.
    pub urgency: u8,
    /// Shares bandwidth round-robin with streams of the same urgency. If false, the first 256 KiB
    /// of the stream are sent before those of streams with a larger ID; they take half of the
    /// frames while incremental streams have data, too. What is longer is incremental from there on.
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

/// How much of a stream is sent before the streams after it have their turn, bytes. Most of what a page
/// consists of is shorter, and is complete earlier if it is not interleaved.
const IN_ORDER: u64 = 256 << 10;

impl Priority {
    /// Returns the priority of a stream that has sent this many bytes.
    #[inline]
    pub(super) fn after(self, sent: u64) -> Self {
        Self {
            incremental: self.incremental || sent >= IN_ORDER,
            ..self
        }
    }
}

const LEVELS: usize = 8;

#[derive(Debug, Default)]
struct Level {
    in_order: BTreeSet<StreamId>,
    in_turn: BTreeSet<StreamId>,
    /// The last of `in_turn` that has sent a frame.
    served: Option<StreamId>,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.in_turn.is_empty()
    }

    /// Returns the next stream, given whether the last frame was of one in `in_order`.
    #[inline]
    fn next(&self, after_in_order: bool) -> Option<StreamId> {
        if let Some(&id) = self.in_order.first()
            && (self.in_turn.is_empty() || !after_in_order)
        {
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
    /// Bit `u` is set if the last frame at level `u` was of a stream that is sent in order.
    after_in_order: u8,
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
        let level = if urgency == USUAL {
            &self.usual
        } else {
            self.others.as_ref()?.get(urgency)?
        };
        level.next(self.after_in_order & (1 << urgency) != 0)
    }

    /// Records that `id` has sent a frame.
    pub(super) fn served(&mut self, id: StreamId, priority: Priority) {
        let urgency = usize::from(priority.urgency).min(LEVELS - 1);
        if priority.incremental {
            self.after_in_order &= !(1 << urgency);
            self.level(urgency).served = Some(id);
        } else {
            self.after_in_order |= 1 << urgency;
        }
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
        schedule.served(StreamId::from_wire(4), priority(3, true));
        assert_eq!(schedule.next().map(StreamId::as_u64), Some(12));
        schedule.insert(StreamId::from_wire(20), priority(0, false));
        assert_eq!(schedule.next().map(StreamId::as_u64), Some(20));
        schedule.remove(StreamId::from_wire(20), priority(0, false));
        schedule.remove(StreamId::from_wire(12), priority(3, false));
        assert_eq!(schedule.next().map(StreamId::as_u64), Some(16));
    }

    #[test]
    fn streams_in_order_and_in_turn_alternate() {
        let mut schedule = Schedule::default();
        let [in_order, in_turn] = [false, true].map(|incremental| priority(3, incremental));
        for id in [0, 4] {
            schedule.insert(StreamId::from_wire(id), in_turn);
        }
        for id in [8, 12] {
            schedule.insert(StreamId::from_wire(id), in_order);
        }
        let mut order = Vec::new();
        for _ in 0..6 {
            let id = schedule.next().unwrap();
            order.push(id.as_u64());
            let of = if id.as_u64() < 8 { in_turn } else { in_order };
            schedule.served(id, of);
        }
        assert_eq!(order, [8, 0, 8, 4, 8, 0]);
    }

    #[test]
    fn long_streams_become_incremental() {
        let in_order = priority(2, false);
        assert_eq!(in_order.after(IN_ORDER - 1), in_order);
        assert_eq!(in_order.after(IN_ORDER), priority(2, true));
        assert_eq!(priority(2, true).after(0), priority(2, true));
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
        assert!(size_of::<Schedule>() <= 80);
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

    #[test]
    fn urgency_out_of_range_is_removed_as_it_was_inserted() {
        let mut schedule = Schedule::default();
        let id = StreamId::from_wire(0);
        schedule.insert(id, priority(7, false));
        schedule.remove(id, priority(8, false));
        assert!(schedule.is_empty());
    }
}
