//! The owners of the data in frames: they know what is queued, and handle acknowledgements
//! and losses.

use core::time::Duration;

use clearway_recovery::Space;

use super::control::Control;
use super::counters::Counters;
use super::crypto_stream::CryptoStream;
use super::sent_frame::SentFrame;
use super::space::PacketSpaces;
use crate::cid::local::LocalCids;
use crate::cid::remote::RemoteCids;
use crate::count::Count;
use crate::datagram::{DatagramReceiver, DatagramSender};
use crate::stream::{Sendability, Streams};
use crate::time::Instant;

/// The owners of the data in frames.
#[derive(Debug)]
pub(crate) struct FrameOwners {
    /// CRYPTO streams and acknowledgements.
    pub(super) spaces: PacketSpaces,
    pub(super) streams: Streams,
    pub(super) datagrams_in: DatagramReceiver,
    pub(super) datagrams_out: DatagramSender,
    pub(super) local_cids: LocalCids,
    pub(super) remote_cids: RemoteCids,
    pub(super) control: Control,
}

impl FrameOwners {
    /// Returns whether 0-RTT or 1-RTT frames are queued that are subject to window and
    /// pacer.
    #[inline]
    pub(super) fn has_pending_data(&self) -> bool {
        self.control.is_due()
            || self.local_cids.has_frames()
            || self.remote_cids.has_frames()
            || !self.datagrams_out.is_empty()
            || matches!(self.streams.sendability(), Sendability::Ready)
    }

    /// Handles the acknowledgement of a frame of a packet in `space`. `late_period` returns
    /// the time that a late packet may take.
    #[inline]
    pub(super) fn on_acked(
        &mut self,
        space: Space,
        frame: &SentFrame,
        now: Instant,
        late_period: impl FnOnce() -> Duration,
    ) {
        match *frame {
            SentFrame::Stream(ref content) => self.streams.on_acked(content),
            SentFrame::Crypto { offset, len } => {
                let crypto = &mut self.spaces.get_mut(space).crypto;
                crypto.on_acked(offset, usize::from(len));
            }
            SentFrame::NewConnectionId(sequence) => self.local_cids.on_acked(sequence),
            SentFrame::RetireConnectionId(sequence) => self.remote_cids.on_retire_acked(sequence),
            SentFrame::NewToken => self.control.on_token_acked(),
            SentFrame::Ack(largest) => {
                let received = &mut self.spaces.get_mut(space).received;
                received.on_report_acked(largest, now, late_period);
            }
            SentFrame::Datagram => self.streams.note_progress(),
            SentFrame::HandshakeDone | SentFrame::AckFrequency(_) => {}
        }
    }

    /// Handles a frame of a packet in `space` that was lost, or counts as lost.
    #[inline]
    pub(super) fn on_lost(&mut self, space: Space, frame: &SentFrame, counters: &mut Counters) {
        match *frame {
            SentFrame::Stream(ref content) => self.streams.on_lost(content),
            SentFrame::Crypto { offset, len } => {
                let crypto = &mut self.spaces.get_mut(space).crypto;
                crypto.on_lost(offset, usize::from(len));
            }
            SentFrame::NewConnectionId(sequence) => self.local_cids.on_lost(sequence),
            SentFrame::RetireConnectionId(sequence) => self.remote_cids.on_retire_lost(sequence),
            SentFrame::HandshakeDone => self.control.handshake_done = true,
            SentFrame::NewToken => self.control.on_token_lost(),
            SentFrame::AckFrequency(sequence) => self.control.on_ack_frequency_lost(sequence),
            SentFrame::Datagram => counters.datagram_frames_lost.count_one(),
            // The next ACK frame says the same and more.
            SentFrame::Ack(_) => {}
        }
    }

    /// Queues again what a packet in `space` carries, for a probe: it has not been acknowledged, but
    /// may have arrived. DATAGRAM frames are never sent twice (RFC 9221 §5).
    pub(super) fn repeat(&mut self, space: Space, content: &[SentFrame], counters: &mut Counters) {
        for frame in content {
            if !matches!(frame, SentFrame::Datagram) {
                self.on_lost(space, frame, counters);
            }
        }
    }

    /// Discards what was queued in `space`, whose keys are discarded (RFC 9001 §4.9).
    pub(super) fn discard_space(&mut self, space: Space) {
        let state = self.spaces.get_mut(space);
        state.crypto = CryptoStream::default();
        state.probes = 0;
        state.ping = false;
    }

    /// Queues a PING.
    pub(super) fn ping(&mut self) {
        self.spaces.get_mut(Space::Data).ping = true;
    }

    /// Frees everything that only an open connection needs.
    pub(super) fn abandon(&mut self) {
        self.streams.abandon();
        self.datagrams_in.abandon();
        self.datagrams_out.abandon();
        for space in self.spaces.iter_mut() {
            space.crypto = CryptoStream::default();
        }
        self.control = Control::default();
    }

    /// Frees memory that is kept for reuse.
    pub(super) fn release_memory(&mut self) {
        for space in self.spaces.iter_mut() {
            space.received.release_memory();
            space.crypto.release_memory();
        }
        self.local_cids.release_memory();
        self.streams.release_memory();
        self.datagrams_in.release_memory();
        self.datagrams_out.release_memory();
    }
}
