//! ProbeRTT: keeps little in flight for a moment, to measure the round trip without a queue
//! (§5.3.4).

use crate::time::Instant;

use super::Bbr;
use super::facts::Facts;
use super::gains::{PROBE_RTT_CWND_GAIN, PROBE_RTT_DURATION};
use super::phase::{AckPhase, Phase};

impl Bbr {
    /// CheckProbeRTT() (§5.3.4.3). The path marks the samples while `marks_app_limited`
    /// returns true.
    pub(super) fn check_probe_rtt(&mut self, facts: &Facts) {
        let due = self.clocks(facts.now).min_rtt.is_probe_due();
        if self.phase != Phase::ProbeRtt && due && !self.idle_restart {
            self.enter_probe_rtt();
        }
        if self.phase == Phase::ProbeRtt {
            self.handle_probe_rtt(facts);
        }
        if facts.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// EnterProbeRTT(). The window is saved before it is reduced.
    fn enter_probe_rtt(&mut self) {
        self.save_cwnd();
        self.phase = Phase::ProbeRtt;
        self.probe_rtt.done_stamp = None;
        self.ack_phase = AckPhase::ProbeStopping;
        self.rounds.restart(self.delivered);
    }

    /// HandleProbeRTT().
    fn handle_probe_rtt(&mut self, facts: &Facts) {
        if self.probe_rtt.done_stamp.is_some() {
            self.probe_rtt.round_done |= self.rounds.started;
            if self.probe_rtt.round_done {
                self.check_probe_rtt_done(facts.now);
            }
        } else if facts.in_flight <= self.probe_rtt_cwnd() {
            self.probe_rtt.done_stamp = Some(facts.now + PROBE_RTT_DURATION);
            self.probe_rtt.round_done = false;
            self.rounds.restart(self.delivered);
        }
    }

    /// CheckProbeRTTDone().
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt.done_stamp.is_some_and(|done| now > done) {
            self.clocks(now).min_rtt.schedule_next(now);
            self.restore_cwnd();
            self.exit_probe_rtt(now);
        }
    }

    /// ExitProbeRTT() (§5.3.4.4): less than a BDP is in flight, so all that DOWN has to do
    /// is to schedule the next probe.
    fn exit_probe_rtt(&mut self, now: Instant) {
        self.reset_short_term_model();
        if self.full_pipe.reached {
            self.start_probe_bw_down(now);
            self.start_probe_bw_cruise();
        } else {
            self.enter_startup();
        }
    }

    /// ProbeRTTCwnd() (§5.6.4.5).
    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp_multiple(self.bw, PROBE_RTT_CWND_GAIN)
            .max(self.min_pipe_cwnd())
    }
}
