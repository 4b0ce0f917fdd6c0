//! How much a connection buffers, for a caller that divides memory among many.

use super::keyring::Keyring;
use super::reusable::Reusable;
use super::state::LifecycleState;
use super::{Connection, Event};

impl Connection {
    /// Returns the bytes of memory that hold payload now: received stream data that the
    /// application has not read, written data that the peer has not acknowledged, queued
    /// DATAGRAMs of both directions, CRYPTO data, and packets kept until their keys exist.
    /// O(1), unlike [`memory`](Self::memory), which counts everything else too.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the parts are in memory at the same time, so their sizes add up"
    )]
    pub fn buffered(&self) -> usize {
        let crypto = self.frames.spaces.iter().map(|space| space.crypto.memory());
        self.buffered_payload() + crypto.sum::<usize>() + self.undecryptable.memory()
    }

    /// Returns the part of [`buffered`](Self::buffered) that is stream data and DATAGRAMs:
    /// nearly all of it, and all that calls of the application can change.
    #[must_use]
    #[inline]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the parts are in memory at the same time, so their sizes add up"
    )]
    pub fn buffered_payload(&self) -> usize {
        self.frames.streams.buffered()
            + self.frames.datagrams_in.memory()
            + self.frames.datagrams_out.memory()
    }

    /// Limits what streams buffer from now on, in bytes: at most `receive` of received data
    /// and `send` of written data. Values above what
    /// [`Config::streams`](super::Config::streams) allows mean the latter, so `usize::MAX`
    /// lifts an earlier limit.
    ///
    /// Flow control credit cannot be taken back (RFC 9000 §4.1): until it is used up, the
    /// peer may still send more than `receive`. Windows grow again by themselves when the
    /// limit is lifted. Walks the open streams.
    pub fn limit_buffers(&mut self, receive: usize, send: usize) {
        self.frames
            .streams
            .limit_buffers(receive as u64, send as u64);
    }

    /// Frees everything that only an open connection needs.
    pub(super) fn free_resources(&mut self) {
        self.frames.abandon();
        self.undecryptable = Default::default();
        self.network.recovery.abandon();
        self.outcome = Reusable::default();
        self.tls.drop_session();
        // Only CONNECTION_CLOSE is still sent.
        if !matches!(self.lifecycle.state, LifecycleState::Closing(_)) {
            self.keys = Keyring::new(self.role);
        }
        self.reports
            .events
            .retain(|event| matches!(event, Event::Closed(_)));
        self.reports.events.shrink_to_fit();
    }
}
