//! The bandwidth estimate departs from the delivery rate: it is below half or above twice the p90
//! delivery rate of ten seconds.
//!
//! A low estimate is right where the link became slower or others joined. Then a queue stands, or
//! marks its packets, and all that the path carries is taken. A path that became longer looks the same, so such a
//! finding is kept as a note; it is a defect where the path was free.

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
/// BBR's longest probing cycle, with some margin.
const CYCLE: u64 = 3_500_000_000;
/// Two of them.
const TWO_CYCLES: u64 = 2 * CYCLE;

#[derive(Clone, Debug, Default)]
pub(super) struct BwCollapse {
    /// The best delivery rate of each bin, in bits per second.
    bins: VecDeque<u64>,
    bin: u64,
    delivered: Option<u64>,
    lost: Option<u64>,
    /// When packets were last reported as marked.
    marked: Option<u64>,
    /// Since when the estimate has been too low, its value, and the delivery rate.
    low: Condition,
    said_low: (u64, u64),
    /// Since when it has been too low on a free path, and whether that lasted, within the period above.
    low_while_free: Condition,
    was_free: bool,
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
        if effects.marked {
            self.marked = Some(view.now);
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
        self.observe_low(view, low, out);
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
        self.observe_low(view, false, out);
        if let Some(period) = self.high.finish(view, TWO_CYCLES) {
            self.judge_high(period, out);
        }
    }
}

/// How long a low estimate must be seen.
fn needed(view: &View) -> u64 {
    view.round_trips(LOW).max(BIN * LOW)
}

/// Whether a low estimate was seen for long enough: one round may have an unusual sample.
fn lasts(view: &View, period: Period) -> bool {
    period.observed > needed(view)
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

    /// Whether all that the path carries is taken, as far as a sender can tell. Where a queue marks at
    /// once, perhaps only probes are marked.
    fn is_taken(&self, view: &View) -> bool {
        let since_mark = self.marked.map(|at| view.now.saturating_sub(at));
        view.has_queue() || since_mark.is_some_and(|time| time < CYCLE)
    }

    /// A loss of two in a hundred explains a lower estimate.
    fn is_lossy(&self, view: &View) -> bool {
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let lost = since(view.metrics.lost, self.lost);
        let delivered = since(view.metrics.delivered, self.delivered);
        lost.zip(delivered)
            .is_some_and(|(lost, delivered)| lost.saturating_mul(50) >= delivered.max(1))
    }

    fn observe_low(&mut self, view: &View, low: bool, out: &mut Findings) {
        let free = low && !self.is_taken(view);
        if let Some(period) = self.low_while_free.update(free, view, needed(view)) {
            self.was_free |= lasts(view, period);
        }
        if let Some(period) = self.low.update(low, view, needed(view)) {
            self.judge_low(view, period, out);
        }
    }

    fn judge_low(&mut self, view: &View, period: Period, out: &mut Findings) {
        let was_free = core::mem::take(&mut self.was_free);
        if !lasts(view, period) {
            return;
        }
        let (severity, path) = if was_free {
            (Severity::Error, "free")
        } else {
            (Severity::Note, "taken, or longer than before")
        };
        let finding = finding(period, severity, self.said_low, "below half of it");
        out.push(finding.with("path", path));
    }

    fn judge_high(&self, period: Period, out: &mut Findings) {
        // A maximum is kept for two probing cycles by design: while others pause, or during
        // startup, it is rightly above the usual rate.
        if period.observed > TWO_CYCLES {
            let severity = Severity::Error;
            out.push(finding(
                period,
                severity,
                self.said_high,
                "above twice of it",
            ));
        }
    }
}

fn finding(
    period: Period,
    severity: Severity,
    (estimate, usual): (u64, u64),
    how: &'static str,
) -> Finding {
    let Period { start, end, .. } = period;
    Finding::new(Detector::BwCollapse, start, end, severity)
        .with("estimate in bit/s", estimate)
        .with("p90 delivery rate in bit/s", usual)
        .with("estimate is", how)
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};
    use crate::event::Frame;

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

    /// The severity of what is found where the estimate is too low for some seconds, of which the RTT is
    /// above its minimum for the first.
    fn severity_beside_a_queue(of_seconds: u64, with_queue: u64) -> Option<Severity> {
        let mut script = Script::new("bbr", 30);
        run(&mut script, 6, 9, 9);
        script.metrics(|metrics| metrics.smoothed_rtt = Some(60_000_000));
        run(&mut script, with_queue, 9, 3);
        script.metrics(|metrics| metrics.smoothed_rtt = Some(30_000_000));
        run(&mut script, of_seconds - with_queue, 9, 3);
        let findings = script.findings();
        let mut found = findings
            .iter()
            .filter(|it| it.detector == Detector::BwCollapse);
        let severity = found.next().map(|finding| finding.severity);
        assert_eq!(found.next(), None);
        severity
    }

    #[test]
    fn low_estimate_is_a_defect_on_a_free_path_and_a_note_beside_a_queue() {
        assert_eq!(severity_beside_a_queue(4, 0), Some(Severity::Error));
        assert_eq!(severity_beside_a_queue(4, 4), Some(Severity::Note));
        assert_eq!(severity_beside_a_queue(4, 2), Some(Severity::Error));
        assert_eq!(severity_beside_a_queue(0, 0), None);
    }

    /// What is found where the estimate is too low and packets are marked at such intervals.
    fn severities_among_marks(seconds_between: u64) -> Vec<Severity> {
        let mut script = Script::new("bbr", 30);
        run(&mut script, 6, 9, 9);
        for marks in 1..=4 {
            script.send(1).receive(Frame::Ack {
                ranges: vec![(0, marks - 1)].into(),
                delay: None,
                ecn: Some([0, 0, marks]),
            });
            run(&mut script, seconds_between, 9, 3);
        }
        let findings = script.findings();
        let found = findings
            .iter()
            .filter(|it| it.detector == Detector::BwCollapse);
        found.map(|finding| finding.severity).collect()
    }

    #[test]
    fn low_estimate_is_a_note_if_probes_are_marked() {
        assert_eq!(severities_among_marks(2), [Severity::Note]);
        assert_eq!(severities_among_marks(5), [Severity::Error]);
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
