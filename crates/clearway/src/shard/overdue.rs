//! Silent clients whose timers have expired.
//!
//! A client that completes its handshake and is not heard of again costs several probes, until its
//! connection is closed. A flood of such clients causes them at their own time, however few
//! handshakes begin. A probe, which has waited for at least a probe timeout, loses nothing by
//! some milliseconds more, so these wait while others are served
//! ([`HandshakePace`](super::handshake_pace::HandshakePace)).

use std::collections::VecDeque;

use clearway_quic::endpoint::ConnectionHandle;

/// The clients, the first timer to expire first. Each is there once.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    queue: VecDeque<ConnectionHandle>,
}

impl Overdue {
    /// Adds a connection, unless it `is_overdue` already.
    pub(super) fn push(&mut self, handle: ConnectionHandle, is_overdue: &mut bool) {
        if !std::mem::replace(is_overdue, true) {
            self.queue.push_back(handle);
        }
    }

    /// Removes the connection that has waited longest. It may have ended since.
    pub(super) fn pop(&mut self) -> Option<ConnectionHandle> {
        self.queue.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_whose_timer_expires_again_keeps_its_place() {
        let [a, b] = [1, 2].map(ConnectionHandle);
        let (mut a_waits, mut b_waits) = (false, false);
        let mut overdue = Overdue::default();
        assert!(overdue.is_empty());
        overdue.push(a, &mut a_waits);
        overdue.push(b, &mut b_waits);
        overdue.push(a, &mut a_waits);
        assert!(a_waits && b_waits);
        assert_eq!(overdue.pop(), Some(a));
        assert_eq!(overdue.pop(), Some(b));
        assert_eq!(overdue.pop(), None);
    }
}
