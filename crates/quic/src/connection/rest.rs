//! A connection that has gone quiet gives back what it holds for reuse: a server
//! has far more connections that wait than connections that work.
//!
//! Quiet is [`REST_AFTER`] without a packet and nothing in flight, so that
//! requests that follow each other find warm what they need, and what is given
//! back is allocated anew once a second at most.

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::sync::OnceLock;

use super::Connection;
use super::life::Handshake;
use crate::Instant;

/// Silence after which a connection rests.
pub(crate) const REST_AFTER: Duration = Duration::from_secs(1);

/// Something kept for reuse: made when first needed, small to take out and put
/// back, and given back by a connection that rests.
#[derive(Debug)]
pub(crate) struct Kept<T>(OnceLock<Box<T>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> Kept<T> {
    /// What is kept, if it was made.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get().map(Box::as_ref)
    }
}

impl<T: Default> Deref for Kept<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.get_or_init(Box::default)
    }
}

impl<T: Default> DerefMut for Kept<T> {
    #[inline]
    #[expect(clippy::expect_used, reason = "made one line above")]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_init(Box::default);
        self.0.get_mut().expect("made above")
    }
}

impl Connection {
    /// Rests if it is time to and nothing is under way; true if it was time.
    pub(crate) fn on_rest_timeout(&mut self, now: Instant) -> bool {
        if self.timers.rest.is_none_or(|at| now < at) {
            return false;
        }
        self.timers.rest = None;
        // With something in flight a packet is to come or to be sent, and the
        // second begins anew.
        if self.handshake == Handshake::Confirmed && self.is_quiet() {
            self.rest();
        }
        true
    }

    /// True once after the connection has given back its memory: whoever keeps
    /// something for it may do the same.
    pub fn take_rested(&mut self) -> bool {
        core::mem::take(&mut self.rested)
    }

    fn is_quiet(&self) -> bool {
        self.recovery.paths().all(|path| path.in_flight() == 0)
    }

    /// Initial and Handshake keys are gone, and nothing uses their spaces.
    pub(crate) fn end_early_spaces(&mut self) {
        if self.keys.initial_discarded && self.keys.handshake_discarded {
            self.spaces.end_early();
        }
    }

    /// Gives back what is held for reuse. Changes nothing that the peer or the
    /// application could notice.
    fn rest(&mut self) {
        self.rested = true;
        self.end_early_spaces();
        for space in self.spaces.iter_mut() {
            space.received.release_memory();
            space.crypto.release_memory();
        }
        self.recovery.release_memory();
        self.outcome = Kept::default();
        self.probe_frames = Kept::default();
        self.events.shrink_to_fit();
        self.endpoint_events.shrink_to_fit();
        self.local_cids.release_memory();
        self.streams.release_memory();
        self.datagrams_in.release_memory();
        self.datagrams_out.release_memory();
        self.tls.scratch = Vec::new();
        if let Some(keys) = &mut self.keys.one_rtt {
            keys.rest();
        }
    }
}
