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
