//! Limits on buffered stream data. They may change at any time, because connections share their
//! memory and those that use much of it get less.

use super::halves::Stream;
use super::recv::RecvHalf;
use super::{StreamId, Streams};
use crate::error::{Code, TransportError};

/// Largest unused memory in the receive buffers of a connection, bytes: two whole blocks, so that
/// bulk streams need few allocations. Beyond that, blocks are only as large as their data needs.
const SPARE: usize = 64 << 10;

/// Largest number of pieces of stream data behind gaps, over all streams of a connection, for
/// small windows; larger ones allow more. Each needs about 150 bytes besides its data.
const MIN_PIECES: u64 = 1_024;

/// One more piece is allowed per this many bytes of the connection's window. If every second
/// packet of the smallest size were lost, half of them would be used.
const BYTES_PER_PIECE: u64 = 1_024;

impl Streams {
    /// Returns how much room receive buffers may still have to spare.
    pub(super) fn spare_room(&self) -> usize {
        SPARE.saturating_sub(self.spared())
    }

    /// Returns the unused memory of receive buffers in bytes.
    fn spared(&self) -> usize {
        let held = self.receive_usage;
        held.memory.saturating_sub(held.stored)
    }

    /// Frees empty blocks of a stream, after the application has read from it, if the unused
    /// memory is over its limit.
    pub(super) fn release_if_spare(&mut self, id: StreamId) {
        if self.spared() > SPARE {
            self.with_recv(id, RecvHalf::release_memory);
        }
    }

    /// Checks that received data has not too many gaps.
    ///
    /// # Errors
    /// `INTERNAL_ERROR`.
    pub(super) fn check_pieces(&self) -> Result<(), TransportError> {
        // The window that the peer knows; the current one may be smaller.
        let window = self
            .receive
            .granted()
            .saturating_sub(self.receive.consumed());
        let most = MIN_PIECES.saturating_add(window / BYTES_PER_PIECE);
        if self.receive_usage.pieces as u64 > most {
            return Err(TransportError::new(
                Code::INTERNAL_ERROR,
                "too many gaps in the received stream data",
            ));
        }
        Ok(())
    }

    /// Limits the buffered data from now on, in bytes for each direction, at most to the configured
    /// `receive_budget` and `send_limit`.
    ///
    /// Receive windows become at most `receive`. Credit that was granted cannot be revoked
    /// (RFC 9000 §4.1), so the peer may still use it; more is granted once enough has been read.
    /// Writers are blocked while `send` bytes or more are unacknowledged.
    pub fn limit_buffers(&mut self, receive: u64, send: u64) {
        let receive = receive.min(self.config.receive_budget);
        self.receive.limit(self.config.connection_window, receive);
        self.credit_pending |= self.receive.is_due();
        self.sending.set_limit(send.min(self.config.send_limit));
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.limit_window(id);
            self.wake_writer(id);
        }
        self.wake_writers();
    }

    /// Applies the current limit to the receive window of a stream, and schedules MAX_STREAM_DATA
    /// if the peer may send more.
    fn limit_window(&mut self, id: StreamId) {
        let (initial, max) = (self.config.stream_window, self.receive.max());
        let Some(half) = self.streams.get_mut(&id).and_then(Stream::recv_mut) else {
            return;
        };
        half.window.limit(initial, max);
        let due = half.wants_credit() && half.window.is_due();
        if due {
            self.mark(id, |control| control.credit = true);
        }
    }

    /// Returns the memory of all send and receive buffers in bytes. O(1).
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.sending
            .buffered()
            .saturating_add(self.receive_usage.memory)
    }

    /// Drops every stream with its buffers, when the application can no longer read or write.
    pub fn abandon(&mut self) {
        let config = self.config.clone();
        *self = Self::new(self.role, config);
    }
}
