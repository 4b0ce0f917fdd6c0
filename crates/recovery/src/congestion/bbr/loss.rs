//! Losses: the result of a probe, and the short-term model (§5.5.10).

use crate::controller::{Congestion, CongestionCause, LostPacket, SendIndex};
use crate::time::Instant;

use super::facts::Facts;
use super::gains::{BETA, LOSS_THRESHOLD, Percent};
use super::phase::Phase;
use super::undo::Probing;
use super::{Bbr, INFINITE};

/// Congestion signals of a round trip with loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRound {
    /// BBR.is_loss_in_round.
    pub(super) loss_seen: bool,
    /// BBR.loss_round_start: the current ACK ended a round.
    pub(super) started: bool,
    /// BBR.loss_round_delivered.
    delivered: u64,
    /// BBR.bw_latest in bytes per second.
    pub(super) bw_latest: u64,
    /// BBR.inflight_latest in bytes.
    pub(super) inflight_latest: u64,
    tally: RoundTally,
    /// The newest lost packet, to recognise where another range begins.
    last_lost: Option<SendIndex>,
}

/// The congestion of one round, by which Startup may end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTally {
    /// Discontiguous ranges lost.
    pub(super) ranges: u64,
    /// Bytes marked CE.
    marked: u64,
    /// A recovery ended in it, after a full round trip.
    pub(super) has_recovered: bool,
}

impl RoundTally {
    /// Returns whether more bytes were marked than may be lost. Marks show a queue as
    /// losses do, but without noise that has to be filtered out.
    pub(super) fn is_marked_too_often(self, delivered: u64) -> bool {
        self.marked > LOSS_THRESHOLD.of(delivered)
    }
}

impl LossRound {
    /// ResetCongestionSignals().
    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_seen = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    /// Returns the round's congestion and resets it for the next round.
    pub(super) fn take_tally(&mut self) -> RoundTally {
        core::mem::take(&mut self.tally)
    }

    /// Returns whether there were marks in this round.
    pub(super) fn is_marked(&self) -> bool {
        self.tally.marked > 0
    }

    /// Counts bytes that were marked in this round.
    pub(super) fn note_marked(&mut self, bytes: u64) {
        self.tally.marked = self.tally.marked.saturating_add(bytes);
    }

    /// Records the end of a recovery, which counts for the round that the same ACK ends if there is one.
    pub(super) fn note_recovered(&mut self) {
        self.tally.has_recovered |= !self.started;
    }

    fn count_range(&mut self, index: SendIndex) {
        let adjacent = self.last_lost.is_some_and(|last| index.abs_diff(last) <= 1);
        if !adjacent {
            self.tally.ranges += 1;
        }
        self.last_lost = Some(index);
    }
}

impl Bbr {
    /// UpdateLatestDeliverySignals() (§5.5.10.3).
    pub(super) fn update_latest_delivery_signals(&mut self, facts: &Facts) {
        let round = &mut self.loss_round;
        round.bw_latest = round.bw_latest.max(facts.delivery_rate);
        round.inflight_latest = round.inflight_latest.max(facts.delivered);
        round.started = facts.prior_delivered >= round.delivered;
        if round.started {
            round.delivered = facts.total_delivered;
        }
    }

    /// AdvanceLatestDeliverySignals() (§5.5.10.3).
    pub(super) fn advance_latest_delivery_signals(&mut self, facts: &Facts) {
        if self.loss_round.started {
            self.loss_round.bw_latest = facts.delivery_rate;
            self.loss_round.inflight_latest = facts.delivered;
        }
    }

    /// UpdateCongestionSignals() (§5.5.10.3).
    pub(super) fn update_congestion_signals(&mut self, facts: &Facts) {
        self.update_max_bw(facts);
        if !self.loss_round.started {
            self.update_marks(facts);
            return;
        }
        self.judge_model_in_doubt(facts);
        if self.loss_round.loss_seen && !self.phase.is_probing() {
            self.adapt_lower_bounds();
        }
        self.loss_round.loss_seen = false;
        self.update_marks(facts);
    }

    /// InitLowerBounds() and LossLowerBounds() (§5.5.10.3): once per round.
    pub(super) fn adapt_lower_bounds(&mut self) {
        if self.bw_shortterm == INFINITE {
            self.bw_shortterm = self.max_bw.get();
        }
        if self.inflight_shortterm == INFINITE {
            // If persistent congestion has collapsed the window, the one before counts. In any
            // other recovery the model has bounded the window, and the larger one from before
            // would be no bound.
            self.inflight_shortterm = if self.recovering && self.collapsed {
                self.cwnd.max(self.prior_cwnd)
            } else {
                self.cwnd
            };
        }
        let round = &self.loss_round;
        self.bw_shortterm = round.bw_latest.max(BETA.of(self.bw_shortterm));
        self.inflight_shortterm = round.inflight_latest.max(BETA.of(self.inflight_shortterm));
    }

    /// NoteLoss() (§5.5.10.2), and OnEnterFastRecovery() (§5.6.4.4): a new event
    /// may begin in a round that has seen losses of the one before.
    pub(super) fn note_loss(&mut self, event: SendIndex) {
        if !self.loss_round.loss_seen {
            self.loss_round.delivered = self.delivered;
        }
        self.loss_round.loss_seen = true;
        self.save_state_upon_loss(event);
    }

    /// HandleLostPacket() (§5.5.10.2).
    pub(super) fn handle_lost_packet(&mut self, lost: &LostPacket) {
        self.delivered = lost.delivered;
        self.loss_round.count_range(lost.index);
        self.note_loss(lost.event);
        if !self.probe.is_sample {
            return;
        }
        if lost.lost_since_sent > LOSS_THRESHOLD.of(lost.tx_in_flight) {
            let inflight = inflight_at_loss(lost);
            self.handle_inflight_too_high(inflight, lost.app_limited, lost.now);
        }
    }

    /// HandleInflightTooHigh() (§5.5.10.2): the probe has found the bound, and responds
    /// once.
    pub(super) fn handle_inflight_too_high(
        &mut self,
        inflight: u64,
        app_limited: bool,
        now: Instant,
    ) {
        self.probe.too_high = true;
        self.probe.is_sample = false;
        if !app_limited {
            self.inflight_longterm = inflight.max(BETA.of(self.target_inflight()));
        }
        if self.phase == Phase::Up {
            self.undo.was_probing = Some(Probing::Up);
            self.start_probe_bw_down(now);
        }
    }

    /// Handles losses or marks, once per ACK or timer: recovery (§5.6.4.4) and ECN.
    pub(super) fn handle_congestion(&mut self, event: &Congestion) {
        let news = event.largest_index >= self.boundary;
        if news {
            self.metrics.congestion_events += 1;
            self.boundary = event.next_index;
            self.collapsed &= self.recovering;
            self.recovering = true;
        }
        match event.cause {
            CongestionCause::Loss if event.persistent => self.collapse(event),
            CongestionCause::Loss => {}
            CongestionCause::EcnCe => self.handle_marks(event, news),
        }
    }

    /// Handles persistent congestion, in the place of OnEnterRTO() (§5.6.4.4).
    fn collapse(&mut self, event: &Congestion) {
        self.metrics.persistent_events += 1;
        self.save_cwnd();
        // Nothing is undone across it (RFC 9002 §7.6).
        self.forget_undo();
        self.boundary = event.next_index;
        self.recovering = true;
        self.collapsed = true;
        self.cwnd = self.min_pipe_cwnd();
    }
}

/// InflightAtLoss() (§5.5.10.2): the bytes in flight at which the loss rate crossed the
/// threshold within the lost packet. If it was crossed earlier, the bytes in flight before
/// the packet.
pub(super) fn inflight_at_loss(lost: &LostPacket) -> u64 {
    let inflight_prev = lost.tx_in_flight.saturating_sub(lost.bytes);
    let lost_prev = lost.lost_since_sent.saturating_sub(lost.bytes);
    let Percent(threshold) = LOSS_THRESHOLD;
    let tolerated = u128::from(inflight_prev) * u128::from(threshold);
    let room = tolerated.saturating_sub(u128::from(lost_prev) * 100);
    let lost_prefix = room / u128::from(100 - threshold);
    inflight_prev.saturating_add(u64::try_from(lost_prefix).unwrap_or(u64::MAX))
}
