//! Events in the order of their times.

use core::cmp::{Ordering, Reverse};
use core::fmt;
use std::collections::BinaryHeap;

use clearway_trace::event::Event;

/// Events that are held to see whether an earlier one follows. Threads that
/// write to one file are out of step by far less.
const WINDOW: usize = 1 << 16;

/// Sorts what is nearly sorted, in the file's order where times are the same,
/// without holding more than a part of it.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    held: BinaryHeap<Reverse<Held>>,
    taken: u64,
    /// The time of the last event given back.
    last: u64,
}

#[derive(Debug)]
struct Held {
    number: u64,
    event: Event,
}

impl Held {
    const fn key(&self) -> (u64, u64) {
        (self.event.time, self.number)
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

/// An event that belongs before one that was given back: nobody can judge this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLate;

impl fmt::Display for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "its times are in no order: an event is earlier than one {WINDOW} events before it; \
             sort the file by time"
        )
    }
}

impl std::error::Error for TooLate {}

impl Ordered {
    /// Takes an event, and gives the earliest back if enough are held.
    pub(super) fn push(&mut self, event: Event) -> Result<Option<Event>, TooLate> {
        if event.time < self.last {
            return Err(TooLate);
        }
        let number = self.taken;
        self.taken += 1;
        self.held.push(Reverse(Held { number, event }));
        if self.held.len() <= WINDOW {
            return Ok(None);
        }
        let earliest = self.pop();
        self.last = earliest.as_ref().map_or(self.last, |event| event.time);
        Ok(earliest)
    }

    /// The earliest that is held.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.held.pop().map(|Reverse(held)| held.event)
    }
}

#[cfg(test)]
mod tests {
    use clearway_trace::event::EventData;

    use super::*;

    fn event(time: u64, new: u64) -> Event {
        let data = EventData::MtuUpdated { old: None, new };
        Event { time, data }
    }

    fn all(mut ordered: Ordered) -> Vec<Event> {
        core::iter::from_fn(|| ordered.pop()).collect()
    }

    #[test]
    fn what_is_nearly_sorted_is_sorted_and_ties_stay() {
        let mut ordered = Ordered::default();
        for (time, new) in [(5, 0), (7, 1), (5, 2), (6, 3), (5, 4)] {
            assert_eq!(ordered.push(event(time, new)), Ok(None));
        }
        let expected = [(5, 0), (5, 2), (5, 4), (6, 3), (7, 1)];
        let expected = expected.map(|(time, new)| event(time, new));
        assert_eq!(all(ordered), expected);
    }

    #[test]
    fn only_a_window_is_held_and_what_is_later_than_that_is_refused() {
        let mut ordered = Ordered::default();
        let window = WINDOW as u64;
        for time in 0..window {
            assert_eq!(ordered.push(event(10 + time, 0)), Ok(None));
        }
        assert_eq!(ordered.push(event(11, 1)), Ok(Some(event(10, 0))));
        assert_eq!(ordered.push(event(9, 0)), Err(TooLate));
    }
}
