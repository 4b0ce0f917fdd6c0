//! Sorting of events by time.

use core::cmp::{Ordering, Reverse};
use core::fmt;
use std::collections::{BinaryHeap, VecDeque};

use clearway_trace::event::Event;

/// Maximum number of events held back for sorting. Threads that write to one file are out of step
/// by far less.
const WINDOW: usize = 1 << 16;

/// Sorts events that are nearly in order of time, and keeps the file's order where times are equal,
/// with bounded memory.
#[derive(Debug, Default)]
pub(crate) struct EventSorter {
    /// Those that came in order: nearly all.
    held: VecDeque<QueuedEvent>,
    /// Those that came after a later one.
    late: BinaryHeap<Reverse<QueuedEvent>>,
    taken: u64,
    /// The time of the last event returned.
    last: u64,
}

#[derive(Debug)]
struct QueuedEvent {
    number: u64,
    event: Event,
}

impl QueuedEvent {
    const fn key(&self) -> (u64, u64) {
        (self.event.time, self.number)
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for QueuedEvent {}

/// An event that is earlier than one already returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl fmt::Display for OutOfOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "events are out of order: an event is earlier than one {WINDOW} events before it; \
             sort the file by time"
        )
    }
}

impl std::error::Error for OutOfOrder {}

impl EventSorter {
    /// Adds an event, and returns the earliest if enough are held.
    pub(crate) fn push(&mut self, event: Event) -> Result<Option<Event>, OutOfOrder> {
        if event.time < self.last {
            return Err(OutOfOrder);
        }
        let number = self.taken;
        self.taken += 1;
        let queued = QueuedEvent { number, event };
        if self.held.back().is_none_or(|last| *last < queued) {
            self.held.push_back(queued);
        } else {
            self.late.push(Reverse(queued));
        }
        if self.held.len() + self.late.len() <= WINDOW {
            return Ok(None);
        }
        let earliest = self.pop();
        self.last = earliest.as_ref().map_or(self.last, |event| event.time);
        Ok(earliest)
    }

    /// The earliest event held.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let next = match (self.held.front(), self.late.peek()) {
            (Some(held), Some(Reverse(late))) if held < late => self.held.pop_front(),
            (Some(_), None) => self.held.pop_front(),
            (_, _) => self.late.pop().map(|Reverse(late)| late),
        };
        next.map(|queued| queued.event)
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

    fn all(mut ordered: EventSorter) -> Vec<Event> {
        core::iter::from_fn(|| ordered.pop()).collect()
    }

    #[test]
    fn nearly_sorted_events_are_sorted_stably() {
        let mut ordered = EventSorter::default();
        for (time, new) in [(5, 0), (7, 1), (5, 2), (6, 3), (5, 4)] {
            assert_eq!(ordered.push(event(time, new)), Ok(None));
        }
        let expected = [(5, 0), (5, 2), (5, 4), (6, 3), (7, 1)];
        let expected = expected.map(|(time, new)| event(time, new));
        assert_eq!(all(ordered), expected);
    }

    #[test]
    fn event_earlier_than_the_sort_window_is_rejected() {
        let mut ordered = EventSorter::default();
        let window = WINDOW as u64;
        for time in 0..window {
            assert_eq!(ordered.push(event(10 + time, 0)), Ok(None));
        }
        assert_eq!(ordered.push(event(11, 1)), Ok(Some(event(10, 0))));
        assert_eq!(ordered.push(event(9, 0)), Err(OutOfOrder));
    }
}
