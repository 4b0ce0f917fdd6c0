//! What happens next.

use clearway_links::{EventHeap, Time};

/// What an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A link has something to deliver.
    Link(usize),
    /// A host's timer.
    Node(usize),
}

/// Moments without the clock moving that mean a busy loop.
const MAX_STALLED: u32 = 10_000;

/// The clock was asked [`MAX_STALLED`] times in a row to go nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stalled {
    /// How many times.
    pub(super) calls: u32,
}

/// The one event heap.
///
/// Each source has one entry that counts. A timer that moves away leaves its
/// entry where it is; when that comes up, the source says when it really wants
/// to be called. So a probe timer that is put off with every packet costs
/// nothing.
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

    /// `source` wants to be called at `at`, if at all.
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

    /// The next source due at `now`. It has no entry afterwards.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Source> {
        while let Some((at, source)) = self.heap.pop_due(now) {
            let entry = self.entry(source);
            // An entry that was overtaken by an earlier one is void.
            if *entry == Some(at) {
                *entry = None;
                return Some(source);
            }
        }
        None
    }

    /// The clock goes from `now` to `next`; it never goes back.
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
    fn a_source_is_called_once_at_its_earliest_time() {
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
    fn a_clock_that_stands_still_is_noticed() {
        let mut agenda = Agenda::new(0);
        let stuck = (0..20_000).find_map(|_| agenda.move_to(Time(1), Time(1)).err());
        let calls = MAX_STALLED + 1;
        assert_eq!(stuck, Some(Stalled { calls }));
    }
}
