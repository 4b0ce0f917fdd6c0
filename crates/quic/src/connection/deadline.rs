//! How long a handshake may take: nothing that the peer sends extends it.

use super::Connection;
use super::life::{ConnectionError, Handshake};
use crate::{Instant, Role};

impl Connection {
    /// When the handshake is given up, while it runs.
    pub(crate) fn handshake_deadline(&self) -> Option<Instant> {
        if self.handshake != Handshake::Running {
            return None;
        }
        let began = self.recovery.limits().started();
        let waits_for_hello = self.role == Role::Server && self.keys.handshake.is_none();
        let hello = Some(self.config.client_hello_timeout).filter(|_| waits_for_hello);
        [hello, Some(self.config.handshake_timeout)]
            .into_iter()
            .flatten()
            .filter(|timeout| !timeout.is_zero())
            .map(|timeout| began + timeout)
            .min()
    }

    /// Gives up a handshake that takes too long, without a word to the peer, whose
    /// own deadline ends it: whoever waits for many handshakes at once has no
    /// room for the closing state of each. Does nothing once it is complete.
    ///
    /// An endpoint names those that are [overdue](crate::endpoint::Endpoint::next_overdue)
    /// under load; what [`Config`](super::Config) sets needs no call.
    pub fn expire_handshake(&mut self, now: Instant) {
        if self.handshake == Handshake::Running && self.life.is_open() {
            self.end_silently(now, ConnectionError::HandshakeTimeout);
        }
    }
}
