//! The event heap: a queue of events by time, and by insertion order at equal times.

use core::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::Time;

/// Events ordered by time; events of the same time leave in the order in which they were pushed.
///
/// Events pushed in time order, as packets on a link are, go to a plain ring; only those that
/// precede earlier pushes pay for the heap.
#[derive(Clone, Debug)]
pub struct EventHeap<T> {
    ordered: VecDeque<Entry<T>>,
    early: BinaryHeap<Entry<T>>,
    next_sequence: u64,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    at: Time,
    sequence: u64,
    event: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.sequence)
    }
}

impl<T> EventHeap<T> {
    /// An empty heap.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ordered: VecDeque::new(),
            early: BinaryHeap::new(),
            next_sequence: 0,
        }
    }

    /// Adds `event`, due at `at`.
    pub fn push(&mut self, at: Time, event: T) {
        let entry = Entry {
            at,
            sequence: self.next_sequence,
            event,
        };
        self.next_sequence += 1;
        match self.ordered.back() {
            Some(last) if last.at > at => self.early.push(entry),
            Some(_) | None => self.ordered.push_back(entry),
        }
    }

    /// When the next event is due.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        let ordered = self.ordered.front().map(|entry| entry.at);
        let early = self.early.peek().map(|entry| entry.at);
        match (ordered, early) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes the next event and its time.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let from_early = match (self.ordered.front(), self.early.peek()) {
            (Some(ordered), Some(early)) => early.key() < ordered.key(),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let entry = if from_early {
            self.early.pop()
        } else {
            self.ordered.pop_front()
        };
        entry.map(|entry| (entry.at, entry.event))
    }

    /// Takes the next event if it is due at or before `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, T)> {
        if self.next_time()? <= now {
            self.pop()
        } else {
            None
        }
    }

    /// Events waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ordered.len() + self.early.len()
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ordered.is_empty() && self.early.is_empty()
    }
}

impl<T> Default for EventHeap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed: `BinaryHeap` pops its greatest, and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_at_equal_times_pop_in_push_order() {
        let mut heap = EventHeap::new();
        heap.push(Time(9), "late");
        heap.push(Time(5), "first");
        heap.push(Time(5), "second");
        heap.push(Time(9), "later");
        let order: Vec<_> = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!(
            order,
            [
                (Time(5), "first"),
                (Time(5), "second"),
                (Time(9), "late"),
                (Time(9), "later")
            ]
        );
    }

    #[test]
    fn only_due_events_are_taken() {
        let mut heap = EventHeap::new();
        heap.push(Time(5), ());
        assert_eq!(heap.pop_due(Time(4)), None);
        assert_eq!(heap.pop_due(Time(5)), Some((Time(5), ())));
        assert!(heap.is_empty());
    }

    proptest! {
        /// Interleaved pushes and pops agree with a stable sort.
        #[test]
        fn event_heap_matches_a_stable_sort(
            steps in prop::collection::vec((0u64..20, prop::bool::weighted(0.3)), 0..200)
        ) {
            let mut heap = EventHeap::new();
            let mut model: Vec<(Time, usize)> = Vec::new();
            for (id, (at, pop)) in steps.into_iter().enumerate() {
                heap.push(Time(at), id);
                model.push((Time(at), id));
                if pop {
                    let best = (0..model.len()).min_by_key(|&i| model[i]);
                    prop_assert_eq!(heap.next_time(), best.map(|i| model[i].0));
                    prop_assert_eq!(heap.pop(), best.map(|i| model.remove(i)));
                }
                prop_assert_eq!(heap.len(), model.len());
            }
            model.sort();
            let rest: Vec<_> = std::iter::from_fn(|| heap.pop()).collect();
            prop_assert_eq!(rest, model);
        }
    }
}
