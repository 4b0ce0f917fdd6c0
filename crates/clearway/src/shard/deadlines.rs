//! Which connection waits for when.

use std::collections::BTreeSet;

use clearway_quic::Instant;
use clearway_quic::endpoint::ConnectionHandle;

/// One connection's place among the deadlines.
///
/// A deadline that moves away, as idle and probe timeouts do with every packet,
/// leaves the place where it is: when that comes up the connection is put where
/// it belongs. So most packets touch nothing here, and a connection is never
/// called for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    wanted: Option<Instant>,
    listed: Option<Instant>,
}

/// All connections' deadlines, in order.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    listed: BTreeSet<(Instant, ConnectionHandle)>,
}

impl Deadlines {
    /// The connection now waits for `wanted`.
    pub(super) fn set(
        &mut self,
        handle: ConnectionHandle,
        place: &mut Place,
        wanted: Option<Instant>,
    ) {
        place.wanted = wanted;
        let Some(wanted) = wanted else {
            return;
        };
        match place.listed {
            Some(listed) if listed <= wanted => {}
            Some(listed) => {
                self.listed.remove(&(listed, handle));
                self.list(handle, place, wanted);
            }
            None => self.list(handle, place, wanted),
        }
    }

    fn list(&mut self, handle: ConnectionHandle, place: &mut Place, at: Instant) {
        self.listed.insert((at, handle));
        place.listed = Some(at);
    }

    /// The connection is gone.
    pub(super) fn remove(&mut self, handle: ConnectionHandle, place: Place) {
        if let Some(listed) = place.listed {
            self.listed.remove(&(listed, handle));
        }
    }

    /// When to wake up.
    pub(super) fn next(&self) -> Option<Instant> {
        self.listed.first().map(|(at, _)| *at)
    }

    /// The next connection whose place has come up by `now`; ask
    /// [`is_due`](Self::is_due) about it.
    pub(super) fn pop(&mut self, now: Instant) -> Option<ConnectionHandle> {
        let (at, _) = self.listed.first()?;
        if *at > now {
            return None;
        }
        self.listed.pop_first().map(|(_, handle)| handle)
    }

    /// Whether what the connection waits for has come, after [`pop`](Self::pop);
    /// if not it is listed anew.
    pub(super) fn is_due(
        &mut self,
        handle: ConnectionHandle,
        place: &mut Place,
        now: Instant,
    ) -> bool {
        place.listed = None;
        match place.wanted {
            Some(wanted) if wanted <= now => {
                place.wanted = None;
                true
            }
            Some(wanted) => {
                self.list(handle, place, wanted);
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
    fn a_deadline_that_moves_away_is_met_once_and_late_enough() {
        let mut deadlines = Deadlines::default();
        let mut place = Place::default();
        deadlines.set(A, &mut place, Some(at(10)));
        deadlines.set(A, &mut place, Some(at(30)));
        assert_eq!(deadlines.next(), Some(at(10)));
        assert_eq!(deadlines.pop(at(9)), None);
        assert_eq!(deadlines.pop(at(10)), Some(A));
        assert!(!deadlines.is_due(A, &mut place, at(10)));
        assert_eq!(deadlines.next(), Some(at(30)));
        assert_eq!(deadlines.pop(at(30)), Some(A));
        assert!(deadlines.is_due(A, &mut place, at(30)));
        assert_eq!(deadlines.next(), None);
        assert_eq!(deadlines.pop(at(100)), None);
    }

    #[test]
    fn a_deadline_that_comes_nearer_replaces_the_later() {
        let mut deadlines = Deadlines::default();
        let (mut a, mut b) = (Place::default(), Place::default());
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
    fn none_is_never_due_and_removal_forgets() {
        let mut deadlines = Deadlines::default();
        let (mut a, mut b) = (Place::default(), Place::default());
        deadlines.set(A, &mut a, Some(at(5)));
        deadlines.set(A, &mut a, None);
        deadlines.set(B, &mut b, Some(at(7)));
        deadlines.remove(B, b);
        assert_eq!(deadlines.pop(at(9)), Some(A));
        assert!(!deadlines.is_due(A, &mut a, at(9)));
        assert_eq!(deadlines.next(), None);
    }
}
