//! Observations in the order in which an end saw them, which is not that of the capture.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::super::connection::Observed;

/// An observation at this end's time.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) time: u64,
    /// Whether this end sent it.
    pub(super) sent: bool,
    pub(super) data: Observed,
    /// The order of those at one time.
    number: u64,
}

/// Observations by time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Queued>>,
    count: u64,
}

impl Queue {
    pub(super) fn push(&mut self, time: u64, sent: bool, data: Observed) {
        self.count = self.count.saturating_add(1);
        self.heap.push(Reverse(Queued {
            time,
            sent,
            data,
            number: self.count,
        }));
    }

    /// Takes the first observation, if it is not later than this.
    pub(super) fn pop_until(&mut self, time: u64) -> Option<Queued> {
        let Reverse(first) = self.heap.peek()?;
        if first.time > time {
            return None;
        }
        self.heap.pop().map(|Reverse(first)| first)
    }
}

impl Queued {
    const fn key(&self) -> (u64, u64) {
        (self.time, self.number)
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Queued {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_taken_by_time_and_then_as_they_came() {
        let mut queue = Queue::default();
        for (time, update) in [(5, 1), (3, 2), (5, 3), (4, 4)] {
            queue.push(time, false, Observed::KeyUpdate(update));
        }
        let mut taken = Vec::new();
        while let Some(next) = queue.pop_until(5) {
            let Observed::KeyUpdate(update) = next.data else {
                panic!("a key update")
            };
            taken.push((next.time, update));
        }
        assert_eq!(taken, [(3, 2), (4, 4), (5, 1), (5, 3)]);
        queue.push(6, true, Observed::KeyUpdate(0));
        assert!(queue.pop_until(5).is_none());
    }
}
