//! The event queue of a world.

use clearway_links::{EventHeap, Time};

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A link has something to deliver.
    Link(usize),
    /// A host's timer.
    Node(usize),
}

/// Number of events without time advancing that mean a busy loop.
const MAX_STALLED: u32 = 10_000;

/// The clock did not advance for [`MAX_STALLED`] events in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stalled {
    /// How many.
    pub(super) calls: u32,
}

/// The event heap.
///
/// Each source has one valid entry. A timer that moves to a later time leaves its entry where it
/// is; when that comes up, the source gives the current time. So a probe timer that is postponed
/// with every packet costs nothing.
#[derive(Debug)]
pub(super) struct Agenda {
    heap: EventHeap<Source>,
    links: Vec<Option<Time>>,
    nodes: Vec<Option<Time>>,
    stalled: u32,
}

impl Agenda {
    pub(super) fn new(links: usize) -> Self {
        Self {
            heap: EventHeap::new(),
            links: vec![None; links],
            nodes: Vec::new(),
            stalled: 0,
        }
    }

    pub(super) fn grow_links(&mut self, by: usize) {
        self.links.resize(self.links.len() + by, None);
    }

    pub(super) fn grow_nodes(&mut self, by: usize) {
        self.nodes.resize(self.nodes.len() + by, None);
    }

    fn entry(&mut self, source: Source) -> &mut Option<Time> {
        match source {
            Source::Link(index) => &mut self.links[index],
            Source::Node(index) => &mut self.nodes[index],
        }
    }

    /// Schedules `source` at `at`, or not at all.
    pub(super) fn schedule(&mut self, source: Source, at: Option<Time>) {
        let Some(at) = at else { return };
        let entry = self.entry(source);
        if entry.is_none_or(|earlier| at < earlier) {
            *entry = Some(at);
            self.heap.push(at, source);
        }
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.next_time()
    }

    /// The next source due at `now`. Its entry is removed.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Source> {
        while let Some((at, source)) = self.heap.pop_due(now) {
            let entry = self.entry(source);
            // An entry that an earlier one has replaced is void.
            if *entry == Some(at) {
                *entry = None;
                return Some(source);
            }
        }
        None
    }

    /// Advances the clock from `now` to `next`; it never goes back.
    pub(super) fn move_to(&mut self, now: Time, next: Time) -> Result<Time, Stalled> {
        self.stalled = if next > now { 0 } else { self.stalled + 1 };
        if self.stalled > MAX_STALLED {
            return Err(Stalled {
                calls: self.stalled,
            });
        }
        Ok(next.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_fires_once_at_its_earliest_time() {
        let mut agenda = Agenda::new(1);
        agenda.grow_nodes(1);
        agenda.schedule(Source::Node(0), Some(Time(9)));
        agenda.schedule(Source::Node(0), Some(Time(5)));
        agenda.schedule(Source::Node(0), Some(Time(7)));
        agenda.schedule(Source::Link(0), Some(Time(5)));
        assert_eq!(agenda.next_time(), Some(Time(5)));
        assert_eq!(agenda.pop_due(Time(5)), Some(Source::Node(0)));
        assert_eq!(agenda.pop_due(Time(5)), Some(Source::Link(0)));
        assert_eq!(agenda.pop_due(Time(9)), None, "the overtaken entry is void");
    }

    #[test]
    fn time_that_does_not_advance_is_detected() {
        let mut agenda = Agenda::new(0);
        let stuck = (0..20_000).find_map(|_| agenda.move_to(Time(1), Time(1)).err());
        let calls = MAX_STALLED + 1;
        assert_eq!(stuck, Some(Stalled { calls }));
    }
}
