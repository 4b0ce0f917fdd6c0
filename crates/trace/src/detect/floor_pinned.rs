//! The window stays at its minimum although data waits and nothing is lost.
//!
//! This is the effect of every form of CUBIC's idle-time bug. Marks explain it only if there is a queue:
//! a sender at its minimum that is marked at an empty one is marked for its own bursts.

use clearway_recovery::controller::WindowPolicy;

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Round trips for which it must last.
const ROUNDS: u64 = 20;
/// The same for BBR, which keeps its short-term bound until the next probe: up to 63 round trips
/// (draft-ietf-ccwg-bbr §5.3.3.8) and those of the probe.
const ROUNDS_OF_A_CYCLE: u64 = 68;
/// Number of ACKs without which a window cannot grow.
const ACKS: u64 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct FloorPinned {
    condition: Condition,
    worst: u64,
    /// ACKs of new data since it began.
    acks: u64,
}

impl Detect for FloorPinned {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        let some = effects.acked.is_some_and(|acked| acked.packets > 0);
        self.acks = self.acks.saturating_add(some.into());
        if !effects.metrics
            && !effects.lost
            && !effects.pto
            && !effects.marked
            && !effects.path
            && view.limit_since != view.now
        {
            return;
        }
        let marked = effects.marked && is_queue_seen(view);
        let trouble = effects.lost || effects.pto || marked || effects.path;
        let low = view
            .window()
            .is_some_and(|window| window <= view.floor().saturating_add(view.mds));
        let constant = view.window_policy() == WindowPolicy::Constant;
        let meant = constant || view.state.as_deref() == Some("probe_rtt");
        let holds = low && !trouble && view.waits_for_network() == Some(true) && !meant;
        let began = self.condition.since().is_none();
        let needed = view.round_trips(rounds(view));
        if let Some(period) = self.condition.update(holds, view, needed) {
            self.judge(view, period, out);
        }
        if holds && began {
            self.acks = 0;
        }
        if holds {
            self.worst = view.window().unwrap_or(0);
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.condition.finish(view, view.round_trips(rounds(view))) {
            self.judge(view, period, out);
        }
    }
}

/// The round trips for which the window must stay.
fn rounds(view: &View) -> u64 {
    let state = view.state.as_deref();
    if state.is_some_and(|state| state.starts_with("probe_bw")) {
        ROUNDS_OF_A_CYCLE
    } else {
        ROUNDS
    }
}

/// Whether the smoothed RTT is a quarter above the minimum; also if either is unknown.
fn is_queue_seen(view: &View) -> bool {
    let bound = |min: u64| min.saturating_add(min / 4);
    let min = view.metrics.min_rtt.map(bound);
    view.srtt().zip(min).is_none_or(|(srtt, min)| srtt > min)
}

impl FloorPinned {
    fn judge(&self, view: &View, period: Period, out: &mut Findings) {
        let Some(srtt) = view.srtt() else { return };
        // Between two probe timeouts there are no ACKs, so the window cannot grow.
        if period.observed >= srtt.saturating_mul(rounds(view)) && self.acks >= ACKS {
            let (t0, t1) = (period.start, period.end);
            let finding = Finding::new(Detector::FloorPinned, t0, t1, Severity::Error)
                .with("window", self.worst)
                .with("minimum window", view.floor())
                .with(
                    "round trips",
                    period.observed.checked_div(srtt).unwrap_or(0),
                );
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};
    use crate::event::Frame;

    #[test]
    fn window_pinned_at_two_packets_is_found() {
        let mut script = Script::new("cubic", 10);
        for _ in 0..30 {
            script.round(2, 2);
        }
        let findings = script.findings();
        let found = findings
            .iter()
            .find(|each| each.detector == Detector::FloorPinned);
        let found = found.expect("found");
        assert!(found.t1 - found.t0 >= 200_000_000, "{found:?}");
    }

    #[test]
    fn marks_explain_the_minimum_only_at_a_queue() {
        for (rtt, pinned) in [(41, true), (55, false)] {
            let mut script = Script::new("cubic", 40);
            script.metrics(|metrics| metrics.smoothed_rtt = Some(rtt * 1_000_000));
            for mark in 0..30 {
                let first = script.next;
                script.send(2).limit(Limit::Congestion).wait(rtt);
                script.receive(Frame::Ack {
                    delay: None,
                    ranges: [(first, first + 1)].into_iter().collect(),
                    ecn: Some([mark, 0, mark + 1]),
                });
                script.window(2, 0);
            }
            let found = script.finds(Detector::FloorPinned);
            assert_eq!(found, pinned, "{rtt} ms over 40");
        }
    }

    #[test]
    fn silence_probe_rtt_or_one_cycle_at_the_minimum_causes_no_finding() {
        let mut script = Script::new("cubic", 10);
        script.round(2, 2).send(2).limit(Limit::Congestion);
        script.wait(400).window(2, 2);
        assert!(!script.finds(Detector::FloorPinned));
        for (state, rounds, pinned) in [
            ("probe_rtt", 80, false),
            ("startup", 30, true),
            ("probe_bw_cruise", 60, false),
            ("probe_bw_cruise", 80, true),
        ] {
            let mut script = Script::new("bbr", 10);
            script.state(state);
            for _ in 0..rounds {
                script.round(4, 4);
            }
            assert_eq!(
                script.finds(Detector::FloorPinned),
                pinned,
                "{state} {rounds}"
            );
        }
    }

    #[test]
    fn silence_after_few_rounds_causes_no_finding() {
        let mut script = Script::new("cubic", 10);
        for _ in 0..12 {
            script.round(2, 2);
        }
        script.wait(29_000).window(2, 0);
        assert!(!script.finds(Detector::FloorPinned));
    }

    #[test]
    fn losses_probes_or_idle_application_at_the_minimum_cause_no_finding() {
        let mut script = Script::new("cubic", 10);
        for round in 0..60 {
            script.round(2, 2);
            if round % 15 == 14 {
                script.send(1);
                script.lose(script.next - 1);
            }
        }
        assert!(!script.finds(Detector::FloorPinned));
        let mut script = Script::new("cubic", 10);
        for _ in 0..60 {
            script.round(2, 2).limit(Limit::Application);
        }
        assert!(!script.finds(Detector::FloorPinned));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::FloorPinned);
    }
}
