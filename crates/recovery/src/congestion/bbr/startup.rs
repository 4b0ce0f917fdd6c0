//! Startup: doubles the rate until the pipe is full, or until there is too much loss
//! (§5.3.1).

use super::Bbr;
use super::facts::Facts;
use super::gains::{
    BOUNDED_GROWTH, FULL_BW_GROWTH, FULL_BW_ROUNDS, STARTUP_FULL_LOSS_COUNT, UNIT_GAIN,
};
use super::phase::Phase;
use super::undo::Probing;

/// The full-pipe estimator (§5.3.1.2), which ends Startup and UP.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    /// BBR.full_bw_reached: the pipe was full at some time.
    pub(super) reached: bool,
    /// BBR.full_bw_now: since the estimator was last reset.
    pub(super) now: bool,
    /// BBR.full_bw_count.
    pub(super) count: u8,
    /// BBR.full_bw in bytes per second.
    pub(super) baseline: u64,
}

impl FullPipe {
    /// ResetFullBW(), with the baseline to begin from.
    pub(super) fn reset(&mut self, baseline: u64) {
        self.baseline = baseline;
        self.count = 0;
        self.now = false;
    }
}

impl Bbr {
    /// CheckFullBWReached() (§5.3.1.2).
    pub(super) fn check_full_bw_reached(&mut self, facts: &Facts) {
        if self.full_pipe.now
            || !self.rounds.started
            || facts.is_app_limited
            || facts.delivery_rate == 0
        {
            return;
        }
        let expected = if self.is_bounded_by_long_term_model() {
            BOUNDED_GROWTH
        } else {
            FULL_BW_GROWTH
        };
        if facts.delivery_rate >= expected.of(self.full_pipe.baseline) {
            self.full_pipe.reset(facts.delivery_rate);
            return;
        }
        self.full_pipe.count += 1;
        self.full_pipe.now = self.full_pipe.count >= FULL_BW_ROUNDS;
        self.full_pipe.reached |= self.full_pipe.now;
    }

    /// CheckStartupDone() (§5.3.1.1).
    pub(super) fn check_startup_done(&mut self, facts: &Facts) {
        self.check_startup_high_loss(facts);
        if self.phase == Phase::Startup && self.full_pipe.reached {
            self.enter_drain();
        }
    }

    /// EnterStartup() (§5.3.1.1).
    pub(super) fn enter_startup(&mut self) {
        self.phase = Phase::Startup;
    }

    /// CheckStartupHighLoss() (§5.3.1.3), once a full round of recovery is over. A recovery that begins
    /// in a round that has seen losses before ends before the next round does.
    fn check_startup_high_loss(&mut self, facts: &Facts) {
        if !self.loss_round.started {
            return;
        }
        let round = self.loss_round.take_tally();
        if self.full_pipe.reached {
            return;
        }
        let enough = round.ranges >= STARTUP_FULL_LOSS_COUNT;
        let recovery = self.recovering || round.has_recovered;
        let high_loss = recovery && enough && facts.is_inflight_too_high();
        if high_loss || round.is_marked_too_often(facts.delivered) {
            self.undo.was_probing = Some(Probing::Startup);
            self.full_pipe.now = true;
            self.full_pipe.reached = true;
            let bdp = self.bdp_multiple(self.bw, UNIT_GAIN);
            self.inflight_longterm = bdp.max(self.loss_round.inflight_latest);
        }
    }
}
