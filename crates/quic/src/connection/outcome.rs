//! What acknowledgements, losses and probe timeouts mean for the frames sent.

use clearway_recovery::{Outcome, Recovery, Space};

use super::Connection;
use super::content::{Content, SentFrame};
use super::keyring::space_of;
use super::receive::Packet;
use crate::Instant;
use crate::count::Count;
use crate::error::{Code, TransportError};
use crate::event::TraceEvent;
use crate::path::ecn::EcnCounts;
use crate::wire::PacketKind;
use crate::wire::frame::Ack;

impl Connection {
    /// An ACK frame arrived in `space`.
    pub(crate) fn on_ack_frame(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        ack: &Ack<'_>,
    ) -> Result<(), TransportError> {
        let space = space_of(packet.kind);
        // What the packet waited here for its keys is not the path's either
        // (RFC 9002 §5.3).
        let delay = self
            .tls
            .peer_ack_delay(ack)
            .saturating_add(now - packet.arrived);
        let before = self.recovery.largest_acked(space);
        let mut outcome = core::mem::take(&mut self.outcome);
        let result = self
            .recovery
            .on_ack(space, ack.ranges(), delay, now, &mut outcome);
        if let Err(error) = result {
            self.outcome = outcome;
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                error.to_string(),
            ));
        }
        if packet.kind == PacketKind::OneRtt
            && let Some(keys) = &mut self.keys.one_rtt
        {
            keys.on_ack(ack.largest, packet.generation)?;
        }
        if before.is_none_or(|before| ack.largest > before) {
            self.check_ecn(now, space, ack, &outcome);
        }
        let nothing_new = outcome.acked.is_empty() && outcome.spurious == 0;
        self.apply(now, &mut outcome);
        self.outcome = outcome;
        if nothing_new {
            self.charge_ranges(now, ack.range_count())?;
        }
        Ok(())
    }

    /// Has recovery give packets up, and sends anew what they carried. That they
    /// are gone says nothing of the path.
    pub(crate) fn withdraw(
        &mut self,
        now: Instant,
        give_up: impl FnOnce(&mut Recovery<Content>, &mut Outcome<Content>),
    ) {
        let mut outcome = core::mem::take(&mut self.outcome);
        give_up(&mut self.recovery, &mut outcome);
        for lost in outcome.lost.drain(..) {
            self.trace_lost(now, &lost);
            for frame in lost.content {
                self.on_frame_lost(lost.space, &frame);
            }
        }
        outcome.clear();
        self.outcome = outcome;
    }

    /// Applies what recovery found and empties it.
    pub(crate) fn apply(&mut self, now: Instant, outcome: &mut Outcome<Content>) {
        for acked in outcome.acked.drain(..) {
            if let Some(path) = self.paths.get_mut(acked.path) {
                // Larger than in use: only a probe was.
                let change = if acked.size > path.mtu.current() {
                    path.mtu.on_probe_acked(now, acked.size)
                } else {
                    path.mtu.on_packet_acked(acked.size);
                    None
                };
                self.on_mtu_change(now, acked.path, change);
            }
            for frame in acked.content {
                self.on_frame_acked(acked.space, &frame);
            }
        }
        for lost in outcome.lost.drain(..) {
            self.counters.packets_lost.count(u64::from(!lost.mtu_probe));
            self.trace_lost(now, &lost);
            if let Some(path) = self.paths.get_mut(lost.path) {
                path.ecn.on_lost(u64::from(lost.ect));
                let change = if lost.mtu_probe {
                    path.mtu.on_probe_lost(now, lost.size);
                    None
                } else {
                    path.mtu.on_packet_lost(now, lost.size, lost.sent)
                };
                self.on_mtu_change(now, lost.path, change);
            }
            for frame in lost.content {
                self.on_frame_lost(lost.space, &frame);
            }
        }
        if let Some(space) = outcome.pto.take() {
            self.on_pto(now, space);
        }
        self.counters.spurious_losses.count(outcome.spurious);
        outcome.clear();
        self.after_recovery(now);
    }

    /// Buffers follow the window; traces see the new figures.
    fn after_recovery(&mut self, now: Instant) {
        let window = self.active_recovery().window();
        self.streams.set_send_window_hint(window);
        self.ask_ack_frequency();
        self.trace_recovery(now);
    }

    /// Validates ECN on the path of the newest acknowledged packet, and tells
    /// the controller of new CE marks (RFC 9000 §13.4.2.1).
    fn check_ecn(&mut self, now: Instant, space: Space, ack: &Ack<'_>, outcome: &Outcome<Content>) {
        let Some(largest) = outcome.newly_acked.largest else {
            return;
        };
        let Some(path) = self.paths.get_mut(largest.path) else {
            return;
        };
        let counts = ack.ecn.map(|ecn| EcnCounts {
            ect0: ecn.ect0,
            ect1: ecn.ect1,
            ce: ecn.ce,
        });
        // All paths of a connection have the same controller, so the same mark.
        let report = path.ecn.report(counts, outcome.newly_acked.ect);
        let increase = path
            .ecn
            .on_ack(&mut self.spaces.get_mut(space).ecn, &report);
        if increase > 0 {
            self.counters.ce_marks.count(increase);
            self.recovery
                .on_ecn_ce(largest.path, largest.index, increase, now);
        }
    }

    fn on_frame_acked(&mut self, space: Space, frame: &SentFrame) {
        match *frame {
            SentFrame::Stream(ref content) => self.streams.on_acked(content),
            SentFrame::Crypto { offset, len } => {
                self.space(space).crypto.on_acked(offset, usize::from(len));
            }
            SentFrame::NewConnectionId(sequence) => self.local_cids.on_acked(sequence),
            SentFrame::RetireConnectionId(sequence) => self.remote_cids.on_retire_acked(sequence),
            SentFrame::NewToken => {
                // A copy declared lost may have made it due again.
                self.control.new_token = None;
                self.control.new_token_due = false;
            }
            SentFrame::Ack(largest) => self.space(space).received.remove_below(largest),
            SentFrame::Datagram => self.streams.note_progress(),
            SentFrame::HandshakeDone | SentFrame::AckFrequency(_) => {}
        }
    }

    pub(crate) fn on_frame_lost(&mut self, space: Space, frame: &SentFrame) {
        match *frame {
            SentFrame::Stream(ref content) => self.streams.on_lost(content),
            SentFrame::Crypto { offset, len } => {
                self.space(space).crypto.on_lost(offset, usize::from(len));
            }
            SentFrame::NewConnectionId(sequence) => self.local_cids.on_lost(sequence),
            SentFrame::RetireConnectionId(sequence) => self.remote_cids.on_retire_lost(sequence),
            SentFrame::HandshakeDone => self.control.handshake_done = true,
            SentFrame::NewToken => self.control.new_token_due = self.control.new_token.is_some(),
            SentFrame::AckFrequency(sequence) => {
                let current = self.control.ack_frequency.map(|request| request.sequence);
                self.control.ack_frequency_due |= current == Some(sequence);
            }
            SentFrame::Datagram => self.counters.datagram_frames_lost.count_one(),
            // The next ACK frame says the same and more.
            SentFrame::Ack(_) => {}
        }
    }

    /// The probe timer fired: two ack-eliciting packets, carrying what is most
    /// likely missing (RFC 9002 §6.2.4).
    fn on_pto(&mut self, now: Instant, space: Space) {
        let id = self.paths.active_id();
        let count = self.active_recovery().pto_count();
        self.counters.ptos.count_one();
        self.trace(now, || TraceEvent::Pto { count });
        let change = self.paths.active_mut().mtu.on_pto(now, count);
        self.on_mtu_change(now, id, change);
        self.space(space).probes = 2;
        // Initial and Handshake are coalesced, so a probe of one carries the
        // other's missing bytes too: under loss, two datagrams would each have
        // to arrive.
        for each in [Space::Initial, Space::Handshake] {
            if self.keys.sending_kind(each, self.is_client()).is_some()
                && self.space(each).crypto.has_unacked()
            {
                let state = self.space(each);
                state.crypto.resend_all();
                state.probes = state.probes.max(1);
            }
        }
        if space == Space::Data {
            let mut oldest = core::mem::take(&mut self.probe_frames);
            for (_, content) in self.recovery.unacked(space).take(2) {
                oldest.extend_from_slice(content);
            }
            for frame in oldest.drain(..) {
                self.on_frame_lost(space, &frame);
            }
            self.probe_frames = oldest;
        }
    }
}

pub(crate) fn kind_of(space: Space) -> PacketKind {
    match space {
        Space::Initial => PacketKind::Initial,
        Space::Handshake => PacketKind::Handshake,
        Space::Data => PacketKind::OneRtt,
    }
}
