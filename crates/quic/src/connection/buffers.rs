//! What a connection buffers, for whoever shares memory out among many.

use super::reusable::Reusable;
use super::{Connection, Event};

impl Connection {
    /// Bytes of memory that hold payload now: what streams received and the
    /// application has not read, what it wrote and the peer has not acknowledged,
    /// DATAGRAMs queued either way, CRYPTO data, packets whose keys are to come.
    /// O(1), unlike [`memory`](Self::memory), which counts everything else too.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub fn buffered(&self) -> usize {
        let crypto = self.frames.spaces.iter().map(|space| space.crypto.memory());
        self.buffered_payload() + crypto.sum::<usize>() + self.undecryptable.memory()
    }

    /// The part of it that is stream data and DATAGRAMs, which is nearly all and what a
    /// call of the application can change.
    #[must_use]
    #[inline]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub fn buffered_payload(&self) -> usize {
        self.frames.streams.buffered()
            + self.frames.datagrams_in.memory()
            + self.frames.datagrams_out.memory()
    }

    /// Bounds from now on what streams buffer, in bytes: at most `receive` of what
    /// the peer sends and `send` of what the application writes. More than
    /// [`Config::streams`](super::Config::streams) allows means what it allows, so
    /// `usize::MAX` lifts an earlier bound.
    ///
    /// Credit that the peer was granted stays granted (RFC 9000 §4.1): until it is
    /// used up the peer may still send more than `receive`. Windows grow again by
    /// themselves when the bound is lifted. Walks the open streams.
    pub fn limit_buffers(&mut self, receive: usize, send: usize) {
        self.frames
            .streams
            .limit_buffers(receive as u64, send as u64);
    }

    /// Frees all that only an open connection needs.
    pub(super) fn free_resources(&mut self) {
        self.frames.abandon();
        self.undecryptable = Default::default();
        self.network.recovery.abandon();
        self.outcome = Reusable::default();
        self.tls.free();
        self.reports
            .events
            .retain(|event| matches!(event, Event::Closed(_)));
        self.reports.events.shrink_to_fit();
    }
}
