//! ProbeBW: sends slower than, as fast as and faster than the network delivers, in a cycle
//! (§5.3.3).

use core::time::Duration;

use crate::time::{Instant, nanos};

use super::facts::Facts;
use super::gains::{PROBE_WAIT, RENO_ROUNDS};
use super::phase::{AckPhase, Phase};
use super::{Bbr, INFINITE};

impl Bbr {
    /// EnterProbeBW() (§5.3.3.9).
    pub(super) fn enter_probe_bw(&mut self, now: Instant) {
        self.start_probe_bw_down(now);
    }

    /// StartProbeBW_DOWN().
    pub(super) fn start_probe_bw_down(&mut self, now: Instant) {
        self.loss_round.reset_congestion_signals();
        self.probe.acked_per_increase = INFINITE;
        self.pick_probe_wait();
        self.probe.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.rounds.restart(self.delivered);
        self.phase = Phase::Down;
    }

    /// StartProbeBW_CRUISE().
    pub(super) fn start_probe_bw_cruise(&mut self) {
        self.phase = Phase::Cruise;
    }

    /// StartProbeBW_REFILL().
    pub(super) fn start_probe_bw_refill(&mut self) {
        self.reset_short_term_model();
        self.probe.up_rounds = 0;
        self.probe.up_acked = 0;
        self.probe.precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.rounds.restart(self.delivered);
        self.phase = Phase::Refill;
    }

    /// StartProbeBW_UP().
    fn start_probe_bw_up(&mut self, facts: &Facts) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.rounds.restart(self.delivered);
        self.full_pipe.reset(facts.delivery_rate);
        self.phase = Phase::Up;
        self.raise_inflight_longterm_slope();
    }

    /// UpdateProbeBWCyclePhase(): the state machine, on each ACK.
    pub(super) fn update_probe_bw_cycle_phase(&mut self, facts: &Facts) {
        if !self.full_pipe.reached || self.adapt_long_term_model(facts) {
            return;
        }
        match self.phase {
            Phase::Startup | Phase::Drain | Phase::ProbeRtt => {}
            Phase::Down => {
                if !self.probe_if_time(facts) && self.is_time_to_cruise(facts) {
                    self.start_probe_bw_cruise();
                }
            }
            Phase::Cruise => {
                self.probe_if_time(facts);
            }
            Phase::Refill => {
                if self.rounds.started {
                    self.probe.is_sample = true;
                    self.start_probe_bw_up(facts);
                }
            }
            Phase::Up => {
                if self.is_time_to_go_down(facts) {
                    self.probe.too_high = false;
                    self.start_probe_bw_down(facts.now);
                }
            }
        }
    }

    /// IsTimeToProbeBW() (§5.3.3.8): changes from DOWN or CRUISE to REFILL if it is time.
    fn probe_if_time(&mut self, facts: &Facts) -> bool {
        let elapsed = facts.now > self.probe.cycle_stamp + self.probe.wait;
        let due = elapsed || self.is_reno_coexistence_probe_time();
        if due {
            // A round trip longer than the wait: the last ACKs of the previous probe have not
            // arrived, and as ACKs of this one they would not end its cycle. Without this the
            // draft's filter keeps the bandwidth from before a fall for as long as the queue
            // that this bandwidth builds keeps the round trip long.
            if self.ack_phase == AckPhase::ProbeStopping {
                self.end_max_bw_cycle(facts);
            }
            self.start_probe_bw_refill();
        }
        due
    }

    /// PickProbeWait() (§5.3.3.8).
    fn pick_probe_wait(&mut self) {
        self.rounds.since_probe_up = self.rng.below(2);
        let random = self.rng.below(nanos(Duration::from_secs(1)));
        self.probe.wait = PROBE_WAIT + Duration::from_nanos(random);
    }

    /// IsRenoCoexistenceProbeTime() (§5.3.3.8), in datagrams: Reno grows by one per round.
    fn is_reno_coexistence_probe_time(&self) -> bool {
        let rounds = (self.target_inflight() / self.mds.max(1)).min(RENO_ROUNDS);
        self.rounds.since_probe_up >= rounds
    }

    /// IsTimeToCruise() (§5.3.3.9): the headroom is free, and no queue is left.
    fn is_time_to_cruise(&self, facts: &Facts) -> bool {
        facts.in_flight <= self.inflight_with_headroom()
            && facts.in_flight <= self.inflight_at(self.max_bw.get())
    }

    /// Whether inflight_longterm limits the bandwidth.
    pub(super) fn is_bounded_by_long_term_model(&self) -> bool {
        self.rounds.is_cwnd_limited() && self.cwnd >= self.inflight_longterm
    }

    /// IsTimeToGoDown() (§5.3.3.9).
    pub(super) fn is_time_to_go_down(&mut self, facts: &Facts) -> bool {
        let reached = facts.in_flight_before.saturating_add(self.mds) > self.inflight_longterm;
        if self.probe.too_high && reached {
            self.probe.precautionary = true;
            return true;
        }
        if self.is_bounded_by_long_term_model() {
            // A plateau does not mean that the pipe is full. The best rate of the probe counts: the
            // draft takes the newest, which after a low one would make a little more look like growth.
            let best = self.full_pipe.baseline.max(facts.delivery_rate);
            self.full_pipe.reset(best);
            return false;
        }
        self.full_pipe.now
    }
}
