//! Sending again after idling (§5.4), or after the application was the limit for long.
//!
//! The draft keeps the model however long that was. A path that has become slower meanwhile is
//! then sent the old rate: the short-term model gives way by 30 % a round trip, and each
//! probe returns to the old rate for as long as max_bw remembers it. So after ten seconds the model
//! is in doubt, as the window of RFC 7661 is while it is not validated: it is kept and used,
//! but if the first losses show that the path carries less, the measured rate replaces it.

use crate::time::Instant;

use super::super::initial_window;
use super::Bbr;
use super::facts::Facts;
use super::gains::UNIT_GAIN;
use super::phase::Phase;

impl Bbr {
    /// HandleRestartFromIdle(): keeps the window and paces at exactly the estimated
    /// bandwidth.
    pub(super) fn handle_restart_from_idle(&mut self, now: Instant) {
        self.idle_restart = true;
        self.clocks(now).extra_acked.restart(now);
        if self.phase.is_probe_bw() {
            self.set_pacing_rate_with_gain(UNIT_GAIN);
        } else if self.phase == Phase::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }

    /// Judges a model in doubt at the end of a round. What the application did not fill is no
    /// evidence, neither for nor against it.
    pub(super) fn judge_model_in_doubt(&mut self, facts: &Facts) {
        let round = &self.loss_round;
        let judged = self.full_pipe.reached
            && self.doubt.can_be_settled()
            && round.inflight_latest >= initial_window(self.mds);
        if !judged {
            return;
        }
        if round.loss_seen && facts.is_inflight_too_high() {
            self.max_bw.replace(round.bw_latest, facts.now);
            self.doubt.settle();
        } else if !round.loss_seen && round.bw_latest >= self.bw / 2 {
            self.doubt.settle();
        }
    }
}
