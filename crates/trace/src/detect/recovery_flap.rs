//! The controller enters and leaves recovery every round trip without a loss.

use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData};

/// Number of changes that make a pattern.
const FLIPS: usize = 8;
/// Number of changes remembered.
const MEMORY: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct RecoveryFlap {
    /// When recovery was entered or left since the last loss or CE mark.
    flips: Vec<u64>,
    recovering: bool,
}

impl Detect for RecoveryFlap {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        if effects.lost || effects.marked || effects.path {
            self.judge(view, out);
            self.recovering |= effects.lost;
        }
        let EventData::CongestionStateUpdated { new, .. } = &event.data else {
            return;
        };
        let recovering = new.contains("recovery");
        if recovering != self.recovering {
            self.recovering = recovering;
            if self.flips.len() < MEMORY {
                self.flips.push(view.now);
            }
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        self.judge(view, out);
    }
}

impl RecoveryFlap {
    /// What was gathered since the last event that explains recovery.
    fn judge(&mut self, view: &View, out: &mut Findings) {
        let flips = core::mem::take(&mut self.flips);
        let Some(srtt) = view.srtt() else { return };
        // The first entry may follow a loss recorded just before.
        if flips.len() < FLIPS {
            return;
        }
        let pairs = flips.iter().zip(flips.iter().skip(1));
        let mut gaps: Vec<u64> = pairs.map(|(at, next)| next.saturating_sub(*at)).collect();
        gaps.sort_unstable();
        let median = gaps.get(gaps.len() / 2);
        let (Some(&median), Some(&t0), Some(&t1)) = (median, flips.first(), flips.last()) else {
            return;
        };
        if (srtt / 2..=srtt.saturating_mul(8) / 5).contains(&median) {
            let finding = Finding::new(Detector::RecoveryFlap, t0, t1, Severity::Error)
                .with("flips", flips.len())
                .with("median gap", span(median))
                .with("smoothed RTT", span(srtt));
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    #[test]
    fn recovery_toggling_every_rtt_is_found() {
        let mut script = Script::new("cubic", 10);
        script.window(2, 0);
        for _ in 0..6 {
            script.state("recovery").wait(10);
            script.state("congestion_avoidance").wait(10);
        }
        assert!(script.finds(Detector::RecoveryFlap));
    }

    #[test]
    fn recovery_after_each_loss_causes_no_finding() {
        let mut script = Script::new("cubic", 10);
        script.window(20, 0);
        for _ in 0..20 {
            script.send(1);
            script.lose(script.next - 1);
            script.state("recovery").wait(10);
            script.state("congestion_avoidance").wait(10);
        }
        assert!(!script.finds(Detector::RecoveryFlap));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::RecoveryFlap);
    }
}
