//! Startup continues although round after round exceeds the tolerated loss: a full round of
//! recovery ends it (draft-ietf-ccwg-bbr §5.3.1.3).

use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, Space};

/// Tolerated loss of a round: 2 % (BBRLossThresh), or fewer than six ranges
/// (BBRStartupFullLossCnt).
const TOLERATED_PERCENT: u128 = 2;
const RANGES: u64 = 6;
/// Rounds in a row. The round in which losses begin and a full one of recovery are within the rule,
/// because its rounds need not coincide with those counted here.
const ROUNDS: u64 = 3;

/// The losses of a round.
#[derive(Clone, Copy, Debug, Default)]
struct RoundLosses {
    acked: u64,
    lost: u64,
    /// Discontiguous ranges lost.
    ranges: u64,
    /// The newest packet lost.
    newest: Option<u64>,
}

impl RoundLosses {
    fn is_heavy(self) -> bool {
        let all = u128::from(self.acked).saturating_add(self.lost.into());
        let lost = u128::from(self.lost).saturating_mul(100);
        self.ranges >= RANGES && lost > all.saturating_mul(TOLERATED_PERCENT)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct StartupOverrun {
    round: RoundLosses,
    /// The round ends when a packet after this one is acknowledged.
    end: Option<u64>,
    began: u64,
    /// Consecutive rounds with heavy loss, and their losses.
    heavy: u64,
    lost: u64,
    told: bool,
}

impl Detect for StartupOverrun {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        if effects.path || view.state.as_deref() != Some("startup") {
            *self = Self::default();
            return;
        }
        if let Some((number, size)) = effects.loss {
            let adjacent = |newest: u64| number.abs_diff(newest) <= 1;
            let another = !self.round.newest.is_some_and(adjacent);
            self.round.ranges = self.round.ranges.saturating_add(another.into());
            self.round.newest = Some(number);
            self.round.lost = self.round.lost.saturating_add(size);
        }
        let Some(acked) = effects.acked else { return };
        self.round.acked = self.round.acked.saturating_add(acked.bytes);
        if acked.largest <= self.end {
            return;
        }
        self.end = *view.ledger.newest().get(Space::Data);
        let round = core::mem::take(&mut self.round);
        if !round.is_heavy() {
            (self.heavy, self.lost, self.began) = (0, 0, view.now);
            return;
        }
        self.heavy = self.heavy.saturating_add(1);
        self.lost = self.lost.saturating_add(round.lost);
        if self.heavy >= ROUNDS && !self.told {
            self.told = true;
            let (from, now) = (self.began, view.now);
            let finding = Finding::new(Detector::StartupOverrun, from, now, Severity::Error)
                .with("rounds", self.heavy)
                .with("bytes lost", self.lost);
            out.push(finding);
        }
    }

    fn finish(&mut self, _view: &View, _out: &mut Findings) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    /// Rounds of sixty packets in Startup, every `apart`th of which is lost.
    fn rounds(count: u64, apart: usize) -> Script {
        let mut script = Script::new("bbr", 20);
        script.state("startup");
        for _ in 0..count {
            let first = script.next;
            script.send(60).wait(20);
            let last = script.next - 1;
            for number in (first..last).step_by(apart) {
                script.lose(number);
            }
            script.ack(last, last);
        }
        script
    }

    #[test]
    fn startup_through_several_lossy_rounds_is_found() {
        assert!(rounds(3, 7).finds(Detector::StartupOverrun));
    }

    #[test]
    fn rounds_needed_to_detect_loss_cause_no_finding() {
        assert!(!rounds(2, 7).finds(Detector::StartupOverrun));
    }

    #[test]
    fn few_losses_per_round_cause_no_finding() {
        assert!(!rounds(20, 15).finds(Detector::StartupOverrun));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::StartupOverrun);
    }
}
