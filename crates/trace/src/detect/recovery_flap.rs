//! The controller enters and leaves recovery every round trip without a loss.

use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData};

/// Number of changes that make a pattern.
const FLIPS: usize = 8;
/// The time between two changes, the longer of each two, as a median in tenths of the smoothed RTT.
const ROUND_TRIP: core::ops::RangeInclusive<u64> = 5..=16;
/// Number of changes remembered.
const MEMORY: usize = 4096;

/// The time between two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Gap {
    /// In tenths of the smoothed RTT at its end.
    tenths: u64,
    lasted: u64,
    srtt: u64,
}

impl Gap {
    fn new(lasted: u64, srtt: u64) -> Option<Self> {
        let tenths = lasted.saturating_mul(10).checked_div(srtt)?;
        Some(Self {
            tenths,
            lasted,
            srtt,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct RecoveryFlap {
    /// When recovery was entered or left since the last loss or CE mark, and the smoothed RTT then:
    /// it may be another one when the flips are judged.
    flips: Vec<(u64, u64)>,
    recovering: bool,
}

impl Detect for RecoveryFlap {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        if effects.lost || effects.marked || effects.path {
            self.judge(out);
            self.recovering |= effects.lost;
        }
        let EventData::CongestionStateUpdated { new, .. } = &event.data else {
            return;
        };
        let recovering = new.contains("recovery");
        if recovering != self.recovering {
            self.recovering = recovering;
            if let Some(srtt) = view.srtt()
                && self.flips.len() < MEMORY
            {
                self.flips.push((view.now, srtt));
            }
        }
    }

    fn finish(&mut self, _: &View, out: &mut Findings) {
        self.judge(out);
    }
}

impl RecoveryFlap {
    /// What was gathered since the last event that explains recovery.
    fn judge(&mut self, out: &mut Findings) {
        let flips = core::mem::take(&mut self.flips);
        // The first entry may follow a loss recorded just before.
        if flips.len() < FLIPS {
            return;
        }
        let gaps: Vec<Gap> = flips
            .iter()
            .zip(flips.iter().skip(1))
            .filter_map(|(&(from, _), &(to, srtt))| Gap::new(to.saturating_sub(from), srtt))
            .collect();
        // Recovery that is entered with each send after an ACK is left for a moment only: the
        // longer part of each cycle takes the round trip.
        let mut cycles: Vec<Gap> = gaps
            .iter()
            .zip(gaps.iter().skip(1))
            .map(|(a, b)| *a.max(b))
            .collect();
        cycles.sort_unstable();
        let median = cycles.get(cycles.len() / 2);
        let (
            Some(&Gap {
                tenths,
                lasted,
                srtt,
            }),
            Some(&(t0, _)),
            Some(&(t1, _)),
        ) = (median, flips.first(), flips.last())
        else {
            return;
        };
        if ROUND_TRIP.contains(&tenths) {
            let finding = Finding::new(Detector::RecoveryFlap, t0, t1, Severity::Error)
                .with("flips", flips.len())
                .with("median gap", span(lasted))
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

    /// The transfer goes on after the flips, and fills a queue.
    #[test]
    fn longer_rtt_after_the_flips_does_not_hide_them() {
        let mut script = Script::new("cubic", 10);
        script.window(2, 0);
        for _ in 0..6 {
            script.state("recovery").wait(10);
            script.state("congestion_avoidance").wait(10);
        }
        script.metrics(|metrics| metrics.smoothed_rtt = Some(60_000_000));
        for _ in 0..20 {
            script.round(40, 40);
        }
        let findings = script.findings();
        let found = findings
            .iter()
            .find(|each| each.detector == Detector::RecoveryFlap)
            .expect("found");
        assert!(found.sentence().contains("smoothed RTT 10 ms"), "{found:?}");
    }

    #[test]
    fn changes_much_slower_than_a_round_trip_cause_no_finding() {
        let mut script = Script::new("cubic", 10);
        script.window(2, 0);
        for _ in 0..6 {
            script.state("recovery").wait(20);
            script.state("congestion_avoidance").wait(20);
        }
        // At the end the round trip is as long as the changes were.
        script.metrics(|metrics| metrics.smoothed_rtt = Some(20_000_000));
        assert!(!script.finds(Detector::RecoveryFlap));
    }

    /// quiche with its idle adjustment: recovery begins with the send after each ACK, whichever of
    /// the two changes comes first and last.
    #[test]
    fn recovery_left_for_a_moment_each_round_trip_is_found() {
        for changes in [20, 21, 22, 23] {
            let mut script = Script::new("cubic", 12);
            script.window(2, 0);
            for change in 0..changes {
                if change % 2 == 0 {
                    script.state("recovery").wait_us(11_700);
                } else {
                    script.state("congestion_avoidance").wait_us(300);
                }
            }
            assert!(script.finds(Detector::RecoveryFlap), "{changes} changes");
        }
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
