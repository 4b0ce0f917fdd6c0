//! What acknowledgements, losses and probe timeouts mean for the frames sent.

use clearway_recovery::Space;

use super::Connection;
use super::content::SentFrame;
use super::space::SPACES;
use crate::Instant;
use crate::error::{Code, TransportError};
use crate::event::{LossTrigger, TraceEvent};
use crate::wire::PacketKind;
use crate::wire::frame::Ack;

impl Connection {
    /// An ACK frame arrived in `space`.
    pub(crate) fn on_ack_frame(
        &mut self,
        now: Instant,
        space: Space,
        ack: &Ack<'_>,
    ) -> Result<(), TransportError> {
        let delay = self.tls.peer_ack_delay(ack.delay);
        let mut outcome = core::mem::take(&mut self.outcome);
        let result = self
            .recovery
            .on_ack(space, ack.ranges(), delay, now, &mut outcome);
        if let Err(error) = result {
            self.outcome = outcome;
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                format!("acknowledges packet {} which was never sent", error.number),
            ));
        }
        self.check_ecn(now, space, ack, &outcome);
        if space == Space::Data
            && let Some(keys) = &mut self.keys.one_rtt
            && let Some(newest) = outcome.largest_newly_acked
        {
            keys.on_acked(newest.number);
        }
        self.apply(now, space, &mut outcome);
        self.outcome = outcome;
        Ok(())
    }

    /// Applies what recovery found and empties it.
    pub(crate) fn apply(
        &mut self,
        now: Instant,
        space: Space,
        outcome: &mut clearway_recovery::Outcome<super::content::Content>,
    ) {
        for acked in outcome.acked.drain(..) {
            if let Some(path) = self.paths.get_mut(acked.path) {
                let change = if acked.mtu_probe {
                    path.mtu.on_probe_acked(acked.size, now)
                } else {
                    path.mtu.on_packet_acked(acked.size)
                };
                self.on_mtu_change(now, acked.path, change);
            }
            for frame in acked.content {
                self.on_frame_acked(space, &frame);
            }
        }
        for lost in outcome.lost.drain(..) {
            self.counters.packets_lost += u64::from(!lost.mtu_probe);
            self.trace(now, || TraceEvent::PacketLost {
                kind: kind_of(lost.space),
                number: lost.number,
                size: lost.size,
                trigger: match lost.cause {
                    clearway_recovery::LossCause::PacketThreshold => LossTrigger::Reordering,
                    clearway_recovery::LossCause::TimeThreshold
                    | clearway_recovery::LossCause::Discarded => LossTrigger::Time,
                },
            });
            if let Some(path) = self.paths.get_mut(lost.path) {
                let change = if lost.mtu_probe {
                    path.mtu.on_probe_lost(lost.size, now)
                } else {
                    path.mtu.on_packet_lost(lost.size, now)
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
        self.counters.spurious_losses += outcome.spurious as u64;
        outcome.clear();
        self.after_recovery(now);
    }

    /// Buffers follow the window; traces see the new figures.
    fn after_recovery(&mut self, now: Instant) {
        let id = self.paths.active_id();
        let Some(path) = self.recovery.path(id) else {
            return;
        };
        let window = path.window();
        self.streams.set_send_window_hint(window);
        if self.observer.is_some() {
            let event = TraceEvent::Metrics {
                window,
                in_flight: path.in_flight(),
                ssthresh: path.controller().metrics().ssthresh,
                smoothed_rtt: path.rtt().smoothed().as_nanos() as u64,
                min_rtt: path.rtt().min().as_nanos() as u64,
                pacing_rate: path.pacing_rate(),
            };
            self.trace(now, || event);
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
            SentFrame::NewToken => self.control.new_token = None,
            SentFrame::Ack(largest) => self.space(space).received.remove_below(largest),
            SentFrame::HandshakeDone | SentFrame::AckFrequency(_) | SentFrame::Datagram => {}
        }
    }

    fn on_frame_lost(&mut self, space: Space, frame: &SentFrame) {
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
            SentFrame::Datagram => self.counters.datagram_frames_lost += 1,
            // The next ACK frame says the same and more.
            SentFrame::Ack(_) => {}
        }
    }

    /// The probe timer fired: two ack-eliciting packets, carrying what is most
    /// likely missing (RFC 9002 §6.2.4).
    fn on_pto(&mut self, now: Instant, space: Space) {
        let id = self.paths.active_id();
        let count = self.recovery.path(id).map_or(0, |path| path.pto_count());
        self.counters.ptos += 1;
        self.trace(now, || TraceEvent::Pto { count });
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
            self.recovery.oldest_contents(space, 2, |content| oldest.extend_from_slice(content));
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

/// Spaces whose keys are at hand, oldest first.
pub(crate) fn spaces() -> impl Iterator<Item = Space> {
    SPACES.into_iter()
}
