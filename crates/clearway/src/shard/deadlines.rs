//! The deadlines of connections, in order.

use std::collections::BTreeSet;

use clearway_quic::Instant;
use clearway_quic::endpoint::ConnectionHandle;

/// The deadline of one connection.
///
/// A deadline that is postponed, as idle and probe timeouts are with every packet, leaves the
/// entry in the list where it is; when that entry is due, the connection is listed again at
/// its real deadline. So most packets change nothing here, and no connection is called too
/// early.
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

    /// Returns when to wake up.
    pub(super) fn next(&self) -> Option<Instant> {
        self.listed.first().map(|(at, _)| *at)
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
        assert_eq!(deadlines.next(), Some(at(10)));
        assert_eq!(deadlines.pop(at(9)), None);
        assert_eq!(deadlines.pop(at(10)), Some(A));
        assert!(!deadlines.is_due(A, &mut slot, at(10)));
        assert_eq!(deadlines.next(), Some(at(30)));
        assert_eq!(deadlines.pop(at(30)), Some(A));
        assert!(deadlines.is_due(A, &mut slot, at(30)));
        assert_eq!(deadlines.next(), None);
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
    fn cleared_and_removed_deadlines_never_fire() {
        let mut deadlines = Deadlines::default();
        let (mut a, mut b) = (DeadlineSlot::default(), DeadlineSlot::default());
        deadlines.set(A, &mut a, Some(at(5)));
        deadlines.set(A, &mut a, None);
        deadlines.set(B, &mut b, Some(at(7)));
        deadlines.remove(B, b);
        assert_eq!(deadlines.pop(at(9)), Some(A));
        assert!(!deadlines.is_due(A, &mut a, at(9)));
        assert_eq!(deadlines.next(), None);
    }
}
