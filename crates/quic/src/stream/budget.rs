//! How much the streams may buffer, changed while they live: memory is shared with
//! other connections, and those that use much of it have to do with less.

use super::halves::Stream;
use super::recv::RecvHalf;
use super::{StreamId, Streams};
use crate::error::{Code, TransportError};

/// Memory that the receive buffers of a connection may have to spare, bytes: two
/// whole blocks, with which streams in bulk need few allocations. Beyond that a block
/// is as large as what is in it calls for.
const SPARE: usize = 64 << 10;

/// Pieces of stream data that may wait for data before them, over all streams of a
/// connection; larger windows allow more. Each takes about 150 bytes besides its own.
const MIN_PIECES: u64 = 1_024;

/// One further piece per this many bytes of the connection's window: if every second
/// packet of the smallest size were lost, half as many would be used.
const BYTES_PER_PIECE: u64 = 1_024;

impl Streams {
    /// How much room receive buffers may still have to spare.
    pub(super) fn spare_room(&self) -> usize {
        SPARE.saturating_sub(self.spared())
    }

    /// Memory of receive buffers that holds no data.
    fn spared(&self) -> usize {
        let held = self.receive_held;
        held.memory.saturating_sub(held.stored)
    }

    /// The application has read from a stream: while there is more to spare than
    /// there should be, what is empty goes.
    pub(super) fn release_if_spare(&mut self, id: StreamId) {
        if self.spared() > SPARE {
            self.with_recv(id, RecvHalf::release_memory);
        }
    }

    /// Whether the peer's data comes in more pieces than are kept track of.
    pub(super) fn check_pieces(&self) -> Result<(), TransportError> {
        // Of the window as the peer knows it: it may be smaller by now.
        let window = self
            .receive
            .granted()
            .saturating_sub(self.receive.consumed());
        let most = MIN_PIECES.saturating_add(window / BYTES_PER_PIECE);
        if self.receive_held.pieces as u64 > most {
            return Err(TransportError::new(
                Code::INTERNAL_ERROR,
                "stream data in more separate pieces than are kept track of",
            ));
        }
        Ok(())
    }

    /// Bounds what is buffered from now on, in bytes, each way; more than the
    /// configured `receive_budget` and `send_limit` means these.
    ///
    /// Receive windows become at most `receive`. Credit that was granted stays
    /// granted (RFC 9000 §4.1), so a peer may still send what it was promised; more
    /// is granted once so much has been read that it fits. Writers are refused while
    /// `send` bytes or more are not acknowledged.
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

    /// Gives the receive window of a stream the limit that holds now, and tells the
    /// peer if that lets it send more.
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

    /// Memory of what the streams buffer both ways, bytes. O(1).
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.sending
            .buffered()
            .saturating_add(self.receive_held.memory)
    }

    /// Forgets every stream and all they hold: nobody will read or write any more.
    pub fn abandon(&mut self) {
        let config = self.config.clone();
        *self = Self::new(self.role, config);
    }
}
