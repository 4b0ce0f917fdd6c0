//! A connection that has gone quiet gives back what it holds for reuse: a server
//! has far more connections that wait than connections that work.
//!
//! Quiet is a second ([`REST_AFTER`](super::timers::REST_AFTER)) without a packet and
//! nothing in flight, so that requests that follow each other find warm what they need,
//! and what is given back is allocated anew once a second at most.

use super::Connection;
use super::reusable::Reusable;
use super::state::HandshakeState;
use crate::Instant;

impl Connection {
    /// Rests if it is time to and nothing is under way; true if it was time.
    pub(crate) fn on_rest_timeout(&mut self, now: Instant) -> bool {
        if self.timers.rest.is_none_or(|at| now < at) {
            return false;
        }
        self.timers.rest = None;
        // With something in flight a packet is to come or to be sent, and the
        // second begins anew.
        if self.lifecycle.handshake == HandshakeState::Confirmed && self.has_nothing_in_flight() {
            self.rest();
        }
        true
    }

    /// True once after the connection has given back its memory: whoever keeps
    /// something for it may do the same.
    pub fn take_rested(&mut self) -> bool {
        core::mem::take(&mut self.rested)
    }

    pub(super) fn has_nothing_in_flight(&self) -> bool {
        self.network
            .recovery
            .paths()
            .all(|path| path.in_flight() == 0)
    }

    /// Initial and Handshake keys are gone, and nothing uses their spaces.
    pub(crate) fn discard_early_spaces(&mut self) {
        if self.keys.are_early_discarded() {
            self.frames.spaces.discard_early();
        }
    }

    /// Gives back what is held for reuse. Changes nothing that the peer or the
    /// application could notice.
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
            keys.rest();
        }
    }
}
