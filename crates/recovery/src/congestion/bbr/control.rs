//! The control parameters: pacing rate, send quantum and window (§5.6).

use core::time::Duration;

use crate::pacer::{MAX_TRAIN, train_bytes};
use crate::rate::bytes_per_second;

use super::super::initial_window;
use super::facts::Facts;
use super::gains::{PACED_SHARE, Percent, STARTUP_PACING_GAIN, UNIT_GAIN};
use super::phase::Phase;
use super::{Bbr, INFINITE};
use crate::controller::Controller as _;

impl Bbr {
    /// UpdateControlParameters() (§5.2.3). The send quantum is computed from the pacing
    /// rate.
    pub(super) fn update_control_parameters(&mut self, facts: &Facts, recovered: bool) {
        if !self.measured && facts.rtt.is_some() {
            self.measured = true;
            self.init_pacing_rate(Some(facts.srtt));
        }
        self.set_pacing_rate_with_gain(self.pacing_gain());
        self.set_cwnd(facts, recovered);
    }

    pub(super) fn pacing_gain(&self) -> Percent {
        self.phase.pacing_gain()
    }

    /// InitPacingRate() (§5.6.2): the initial window over the round trip, or
    /// over a millisecond as long as that is unknown.
    pub(super) fn init_pacing_rate(&mut self, srtt: Option<Duration>) {
        let srtt = srtt.unwrap_or(Duration::from_millis(1));
        let nominal = bytes_per_second(initial_window(self.mds), srtt);
        self.pacing_rate = STARTUP_PACING_GAIN.of(nominal).max(self.min_pacing_rate());
    }

    /// Returns the smallest pacing rate: the minimum window per second. A lower rate is no
    /// plausible measurement of a path that carries QUIC, but would stop the flow for as
    /// long as it is used.
    pub(super) fn min_pacing_rate(&self) -> u64 {
        self.min_pipe_cwnd()
    }

    /// SetPacingRateWithGain() (§5.6.2).
    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: Percent) {
        if self.bw == 0 {
            return;
        }
        let rate = self.paced(gain);
        if self.full_pipe.reached || rate > self.pacing_rate {
            self.pacing_rate = rate.max(self.min_pacing_rate());
        }
    }

    /// Returns the rate of the model with this gain, less the pacing margin.
    pub(super) fn paced(&self, gain: Percent) -> u64 {
        self.paced_share().of(gain.of(self.bw))
    }

    /// Returns the share of the rate that remains after BBR.PacingMarginPercent (§2.5). The
    /// margin "helps drive the network toward lower queues", so it is needed only while
    /// there is a queue. If the latest RTT sample met none, the margin would leave the link
    /// idle for 1 % of the time. If the bandwidth is overestimated, a queue of two
    /// datagrams builds up and the margin applies again.
    fn paced_share(&self) -> Percent {
        match self.phase {
            Phase::Cruise if !self.queue_seen => UNIT_GAIN,
            Phase::Startup
            | Phase::Drain
            | Phase::Down
            | Phase::Cruise
            | Phase::Refill
            | Phase::Up
            | Phase::ProbeRtt => PACED_SHARE,
        }
    }

    /// SetSendQuantum() (§5.6.3): a train of the pacer.
    pub(super) fn send_quantum(&self) -> u64 {
        train_bytes(
            self.pacing_rate,
            self.trains_per_second(),
            MAX_TRAIN,
            self.mds,
        )
    }

    /// SetCwnd() (§5.6.4.6).
    fn set_cwnd(&mut self, facts: &Facts, recovered: bool) {
        if recovered {
            self.restore_cwnd();
        }
        let max_inflight = self.max_inflight();
        let grown = self.cwnd.saturating_add(facts.newly_acked);
        if self.full_pipe.reached {
            self.cwnd = grown.min(max_inflight);
        } else if self.cwnd < max_inflight || facts.total_delivered < initial_window(self.mds) {
            self.cwnd = grown;
        }
        self.cwnd = self.cwnd.max(self.min_pipe_cwnd());
        self.bound_cwnd_for_probe_rtt();
        self.bound_cwnd_for_model();
    }

    /// BoundCwndForProbeRTT() (§5.6.4.5).
    fn bound_cwnd_for_probe_rtt(&mut self) {
        if self.phase == Phase::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
    }

    /// BoundCwndForModel() (§5.6.4.7).
    fn bound_cwnd_for_model(&mut self) {
        let long_term = match self.phase {
            Phase::Startup | Phase::Drain => INFINITE,
            Phase::Down | Phase::Refill | Phase::Up => self.inflight_longterm,
            Phase::Cruise | Phase::ProbeRtt => self.inflight_with_headroom(),
        };
        let cap = long_term
            .min(self.inflight_shortterm)
            .max(self.min_pipe_cwnd());
        self.cwnd = self.cwnd.min(cap);
    }

    /// SaveCwnd() (§5.6.4.4): saves the last window that neither recovery nor ProbeRTT had
    /// reduced.
    pub(super) fn save_cwnd(&mut self) {
        self.prior_cwnd = if !self.recovering && self.phase != Phase::ProbeRtt {
            self.cwnd
        } else {
            self.prior_cwnd.max(self.cwnd)
        };
    }

    /// RestoreCwnd() (§5.6.4.4).
    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }
}
