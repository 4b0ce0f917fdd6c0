//! Handles acknowledgements, losses and probe timeouts of sent packets.

use clearway_recovery::outcome::NewlyAcked;
use clearway_recovery::{Outcome, Recovery, Space};

use super::ack_frequency::AckFrequencyRequest;
use super::arrival::AuthenticatedPacket;
use super::keyring::space_of;
use super::network::{Context, Network};
use super::peer_parameters::PeerParameters;
use super::sent_frame::SentFrames;
use crate::count::Count;
use crate::error::{Code, TransportError};
use crate::event::TraceEvent;
use crate::path::ecn::{EcnCounts, SpaceEcn};
use crate::path::paths::Paths;
use crate::time::Instant;
use crate::wire::PacketKind;
use crate::wire::frame::Ack;

impl Network {
    /// Handles an ACK frame in `packet`. Returns whether it acknowledged anything new.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if it acknowledges a packet that was never sent, KEY_UPDATE_ERROR
    /// if it arrived under older keys than a packet that it acknowledges.
    pub(super) fn on_ack(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut Outcome<SentFrames>,
        packet: &AuthenticatedPacket<'_>,
        ack: &Ack<'_>,
    ) -> Result<bool, TransportError> {
        let space = space_of(packet.kind);
        // Time that the packet waited here for its keys is not part of the RTT either (RFC
        // 9002 §5.3).
        let delay = PeerParameters::ack_delay(cx.peer, ack).saturating_add(cx.now - packet.arrived);
        let newer = self
            .recovery
            .largest_acked(space)
            .is_none_or(|before| ack.largest > before);
        let (paths, ecn) = (&mut self.paths, &mut cx.frames.spaces.get_mut(space).ecn);
        let (mut marks, now) = (0, cx.now);
        let check_ecn = |newly_acked: &NewlyAcked| {
            if newer {
                marks = ce_increase(paths, ecn, ack, newly_acked, now);
            }
            marks
        };
        self.recovery
            .on_ack_with_ecn(space, ack.ranges(), delay, cx.now, outcome, check_ecn)
            .map_err(|error| TransportError::new(Code::PROTOCOL_VIOLATION, error.to_string()))?;
        if packet.kind == PacketKind::OneRtt
            && let Some(keys) = &mut cx.keys.one_rtt
            && let Err(error) = keys.on_ack(ack.largest, packet.generation)
        {
            outcome.clear();
            return Err(error);
        }
        cx.reports.counters.ce_marks.count(marks);
        cx.reports.trace.ecn(now, self.paths.active().ecn.state());
        let news = !outcome.acked.is_empty() || outcome.spurious > 0;
        self.apply(cx, outcome);
        self.remember_path(cx);
        Ok(news)
    }

    /// Handles the loss recovery timer, which is due.
    pub(super) fn on_recovery_timeout(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut Outcome<SentFrames>,
    ) {
        let pending = self.recovery.armed_timer();
        cx.reports.trace.timer_expired(cx.now, pending);
        self.recovery.on_timeout(cx.now, outcome);
        self.apply(cx, outcome);
    }

    /// Has recovery give packets up, and retransmits their contents. This is not a sign of
    /// congestion.
    pub(super) fn abandon_packets(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut Outcome<SentFrames>,
        give_up: impl FnOnce(&mut Recovery<SentFrames>, &mut Outcome<SentFrames>),
    ) {
        give_up(&mut self.recovery, outcome);
        for lost in outcome.lost.drain(..) {
            cx.reports.trace.packet_lost(cx.now, &lost);
            for frame in lost.content {
                let counters = &mut cx.reports.counters;
                cx.frames.on_lost(lost.space, &frame, counters);
            }
        }
        outcome.clear();
    }

    /// Discards 0-RTT packets and their frames, because the server rejected 0-RTT (RFC 9001
    /// §4.6.2).
    pub(super) fn discard_zero_rtt_packets(
        &mut self,
        cx: &mut Context<'_>,
        outcome: &mut Outcome<SentFrames>,
    ) {
        self.recovery.on_zero_rtt_rejected(cx.now, outcome);
        for lost in &outcome.lost {
            cx.reports.trace.packet_lost(cx.now, lost);
        }
        outcome.clear();
    }

    /// Applies the results of recovery and clears them.
    pub(super) fn apply(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome<SentFrames>) {
        let now = cx.now;
        for acked in outcome.acked.drain(..) {
            if let Some(path) = self.paths.get_mut(acked.path) {
                // A packet larger than the current MTU was a probe.
                let change = if acked.size > path.mtu.current() {
                    path.mtu.on_probe_acked(now, acked.size)
                } else {
                    path.mtu.on_packet_acked(acked.size);
                    None
                };
                self.on_mtu_change(now, acked.path, change, cx.reports);
            }
            for frame in acked.content {
                let late_period = || self.pto().saturating_mul(3);
                cx.frames.on_acked(acked.space, &frame, now, late_period);
            }
        }
        for lost in outcome.lost.drain(..) {
            let counters = &mut cx.reports.counters;
            counters.packets_lost.count(u64::from(!lost.mtu_probe));
            cx.reports.trace.packet_lost(now, &lost);
            if let Some(path) = self.paths.get_mut(lost.path) {
                path.ecn.on_lost(u64::from(lost.ect), now);
                let change = if lost.mtu_probe {
                    path.mtu.on_probe_lost(now, lost.size);
                    None
                } else {
                    path.mtu.on_packet_lost(now, lost.size, lost.sent)
                };
                self.on_mtu_change(now, lost.path, change, cx.reports);
            }
            for frame in lost.content {
                let counters = &mut cx.reports.counters;
                cx.frames.on_lost(lost.space, &frame, counters);
            }
        }
        if let Some(space) = outcome.pto.take() {
            self.on_pto(cx, space);
        }
        cx.reports.counters.spurious_losses.count(outcome.spurious);
        outcome.clear();
        self.on_window_change(cx);
    }

    /// Adapts send buffers and the peer's ACK frequency to the window, and traces the new
    /// metrics.
    fn on_window_change(&mut self, cx: &mut Context<'_>) {
        let path = self.active_recovery();
        cx.frames.streams.set_send_window_hint(path.window());
        if let Some(peer) = cx.peer_with_ack_frequency() {
            let last = cx.frames.control.ack_frequency;
            if let Some(request) = AckFrequencyRequest::after(last, peer, path) {
                let longest = request.longest_ack_delay(peer);
                cx.frames.control.request_ack_frequency(request);
                self.recovery.set_max_ack_delay(longest);
            }
        }
        self.trace(cx.now, cx.reports);
    }

    /// Handles a probe timeout: two ack-eliciting packets are due, with the data most
    /// likely missing (RFC 9002 §6.2.4).
    fn on_pto(&mut self, cx: &mut Context<'_>, space: Space) {
        let now = cx.now;
        let count = self.active_recovery().pto_count();
        cx.reports.counters.ptos.count_one();
        cx.reports.trace(now, || TraceEvent::Pto { count });
        let active = self.paths.active_mut();
        let (id, change) = (active.id, active.mtu.on_pto(now, count));
        self.on_mtu_change(now, id, change, cx.reports);
        let can_ask = cx.peer_with_ack_frequency().is_some();
        let frames = &mut *cx.frames;
        frames.spaces.get_mut(space).probes = 2;
        // Initial and Handshake are coalesced, so a probe of one carries the
        // other's missing bytes too: under loss, two datagrams would each have
        // to arrive.
        for each in [Space::Initial, Space::Handshake] {
            if cx.keys.sending_kind(each).is_some() {
                let state = frames.spaces.get_mut(each);
                if state.crypto.has_unacked() {
                    state.crypto.resend_all();
                    state.probes = state.probes.max(1);
                }
            }
        }
        if space == Space::Data {
            if can_ask {
                frames.control.immediate_ack.on_pto();
            }
            for (_, content) in self.recovery.unacked(space).take(2) {
                frames.repeat(space, content, &mut cx.reports.counters);
            }
        }
    }
}

/// Validates ECN on the path of the newest acknowledged packet, for an ACK frame that increased
/// the largest acknowledged number. Returns by how much the count of CE marks grew (RFC 9000
/// §13.4.2.1).
fn ce_increase(
    paths: &mut Paths,
    space: &mut SpaceEcn,
    ack: &Ack<'_>,
    newly_acked: &NewlyAcked,
    now: Instant,
) -> u64 {
    let path = newly_acked.largest.map(|largest| largest.path);
    let Some(path) = path.and_then(|id| paths.get_mut(id)) else {
        return 0;
    };
    let counts = ack.ecn.map(|ecn| EcnCounts {
        ect0: ecn.ect0,
        ect1: ecn.ect1,
        ce: ecn.ce,
    });
    // All paths of a connection have the same controller, and so the same mark.
    let report = path.ecn.ack_data(counts, newly_acked.ect);
    path.ecn.on_ack(space, &report, now)
}
