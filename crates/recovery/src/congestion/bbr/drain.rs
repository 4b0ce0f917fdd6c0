//! Drain: empties the queue that Startup built (§5.3.2).

use super::Bbr;
use super::facts::Facts;
use super::gains::DRAIN_ROUNDS;
use super::phase::Phase;

impl Bbr {
    /// EnterDrain().
    pub(super) fn enter_drain(&mut self) {
        self.phase = Phase::Drain;
        self.drain_start_round = self.rounds.count;
    }

    /// CheckDrainDone(): ends Drain if no queue is left, or if the bandwidth was
    /// overestimated and the queue will not become empty.
    pub(super) fn check_drain_done(&mut self, facts: &Facts) {
        if self.phase != Phase::Drain {
            return;
        }
        let drained = facts.in_flight <= self.inflight_at(self.bw);
        let overdue = self.rounds.count > self.drain_start_round + DRAIN_ROUNDS;
        if drained || overdue {
            self.enter_probe_bw(facts.now);
        }
    }
}
