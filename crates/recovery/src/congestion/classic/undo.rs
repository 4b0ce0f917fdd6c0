//! The reductions that may still be undone (RFC 9438 §4.9.2).

use std::collections::VecDeque;

use crate::controller::SendIndex;

use super::super::flight::LargestFlight;

/// Limit of reductions that are remembered: as many as loss recovery remembers congestion
/// events. Those dropped are never undone.
const MAX_UNDOS: usize = 8;

/// The state before a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo<M> {
    /// The boundary of the event, which identifies it.
    pub(super) event: SendIndex,
    /// The window before it: cwnd_prior.
    pub(super) window: u64,
    pub(super) ssthresh: Option<u64>,
    pub(super) boundary: SendIndex,
    pub(super) largest_flight: LargestFlight,
    pub(super) adjustment: M,
}

/// The reductions since the last one that is confirmed, oldest first.
///
/// If packets arrive later than a round trip, the next reduction follows before the proof that
/// the first one was spurious. With one slot the first could never be undone.
#[derive(Clone, Debug)]
pub(super) struct UndoLog<M>(VecDeque<Undo<M>>);

impl<M: Copy> UndoLog<M> {
    /// Creates an empty log, which allocates nothing.
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Remembers the state before a reduction. At the limit the oldest one is forgotten.
    pub(super) fn push(&mut self, undo: Undo<M>) {
        if self.0.len() == MAX_UNDOS {
            self.0.pop_front();
        }
        self.0.push_back(undo);
    }

    /// Forgets all: the congestion is confirmed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the newest entry.
    #[cfg(feature = "specimens")]
    pub(super) fn newest(&self) -> Option<&Undo<M>> {
        self.0.back()
    }

    /// Removes and returns the entry of an event.
    pub(super) fn take(&mut self, event: SendIndex) -> Option<Undo<M>> {
        let at = self.0.iter().position(|undo| undo.event == event)?;
        self.0.remove(at)
    }

    /// Returns the entries of later events, oldest first.
    pub(super) fn after(&mut self, event: SendIndex) -> impl Iterator<Item = &mut Undo<M>> {
        self.0.iter_mut().filter(move |undo| undo.event > event)
    }

    /// Returns whether there is an entry of a later event.
    pub(super) fn has_after(&self, event: SendIndex) -> bool {
        self.0.iter().any(|undo| undo.event > event)
    }
}
