//! How a connection is closed (RFC 9000 §10).

use core::time::Duration;

use super::Connection;
use super::state::{CloseReason, ConnectionError};
use crate::Instant;
use crate::error::TransportError;
use crate::wire::cursor::VARINT_MAX;

impl Connection {
    /// Closes with the application's `code` and `reason` (RFC 9000 §10.2). A code over
    /// 2^62 - 1, which has no encoding, counts as that.
    /// Streams end where they are; what was not sent is not sent any more.
    /// Does nothing on a connection that has ended already.
    pub fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {
        self.begin_trace(now);
        let close = CloseReason::Application {
            code: code.min(VARINT_MAX),
            reason: reason.to_vec(),
        };
        self.start_closing(now, close);
    }

    /// Closes with a transport error of the caller's, as `close` does with an
    /// application's, and lets go at once of all that the connection holds: streams
    /// and what they buffer, DATAGRAMs, packets in flight, TLS. What is left is what
    /// it takes to say CONNECTION_CLOSE until the closing state ends (RFC 9000 §10.2).
    /// Reads and writes then fail as on a connection without streams.
    ///
    /// For a connection that can't be kept: memory is short, or serving it failed.
    /// On a connection that has ended already it only lets go of what is held.
    pub fn abort(&mut self, now: Instant, error: TransportError) {
        self.begin_trace(now);
        self.fail(now, error);
        self.free_resources();
    }

    /// The peer broke the protocol, or we did.
    pub(crate) fn fail(&mut self, now: Instant, error: TransportError) {
        self.start_closing(now, CloseReason::Transport(error));
    }

    fn start_closing(&mut self, now: Instant, close: CloseReason) {
        if self.lifecycle.is_open() {
            let until = now + self.drain_period();
            self.lifecycle.close(now, close, until, &mut self.reports);
        }
    }

    /// The peer closed or reset the connection: answer nothing more.
    pub(super) fn on_peer_close(&mut self, now: Instant, error: ConnectionError) {
        let until = now + self.drain_period();
        self.lifecycle.drain(now, error, until, &mut self.reports);
    }

    pub(super) fn end_silently(&mut self, now: Instant, error: ConnectionError) {
        self.lifecycle.end_silently(now, error, &mut self.reports);
    }

    /// Three PTOs (RFC 9000 §10.2).
    fn drain_period(&self) -> Duration {
        self.network.pto().saturating_mul(3)
    }
}
