//! A connection that has gone quiet gives back what it holds for reuse: a server
//! has far more connections that wait than connections that work.
//!
//! Quiet is a second ([`REST_AFTER`](super::timers::REST_AFTER)) without a packet and
//! nothing in flight, so that requests that follow each other find warm what they need,
//! and what is given back is allocated anew once a second at most.

use super::Connection;
use super::kept::Kept;
use super::life::Handshake;
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
        if self.life.handshake == Handshake::Confirmed && self.is_quiet() {
            self.rest();
        }
        true
    }

    /// True once after the connection has given back its memory: whoever keeps
    /// something for it may do the same.
    pub fn take_rested(&mut self) -> bool {
        core::mem::take(&mut self.rested)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.network
            .recovery
            .paths()
            .all(|path| path.in_flight() == 0)
    }

    /// Initial and Handshake keys are gone, and nothing uses their spaces.
    pub(crate) fn end_early_spaces(&mut self) {
        if self.keys.early_are_discarded() {
            self.frames.spaces.end_early();
        }
    }

    /// Gives back what is held for reuse. Changes nothing that the peer or the
    /// application could notice.
    fn rest(&mut self) {
        self.rested = true;
        self.end_early_spaces();
        self.frames.release_memory();
        self.network.recovery.release_memory();
        self.outcome = Kept::default();
        self.reports.events.shrink_to_fit();
        self.reports.endpoint_events.shrink_to_fit();
        self.tls.scratch = Vec::new();
        if let Some(keys) = &mut self.keys.one_rtt {
            keys.release_ciphers();
        }
    }
}
