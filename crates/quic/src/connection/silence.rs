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

use clearway_recovery::Space;

use super::Connection;
use super::life::Handshake;
use crate::Instant;

/// Shortest silence that is met with a PING: answers mostly come sooner.
const PATIENCE: Duration = Duration::from_millis(500);

/// The probe timeouts that silence lasts at least: the peer's own probe of what it
/// may have lost comes first.
const PROBE_TIMEOUTS: u32 = 3;

/// PINGs since stream data last arrived, each after twice the silence before.
const MOST_ASKED: u8 = 4;

impl Connection {
    /// Stream data arrived: the peer has our address.
    pub(crate) fn end_silence(&mut self) {
        self.timers.asked_in_silence = 0;
    }

    /// A packet arrived: the silence begins anew.
    pub(crate) fn listen(&mut self, now: Instant) {
        self.timers.silence = None;
        let listens = self.is_client() && self.handshake == Handshake::Confirmed;
        if listens && self.timers.asked_in_silence < MOST_ASKED && self.streams.has_own_requests() {
            let probes = self.pto_of(self.paths.active_id());
            let patience = PATIENCE.max(probes.saturating_mul(PROBE_TIMEOUTS));
            let doubled = 2_u32.saturating_pow(u32::from(self.timers.asked_in_silence));
            self.timers.silence = Some(now + patience.saturating_mul(doubled));
        }
    }

    /// Asks if it is time to; true if it was time.
    pub(crate) fn on_silence(&mut self, now: Instant) -> bool {
        if self.timers.silence.is_none_or(|at| now < at) {
            return false;
        }
        self.timers.silence = None;
        // What is in flight has a probe timeout of its own.
        let probed = self.recovery.paths().any(|path| path.in_flight() > 0);
        if !probed && self.streams.awaits_answer() {
            self.timers.asked_in_silence = self.timers.asked_in_silence.saturating_add(1);
            self.space(Space::Data).ping = true;
        }
        true
    }
}
