//! The deadlines of connections, in order.

use std::collections::BTreeSet;

use clearway_quic::Instant;
use clearway_quic::endpoint::ConnectionHandle;

/// The deadline of one connection.
///
/// A deadline that is postponed, as idle and probe timeouts are with every packet, leaves the
/// entry in the list where it is; when that entry is due, the connection is listed again at
/// its real deadline. So most packets change nothing here, and no connection is called too
/// early. Before the loop waits, the first entries are [refreshed](Deadlines::refresh), so that it does
/// not wake up for them in vain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeadlineSlot {
    wanted: Option<Instant>,
    listed: Option<Instant>,
}

/// All connections' deadlines, in order.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    listed: BTreeSet<(Instant, ConnectionHandle)>,
}

impl Deadlines {
    /// Sets the deadline of the connection; `None` if it has none.
    pub(super) fn set(
        &mut self,
        handle: ConnectionHandle,
        slot: &mut DeadlineSlot,
        wanted: Option<Instant>,
    ) {
        slot.wanted = wanted;
        let Some(wanted) = wanted else {
            return;
        };
        match slot.listed {
            Some(listed) if listed <= wanted => {}
            Some(listed) => {
                self.listed.remove(&(listed, handle));
                self.list(handle, slot, wanted);
            }
            None => self.list(handle, slot, wanted),
        }
    }

    fn list(&mut self, handle: ConnectionHandle, slot: &mut DeadlineSlot, at: Instant) {
        self.listed.insert((at, handle));
        slot.listed = Some(at);
    }

    /// Removes the deadline of a connection.
    pub(super) fn remove(&mut self, handle: ConnectionHandle, slot: DeadlineSlot) {
        if let Some(listed) = slot.listed {
            self.listed.remove(&(listed, handle));
        }
    }

    /// Returns when to wake up for the first entry, and for which connection.
    pub(super) fn first(&self) -> Option<(Instant, ConnectionHandle)> {
        self.listed.first().copied()
    }

    /// Moves the entry of a connection whose deadline was postponed or cleared. Returns whether
    /// it was.
    pub(super) fn refresh(&mut self, handle: ConnectionHandle, slot: &mut DeadlineSlot) -> bool {
        let Some(listed) = slot.listed else {
            return false;
        };
        if slot.wanted.is_some_and(|wanted| wanted <= listed) {
            return false;
        }
        self.listed.remove(&(listed, handle));
        slot.listed = None;
        if let Some(wanted) = slot.wanted {
            self.list(handle, slot, wanted);
        }
        true
    }

    /// Returns the next connection whose entry is due by `now`. Whether its deadline is due too
    /// is returned by [`is_due`](Self::is_due).
    pub(super) fn pop(&mut self, now: Instant) -> Option<ConnectionHandle> {
        let (at, _) = self.listed.first()?;
        if *at > now {
            return None;
        }
        self.listed.pop_first().map(|(_, handle)| handle)
    }

    /// Whether the deadline of a connection returned by [`pop`](Self::pop) is due. If not, it is
    /// listed again.
    pub(super) fn is_due(
        &mut self,
        handle: ConnectionHandle,
        slot: &mut DeadlineSlot,
        now: Instant,
    ) -> bool {
        slot.listed = None;
        match slot.wanted {
            Some(wanted) if wanted <= now => {
                slot.wanted = None;
                true
            }
            Some(wanted) => {
                self.list(handle, slot, wanted);
                false
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionHandle = ConnectionHandle(1);
    const B: ConnectionHandle = ConnectionHandle(2);

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn postponed_deadline_fires_once_and_not_early() {
        let mut deadlines = Deadlines::default();
        let mut slot = DeadlineSlot::default();
        deadlines.set(A, &mut slot, Some(at(10)));
        deadlines.set(A, &mut slot, Some(at(30)));
        assert_eq!(deadlines.first(), Some((at(10), A)));
        assert_eq!(deadlines.pop(at(9)), None);
        assert_eq!(deadlines.pop(at(10)), Some(A));
        assert!(!deadlines.is_due(A, &mut slot, at(10)));
        assert_eq!(deadlines.first(), Some((at(30), A)));
        assert_eq!(deadlines.pop(at(30)), Some(A));
        assert!(deadlines.is_due(A, &mut slot, at(30)));
        assert_eq!(deadlines.first(), None);
        assert_eq!(deadlines.pop(at(100)), None);
    }

    #[test]
    fn earlier_deadline_replaces_a_later_one() {
        let mut deadlines = Deadlines::default();
        let (mut a, mut b) = (DeadlineSlot::default(), DeadlineSlot::default());
        deadlines.set(A, &mut a, Some(at(50)));
        deadlines.set(B, &mut b, Some(at(40)));
        deadlines.set(A, &mut a, Some(at(20)));
        assert_eq!(deadlines.pop(at(60)), Some(A));
        assert!(deadlines.is_due(A, &mut a, at(60)));
        assert_eq!(deadlines.pop(at(60)), Some(B));
        assert!(deadlines.is_due(B, &mut b, at(60)));
        assert_eq!(deadlines.pop(at(60)), None);
    }

    #[test]
    fn refreshed_entry_is_where_the_deadline_is() {
        let mut deadlines = Deadlines::default();
        let (mut a, mut b) = (DeadlineSlot::default(), DeadlineSlot::default());
        deadlines.set(A, &mut a, Some(at(10)));
        deadlines.set(B, &mut b, Some(at(20)));
        assert!(!deadlines.refresh(A, &mut a), "it is there");
        deadlines.set(A, &mut a, Some(at(30)));
        assert!(deadlines.refresh(A, &mut a));
        assert_eq!(deadlines.first(), Some((at(20), B)));
        deadlines.set(B, &mut b, None);
        assert!(deadlines.refresh(B, &mut b));
        assert!(!deadlines.refresh(B, &mut b), "it is not listed");
        assert_eq!(deadlines.first(), Some((at(30), A)));
        deadlines.set(B, &mut b, Some(at(25)));
        assert_eq!(deadlines.first(), Some((at(25), B)));
        assert_eq!(deadlines.pop(at(25)), Some(B));
        assert!(deadlines.is_due(B, &mut b, at(25)));
    }

    #[test]
    fn cleared_and_removed_deadlines_never_fire() {
        let mut deadlines = Deadlines::default();
        let (mut a, mut b) = (DeadlineSlot::default(), DeadlineSlot::default());
        deadlines.set(A, &mut a, Some(at(5)));
        deadlines.set(A, &mut a, None);
        deadlines.set(B, &mut b, Some(at(7)));
        deadlines.remove(B, b);
        assert_eq!(deadlines.pop(at(9)), Some(A));
        assert!(!deadlines.is_due(A, &mut a, at(9)));
        assert_eq!(deadlines.first(), None);
    }
}
