//! The long-term model: what probes have shown to be safe (§5.3.3.9).

use super::facts::Facts;
use super::phase::{AckPhase, Phase};
use super::{Bbr, INFINITE};

/// Largest number of times that the slope is doubled.
const MAX_UP_ROUNDS: u32 = 30;

impl Bbr {
    /// AdaptLongTermModel(). Returns whether it changed the phase.
    pub(super) fn adapt_long_term_model(&mut self, facts: &Facts) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.rounds.started {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping
            && self.rounds.started
            && self.finish_probe(facts)
        {
            return true;
        }
        // Marks are not losses, but a volume in flight that was marked is not safe either.
        let safe = !facts.is_inflight_too_high() && !self.loss_round.is_marked();
        if safe && self.inflight_longterm != INFINITE {
            self.inflight_longterm = self.inflight_longterm.max(facts.tx_in_flight);
            if self.phase == Phase::Up {
                self.probe_inflight_longterm_upward(facts);
            }
        }
        false
    }

    /// Ends a probe, whose last ACKs have arrived. Returns whether the next probe follows
    /// at once, because a precautionary probe found no problem (§5.3.3.6).
    fn finish_probe(&mut self, facts: &Facts) -> bool {
        self.probe.is_sample = false;
        self.ack_phase = AckPhase::Init;
        if !self.phase.is_probe_bw() {
            return false;
        }
        self.end_max_bw_cycle(facts);
        let safe = self.probe.precautionary && !self.probe.too_high;
        if safe {
            self.start_probe_bw_refill();
        }
        safe
    }

    /// Ends a cycle of the max_bw filter, unless the application limits the flow and so
    /// measures no bandwidth.
    pub(super) fn end_max_bw_cycle(&mut self, facts: &Facts) {
        if !self.is_limited_by_application(facts) {
            self.max_bw.advance();
        }
    }

    /// RaiseInflightLongtermSlope(): 1, 2, 4, 8 … datagrams a round.
    pub(super) fn raise_inflight_longterm_slope(&mut self) {
        let growth_this_round = 1_u64 << self.probe.up_rounds;
        self.probe.up_rounds = (self.probe.up_rounds + 1).min(MAX_UP_ROUNDS);
        self.probe.acked_per_increase = (self.cwnd / growth_this_round).max(self.mds).max(1);
    }

    /// ProbeInflightLongtermUpward().
    fn probe_inflight_longterm_upward(&mut self, facts: &Facts) {
        if !self.is_bounded_by_long_term_model() {
            return;
        }
        self.probe.up_acked = self.probe.up_acked.saturating_add(facts.newly_acked);
        let increases = self.probe.up_acked / self.probe.acked_per_increase;
        self.probe.up_acked -= increases * self.probe.acked_per_increase;
        let growth = increases.saturating_mul(self.mds);
        self.inflight_longterm = self.inflight_longterm.saturating_add(growth);
        if self.rounds.started {
            self.raise_inflight_longterm_slope();
        }
    }
}
