//! The model of the path: bandwidth, BDP, and the bytes in flight that follow from them
//! (§5.5.2 – §5.5.9, §5.6.4.2).

use core::time::Duration;

use crate::pacer::min_train;
use crate::rate::bytes_in;
use crate::time::nanos;

use super::super::initial_window;
use super::facts::Facts;
use super::gains::{HEADROOM, Percent, UNIT_GAIN};
use super::phase::Phase;
use super::{Bbr, INFINITE};

/// In Startup a sample may be this fraction of the minimum above it: 1/64.
const STARTUP_SLACK_SHARE: u64 = 64;

impl Bbr {
    /// UpdateMaxBw() (§5.5.5).
    pub(super) fn update_max_bw(&mut self, facts: &Facts) {
        self.rounds
            .update(facts.prior_delivered, facts.total_delivered);
        let larger = facts.delivery_rate >= self.max_bw.get();
        if facts.delivery_rate > 0 && (larger || !self.is_limited_by_application(facts)) {
            self.max_bw.update(facts.delivery_rate, facts.now);
        }
    }

    /// Returns whether a sample is no measure of the bandwidth because the application was the
    /// limit. ProbeRTT marks its samples as well, but they may be counted: they are among those
    /// of a probe, and only the largest matters. In a queue of seconds, ProbeRTT after ProbeRTT
    /// marks all samples, and without them the estimate would never be replaced.
    pub(super) fn is_limited_by_application(&self, facts: &Facts) -> bool {
        facts.is_app_limited && self.rounds.is_application_limited()
    }

    /// BoundBWForModel() (§5.5.10.3).
    pub(super) fn bound_bw_for_model(&mut self) {
        self.bw = self.max_bw.get().min(self.bw_shortterm);
    }

    /// ResetShortTermModel() (§5.5.10.3).
    pub(super) fn reset_short_term_model(&mut self) {
        self.bw_shortterm = INFINITE;
        self.inflight_shortterm = INFINITE;
    }

    /// UpdateACKAggregation() (§5.5.9).
    pub(super) fn update_ack_aggregation(&mut self, facts: &Facts) {
        let (bw, cwnd, round) = (self.bw, self.cwnd, self.rounds.count);
        self.clocks(facts.now)
            .extra_acked
            .update(facts.newly_acked, bw, cwnd, round, facts.now);
    }

    /// UpdateMinRTT() (§5.3.4.3).
    pub(super) fn update_min_rtt(&mut self, facts: &Facts) {
        let slack = self.min_rtt_slack();
        let app_limited = self.is_limited_by_application(facts);
        let min_rtt = &mut self.clocks(facts.now).min_rtt;
        min_rtt.update(facts.rtt, slack, app_limited, facts.now);
        let min = min_rtt.get();
        if let (Some(rtt), Some(min)) = (facts.rtt, min) {
            self.queue_seen = rtt > min.saturating_add(slack);
        }
    }

    /// Returns how far above the minimum a sample may be that refreshes it: the time that
    /// the shortest train, two datagrams, takes to pass the bottleneck. The two are sent
    /// and acknowledged together, so the second waits for the first even on an empty path,
    /// while the minimum usually comes from a short packet of the handshake. A queue
    /// smaller than that does not justify leaving half of the link idle for 200 ms.
    fn min_rtt_slack(&self) -> Duration {
        let (bw, Some(min)) = (self.max_bw.get(), self.min_rtt()) else {
            return Duration::ZERO;
        };
        let quantum = min_train(self.mds);
        let slack = quantum.saturating_mul(1_000_000_000) / bw.max(1);
        if self.full_pipe.reached {
            return Duration::from_nanos(slack);
        }
        // In Startup the bandwidth estimate is too low, so the time would be too long. But
        // a smaller slack must remain: with an RTT of 600 ms, Startup takes more than five
        // seconds, and a ProbeRTT in between costs a round of growth.
        Duration::from_nanos(slack.min(nanos(min) / STARTUP_SLACK_SHARE))
    }

    /// Returns BBR.min_rtt; `None` = Infinity.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.clocks.and_then(|clocks| clocks.min_rtt.get())
    }

    /// Returns BBR.extra_acked in bytes.
    pub(super) fn extra_acked(&self) -> u64 {
        self.clocks
            .map_or(0, |clocks| clocks.extra_acked.get(self.full_pipe.reached))
    }

    /// Returns the bytes that a bandwidth moves in BBR.min_rtt; `None` before a sample.
    pub(super) fn bdp_of(&self, bw: u64) -> Option<u64> {
        self.min_rtt().map(|rtt| bytes_in(bw, rtt))
    }

    /// BDPMultiple(gain) for a bandwidth (§5.6.4.2).
    pub(super) fn bdp_multiple(&self, bw: u64, gain: Percent) -> u64 {
        self.bdp_of(bw)
            .map_or_else(|| initial_window(self.mds), |bdp| gain.of(bdp))
    }

    /// QuantizationBudget() (§5.6.4.2). For QUIC the offload budget is one
    /// quantum (§5.5.8.2).
    pub(super) fn quantization_budget(&self, inflight: u64) -> u64 {
        let inflight = inflight.max(self.send_quantum()).max(self.min_pipe_cwnd());
        if self.phase == Phase::Up {
            inflight.saturating_add(self.mds.saturating_mul(2))
        } else {
            inflight
        }
    }

    /// Inflight(bw, 1.0): the bytes in flight that fill the pipe at a bandwidth, without a
    /// queue.
    pub(super) fn inflight_at(&self, bw: u64) -> u64 {
        self.quantization_budget(self.bdp_multiple(bw, UNIT_GAIN))
    }

    /// UpdateMaxInflight() (§5.6.4.2).
    pub(super) fn max_inflight(&self) -> u64 {
        let inflight = self.bdp_multiple(self.bw, self.phase.cwnd_gain());
        self.quantization_budget(inflight.saturating_add(self.extra_acked()))
    }

    /// InflightWithHeadroom() (§5.3.3.9).
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == INFINITE {
            return INFINITE;
        }
        let headroom = HEADROOM.of(self.inflight_longterm).max(self.mds);
        self.inflight_longterm
            .saturating_sub(headroom)
            .max(self.min_pipe_cwnd())
    }

    /// TargetInflight() (§5.3.3.8): the BDP, unless congestion cut the window.
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp_multiple(self.bw, UNIT_GAIN).min(self.cwnd)
    }
}
