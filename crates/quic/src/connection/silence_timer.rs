//! A client that waits for a response and receives nothing sends a PING.
//!
//! When a NAT gives the client a new address, the server's packets go to the old one until
//! the client sends something (RFC 9000 §9.3). A client that only receives has no reason
//! to: all that it sent was acknowledged, so it has no probe timeout, and the server's
//! probes go to the old address. Both would wait for the idle timeout.
//!
//! So a client whose stream waits for its response sends a PING after a silence, a few
//! times, less and less often, until stream data arrives again. A server that takes its
//! time costs four small packets; a connection without such a stream costs none.

use core::time::Duration;

use crate::Instant;

/// Shortest silence before a PING; most responses start sooner.
const MIN_SILENCE: Duration = Duration::from_millis(500);

/// Shortest silence in PTOs, so that the peer's own probe for lost packets comes first.
const MIN_SILENCE_PTOS: u32 = 3;

/// Most PINGs since stream data last arrived. The silence before each is twice the one
/// before.
const MAX_PINGS: u8 = 4;

/// The timer for the PING that follows a silence.
#[derive(Debug, Default)]
pub(crate) struct SilenceTimer {
    /// When it fires.
    at: Option<Instant>,
    /// PINGs sent since stream data last arrived.
    pings: u8,
}

impl SilenceTimer {
    /// Returns when a PING is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.at
    }

    /// Records that stream data arrived, so the peer has our address.
    #[inline]
    pub(super) fn on_stream_data(&mut self) {
        self.pings = 0;
    }

    /// Restarts the timer after a packet arrived, if the client `waits` for a response.
    /// `pto` is the PTO of the active path; it is called only then.
    #[inline]
    pub(super) fn restart(&mut self, now: Instant, waits: bool, pto: impl FnOnce() -> Duration) {
        self.at = None;
        if waits && self.pings < MAX_PINGS {
            let silence = MIN_SILENCE.max(pto().saturating_mul(MIN_SILENCE_PTOS));
            let doubled = 2_u32.saturating_pow(u32::from(self.pings));
            self.at = Some(now + silence.saturating_mul(doubled));
        }
    }

    /// Returns whether the timer has fired, and stops it then.
    pub(super) fn take_expired(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| now >= *at).is_some()
    }

    /// Records that a PING was queued.
    pub(super) fn on_ping_sent(&mut self) {
        self.pings = self.pings.saturating_add(1);
    }
}
