//! How a connection is closed (RFC 9000 §10).

use core::time::Duration;

use super::Connection;
use super::state::CloseReason;
use crate::Instant;
use crate::error::ConnectionError;
use crate::error::TransportError;
use crate::wire::cursor::VARINT_MAX;

impl Connection {
    /// Closes the connection with the application's `code` and `reason` (RFC 9000 §10.2). A
    /// code above 2^62 - 1 cannot be encoded and is replaced by 2^62 - 1. Data that was not
    /// sent yet is discarded. Does nothing if the connection has already ended.
    pub fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {
        self.begin_trace(now);
        let close = CloseReason::Application {
            code: code.min(VARINT_MAX),
            reason: reason.to_vec(),
        };
        self.start_closing(now, close);
    }

    /// Returns whether something that the application has ended is still on its way: a stream that
    /// it finished or reset and that is not acknowledged, or a DATAGRAM that was not sent. It is
    /// lost if the connection is closed now. Takes time proportional to the number of streams.
    #[must_use]
    pub fn has_undelivered(&self) -> bool {
        self.lifecycle.is_open()
            && (self.frames.streams.has_undelivered_ends() || !self.frames.datagrams_out.is_empty())
    }

    /// Closes the connection with a transport error, and frees at once what it holds:
    /// streams and their buffers, DATAGRAMs, packets in flight, TLS. It keeps only what is
    /// needed to send CONNECTION_CLOSE until the closing state ends (RFC 9000 §10.2). Reads
    /// and writes then fail as if the streams did not exist.
    ///
    /// For a connection that cannot be kept, because memory is short or its handler failed.
    /// If the connection has already ended, this only frees what it still holds.
    pub fn abort(&mut self, now: Instant, error: TransportError) {
        self.begin_trace(now);
        self.fail(now, error);
        self.release_ended();
    }

    /// Frees what a connection that has ended still holds, of which most is for the
    /// application: streams with data that it has not read, DATAGRAMs, TLS. It keeps only what
    /// is needed until the closing or draining state ends (RFC 9000 §10.2). Reads then fail as
    /// if the streams did not exist.
    ///
    /// For a connection whose application is gone. Does nothing while it is open.
    pub fn release_ended(&mut self) {
        if !self.lifecycle.is_open() {
            self.free_resources();
        }
    }

    /// Closes the connection after a protocol violation of the peer or an internal error.
    pub(crate) fn fail(&mut self, now: Instant, error: TransportError) {
        self.start_closing(now, CloseReason::Transport(error));
    }

    fn start_closing(&mut self, now: Instant, close: CloseReason) {
        if self.lifecycle.is_open() {
            let until = now + self.drain_period();
            self.lifecycle.close(now, close, until, &mut self.reports);
        }
    }

    /// Enters the draining state: the peer closed or reset the connection.
    pub(super) fn on_peer_close(&mut self, now: Instant, error: ConnectionError) {
        let until = now + self.drain_period();
        self.lifecycle.drain(now, error, until, &mut self.reports);
    }

    pub(super) fn end_silently(&mut self, now: Instant, error: ConnectionError) {
        self.lifecycle.end_silently(now, error, &mut self.reports);
    }

    /// Returns how long closing and draining last: three PTOs (RFC 9000 §10.2).
    #[must_use]
    pub fn drain_period(&self) -> Duration {
        self.network.pto().saturating_mul(3)
    }
}
