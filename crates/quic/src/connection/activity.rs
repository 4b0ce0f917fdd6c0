//! When a connection was last of use to anybody: what decides which one goes when
//! there are too many.

use super::Connection;
use crate::Instant;

impl Connection {
    /// When stream data or a DATAGRAM last arrived for the first time, or was
    /// acknowledged for the first time; before that, when the handshake was complete,
    /// and before that, when the connection began. A packet that moves none of it,
    /// such as a PING, an ACK of one or a repetition, does not count.
    #[must_use]
    pub fn last_activity(&self) -> Instant {
        self.last_activity
    }

    /// A datagram was taken in.
    pub(crate) fn note_activity(&mut self, now: Instant) {
        if self.streams.take_progress() {
            self.last_activity = now;
        }
    }
}
