//! A client that waits for an answer and hears nothing asks whether it is still heard.
//!
//! Behind a NAT that gives the client a new address, a server's packets go to the old
//! one until the client speaks (RFC 9000 §9.3). A client that only receives has no
//! reason to: all it sent was acknowledged, so no probe timeout runs at its end, and
//! the server's probes go to the dead address. Both would wait for the idle timeout.
//!
//! So silence while a stream of the client's lacks its answer is met with a PING, a
//! few times, ever more rarely, until stream data arrives again. A server that takes
//! its time costs four small packets; a connection without such a stream, none.

use core::time::Duration;

use crate::Instant;

/// Shortest silence that is met with a PING: answers mostly come sooner.
const MIN_SILENCE: Duration = Duration::from_millis(500);

/// The probe timeouts that silence lasts at least: the peer's own probe of what it
/// may have lost comes first.
const MIN_SILENCE_PTOS: u32 = 3;

/// PINGs since stream data last arrived, each after twice the silence before.
const MAX_PINGS: u8 = 4;

/// The silence of a peer that has something to answer.
#[derive(Debug, Default)]
pub(crate) struct SilenceTimer {
    /// It counts as silence then.
    at: Option<Instant>,
    /// PINGs sent into the silence since stream data last arrived.
    pings: u8,
}

impl SilenceTimer {
    /// When it is met with a PING.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.at
    }

    /// Stream data arrived: the peer has our address.
    #[inline]
    pub(super) fn on_stream_data(&mut self) {
        self.pings = 0;
    }

    /// A packet arrived: the silence begins anew, if the connection `listens`: to be told
    /// of one that never does costs nothing. `pto` is that of the active path.
    #[inline]
    pub(super) fn restart(&mut self, now: Instant, listens: bool, pto: impl FnOnce() -> Duration) {
        self.at = None;
        if listens && self.pings < MAX_PINGS {
            let patience = MIN_SILENCE.max(pto().saturating_mul(MIN_SILENCE_PTOS));
            let doubled = 2_u32.saturating_pow(u32::from(self.pings));
            self.at = Some(now + patience.saturating_mul(doubled));
        }
    }

    /// Whether it has lasted long enough, which ends it.
    pub(super) fn take_expired(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| now >= *at).is_some()
    }

    /// A PING was sent into it.
    pub(super) fn on_ping_sent(&mut self) {
        self.pings = self.pings.saturating_add(1);
    }
}
