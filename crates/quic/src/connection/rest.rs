//! Idle connections release memory that is kept for reuse: a server has far more idle than
//! busy connections.
//!
//! A connection *rests* after a second ([`REST_AFTER`](super::timers::REST_AFTER)) without
//! packets and with nothing in flight. So requests that follow each other reuse memory, and
//! what is released is allocated again once a second at most.

use super::Connection;
use super::reusable::Reusable;
use super::state::HandshakeState;
use crate::Instant;

impl Connection {
    /// Rests if it is time and nothing is in flight. Returns whether it was time.
    pub(crate) fn on_rest_timeout(&mut self, now: Instant) -> bool {
        if self.timers.rest.is_none_or(|at| now < at) {
            return false;
        }
        self.timers.rest = None;
        // With something in flight, a packet will be received or sent, which restarts the
        // timer.
        if self.lifecycle.handshake == HandshakeState::Confirmed && self.has_nothing_in_flight() {
            self.rest();
        }
        true
    }

    /// Returns true once after the connection has released memory, so that its owner can do
    /// the same.
    pub fn take_rested(&mut self) -> bool {
        core::mem::take(&mut self.rested)
    }

    pub(super) fn has_nothing_in_flight(&self) -> bool {
        self.network
            .recovery
            .paths()
            .all(|path| path.in_flight() == 0)
    }

    /// Frees the Initial and Handshake spaces once their keys are discarded.
    pub(crate) fn discard_early_spaces(&mut self) {
        if self.keys.are_early_discarded() {
            self.frames.spaces.discard_early();
        }
    }

    /// Frees memory that is kept for reuse. The peer and the application cannot notice.
    fn rest(&mut self) {
        self.rested = true;
        self.discard_early_spaces();
        self.frames.release_memory();
        self.network.recovery.release_memory();
        self.outcome = Reusable::default();
        self.reports.events.shrink_to_fit();
        self.reports.endpoint_events.shrink_to_fit();
        self.tls.scratch = Vec::new();
        if let Some(keys) = &mut self.keys.one_rtt {
            keys.release_ciphers();
        }
    }
}
