//! How much the streams may buffer, changed while they live: memory is shared with
//! other connections, and those that use much of it have to do with less.

use super::halves::Stream;
use super::{StreamId, Streams};

impl Streams {
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
        self.sending.buffered() + self.receive_memory
    }

    /// Forgets every stream and all they hold: nobody will read or write any more.
    pub fn abandon(&mut self) {
        let config = self.config.clone();
        *self = Self::new(self.role, config);
    }
}
