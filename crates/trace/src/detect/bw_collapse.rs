//! The bandwidth estimate departs from the delivery rate: it is below half or above twice the p90
//! delivery rate of ten seconds.

use std::collections::VecDeque;

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Samples are gathered in bins of this length.
const BIN: u64 = 100_000_000;
/// Number of bins kept: ten seconds.
const BINS: usize = 100;
/// Number of bins needed for a judgement.
const ENOUGH: usize = 30;
/// Round trips, and bins, for which a low estimate must be seen.
const LOW: u64 = 4;
/// Two of BBR's longest probing cycles, with some margin.
const TWO_CYCLES: u64 = 7_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct BwCollapse {
    /// The best delivery rate of each bin, in bits per second.
    bins: VecDeque<u64>,
    bin: u64,
    delivered: Option<u64>,
    lost: Option<u64>,
    /// Since when the estimate has been too low, its value, and the delivery rate.
    low: Condition,
    said_low: (u64, u64),
    /// The same for too high.
    high: Condition,
    said_high: (u64, u64),
}

impl Detect for BwCollapse {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        if effects.path {
            *self = Self::default();
        }
        if !effects.metrics || view.is_quiet() || view.metrics.app_limited == Some(true) {
            return;
        }
        let (Some(rate), Some(max_bw)) = (view.metrics.delivery_rate, view.metrics.extra("max_bw"))
        else {
            return;
        };
        self.gather(view, rate);
        let Some(usual) = self.usual() else { return };
        let lossy = self.is_lossy(view);
        // The maximum remembers; the value that sending is based on is judged.
        let used = view.metrics.extra("bw").unwrap_or(max_bw).saturating_mul(8);
        let estimate = max_bw.saturating_mul(8);
        let low = !lossy && estimate < usual / 2;
        let high = !lossy && used > usual.saturating_mul(2);
        if let Some(period) = self.low.update(low, view, needed(view)) {
            self.judge_low(view, period, out);
        }
        if let Some(period) = self.high.update(high, view, TWO_CYCLES) {
            self.judge_high(period, out);
        }
        if low {
            self.said_low = (estimate, usual);
        }
        if high {
            self.said_high = (used, usual);
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.low.finish(view, needed(view)) {
            self.judge_low(view, period, out);
        }
        if let Some(period) = self.high.finish(view, TWO_CYCLES) {
            self.judge_high(period, out);
        }
    }
}

/// How long a low estimate must be seen.
fn needed(view: &View) -> u64 {
    view.round_trips(LOW).max(BIN * LOW)
}

impl BwCollapse {
    fn gather(&mut self, view: &View, rate: u64) {
        let bin = view.now / BIN;
        if bin != self.bin || self.bins.is_empty() {
            self.bin = bin;
            if self.bins.len() == BINS {
                self.bins.pop_front();
            }
            self.bins.push_back(0);
            if self.bins.len() % (BINS / 4) == 1 || self.delivered.is_none() {
                self.delivered = view.metrics.delivered;
                self.lost = view.metrics.lost;
            }
        }
        if let Some(best) = self.bins.back_mut() {
            *best = rate.max(*best);
        }
    }

    /// The p90 of the bins, bits per second.
    fn usual(&self) -> Option<u64> {
        if self.bins.len() < ENOUGH {
            return None;
        }
        let mut rates: Vec<u64> = self.bins.iter().copied().collect();
        rates.sort_unstable();
        rates.get(rates.len().saturating_mul(9) / 10).copied()
    }

    /// A loss of two in a hundred explains a lower estimate.
    fn is_lossy(&self, view: &View) -> bool {
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let lost = since(view.metrics.lost, self.lost);
        let delivered = since(view.metrics.delivered, self.delivered);
        lost.zip(delivered)
            .is_some_and(|(lost, delivered)| lost.saturating_mul(50) >= delivered.max(1))
    }

    fn judge_low(&self, view: &View, period: Period, out: &mut Findings) {
        // One round may have an unusual sample.
        if period.observed > needed(view) {
            out.push(finding(period, self.said_low, "below half of it"));
        }
    }

    fn judge_high(&self, period: Period, out: &mut Findings) {
        // A maximum is kept for two probing cycles by design: while others pause, or during
        // startup, it is rightly above the usual rate.
        if period.observed > TWO_CYCLES {
            out.push(finding(period, self.said_high, "above twice of it"));
        }
    }
}

fn finding(period: Period, (estimate, usual): (u64, u64), how: &'static str) -> Finding {
    Finding::new(
        Detector::BwCollapse,
        period.start,
        period.end,
        Severity::Error,
    )
    .with("estimate in bit/s", estimate)
    .with("p90 delivery rate in bit/s", usual)
    .with("estimate is", how)
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    fn run(script: &mut Script, seconds: u64, mbits: u64, estimate: u64) {
        for _ in 0..seconds * 10 {
            script.wait(100).limit(Limit::Pacing).metrics(|metrics| {
                metrics.delivery_rate = Some(mbits * 1_000_000);
                metrics.extra = vec![("max_bw".into(), estimate * 125_000)];
            });
        }
    }

    #[test]
    fn bandwidth_estimate_far_below_or_above_is_found() {
        for estimate in [3, 25] {
            let mut script = Script::new("bbr", 30);
            run(&mut script, 6, 9, 9);
            run(&mut script, 8, 9, estimate);
            assert!(script.finds(Detector::BwCollapse), "{estimate}");
        }
    }

    #[test]
    fn maximum_held_for_two_cycles_causes_no_finding() {
        let mut script = Script::new("bbr", 30);
        run(&mut script, 6, 9, 9);
        run(&mut script, 6, 9, 25);
        run(&mut script, 6, 9, 9);
        assert!(!script.finds(Detector::BwCollapse));
    }

    #[test]
    fn high_estimate_before_a_pause_causes_no_finding() {
        let mut script = Script::new("bbr", 30);
        run(&mut script, 6, 9, 9);
        run(&mut script, 1, 9, 25);
        script.limit(Limit::Application).wait(29_000);
        run(&mut script, 1, 9, 25);
        assert!(!script.finds(Detector::BwCollapse));
    }

    #[test]
    fn accurate_bandwidth_estimate_causes_no_finding() {
        let mut script = Script::new("bbr", 30);
        for estimate in [9, 10, 8, 11] {
            run(&mut script, 3, 9, estimate);
        }
        assert!(!script.finds(Detector::BwCollapse));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::BwCollapse);
    }
}
