//! BBR does not look for the path's round trip although its samples stay far above the shortest
//! that was ever seen: what it takes for the path may be a standing queue.

use clearway_recovery::controller::WindowPolicy;

use super::condition::{Condition, Period};
use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Four times BBR.ProbeRTTInterval (draft-ietf-ccwg-bbr §2.16.2). One that is due may be
/// postponed by a sample at the shortest round trip, which ends the condition, too; but after a rise
/// of the path's round trip such samples stay far above it. Ours are postponed for ten seconds
/// at most.
const LEAST: u64 = 20_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct ProbeRttOverdue {
    condition: Condition,
    rtt: u64,
}

impl Detect for ProbeRttOverdue {
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
        if !effects.metrics && !effects.state {
            return;
        }
        let probes = |state: &str| state.starts_with("probe_bw");
        let holds = view.window_policy() == WindowPolicy::Model
            && view.state.as_deref().is_some_and(probes)
            && view.waits_for_network() == Some(true)
            && view.has_queue();
        if let Some(period) = self.condition.update(holds, view, LEAST) {
            self.judge(view, period, out);
        }
        if holds {
            self.rtt = view.srtt().unwrap_or(0);
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.condition.finish(view, LEAST) {
            self.judge(view, period, out);
        }
    }
}

impl ProbeRttOverdue {
    fn judge(&self, view: &View, period: Period, out: &mut Findings) {
        if period.observed >= LEAST {
            let (t0, t1) = (period.start, period.end);
            let finding = Finding::new(Detector::ProbeRttOverdue, t0, t1, Severity::Warning)
                .with("smoothed RTT", span(self.rtt))
                .with("minimum RTT", span(view.metrics.min_rtt.unwrap_or(0)));
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    fn run(script: &mut Script, seconds: u64, rtt: u64) {
        for _ in 0..seconds * 10 {
            script.wait(100).limit(Limit::Pacing).metrics(|metrics| {
                metrics.smoothed_rtt = Some(rtt * 1_000_000);
            });
        }
    }

    fn bbr() -> Script {
        let mut script = Script::new("bbr", 40);
        script.state("probe_bw_cruise");
        script
    }

    #[test]
    fn long_queue_without_probe_rtt_is_found_after_twenty_seconds() {
        for (seconds, found) in [(19, false), (21, true)] {
            let mut script = bbr();
            run(&mut script, seconds, 80);
            assert_eq!(script.finds(Detector::ProbeRttOverdue), found, "{seconds}");
        }
    }

    #[test]
    fn probe_rtt_or_a_short_queue_in_between_causes_no_finding() {
        let mut script = bbr();
        run(&mut script, 17, 80);
        script.state("probe_rtt").wait(200);
        script.state("probe_bw_cruise");
        run(&mut script, 17, 80);
        assert!(!script.finds(Detector::ProbeRttOverdue));
        let mut script = bbr();
        run(&mut script, 17, 80);
        run(&mut script, 1, 42);
        run(&mut script, 17, 80);
        assert!(!script.finds(Detector::ProbeRttOverdue));
    }

    #[test]
    fn silence_in_a_long_queue_causes_no_finding() {
        let mut script = bbr();
        run(&mut script, 5, 80);
        script.wait(29_000);
        run(&mut script, 5, 80);
        assert!(!script.finds(Detector::ProbeRttOverdue));
    }

    #[test]
    fn controller_without_a_model_causes_no_finding() {
        let mut script = Script::new("cubic", 40);
        script.state("congestion_avoidance");
        run(&mut script, 60, 200);
        assert!(!script.finds(Detector::ProbeRttOverdue));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::ProbeRttOverdue);
    }
}
