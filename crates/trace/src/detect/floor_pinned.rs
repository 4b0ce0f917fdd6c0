//! The window stays at its minimum although data waits and nothing is lost.
//!
//! This is what the idle-time bug of CUBIC comes down to, whichever form it takes.

use clearway_recovery::controller::WindowPolicy;

use super::spell::{Spell, lasted};
use super::view::{News, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Round trips for which nothing else explains it.
const ROUNDS: u64 = 20;
/// ACKs without which a window cannot grow.
const ACKS: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct FloorPinned {
    spell: Spell,
    worst: u64,
    /// ACKs that brought something since it began.
    acks: u64,
}

impl Detect for FloorPinned {
    fn on_event(&mut self, view: &View, news: &News, _event: &Event, out: &mut Findings) {
        let some = news.acked.is_some_and(|acked| acked.packets > 0);
        self.acks = self.acks.saturating_add(some.into());
        if !news.metrics
            && !news.lost
            && !news.pto
            && !news.marked
            && !news.path
            && view.limit_since != view.now
        {
            return;
        }
        let trouble = news.lost || news.pto || news.marked || news.path;
        let low = view
            .window()
            .is_some_and(|window| window <= view.floor().saturating_add(view.mds));
        let constant = view.window_policy() == WindowPolicy::Constant;
        let meant = constant || view.state.as_deref() == Some("probe_rtt");
        let holds = low && !trouble && view.waits_for_network() == Some(true) && !meant;
        let began = self.spell.since().is_none();
        if let Some(span) = self.spell.update(holds, view.now) {
            self.judge(view, span, out);
        }
        if holds && began {
            self.acks = 0;
        }
        if holds {
            self.worst = view.window().unwrap_or(0);
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(span) = self.spell.update(false, view.now) {
            self.judge(view, span, out);
        }
    }
}

impl FloorPinned {
    fn judge(&self, view: &View, (t0, t1): (u64, u64), out: &mut Findings) {
        let Some(srtt) = view.srtt() else { return };
        // Between two probe timeouts nobody answers, so nothing can grow.
        if lasted((t0, t1)) >= srtt.saturating_mul(ROUNDS) && self.acks >= ACKS {
            let finding = Finding::new(Detector::FloorPinned, t0, t1, Severity::Error)
                .with("window", self.worst)
                .with("minimum window", view.floor())
                .with(
                    "round trips",
                    lasted((t0, t1)).checked_div(srtt).unwrap_or(0),
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

    #[test]
    fn a_window_pinned_at_two_packets_is_seen() {
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
    fn silence_and_a_probe_of_the_round_trip_explain_it() {
        let mut script = Script::new("cubic", 10);
        script.round(2, 2).send(2).limit(Limit::Congestion);
        script.wait(400).window(2, 2);
        assert!(!script.finds(Detector::FloorPinned));
        for (state, pinned) in [("probe_rtt", false), ("probe_bw_cruise", true)] {
            let mut script = Script::new("bbr", 10);
            script.state(state);
            for _ in 0..30 {
                script.round(4, 4);
            }
            assert_eq!(script.finds(Detector::FloorPinned), pinned, "{state}");
        }
    }

    #[test]
    fn losses_probes_and_idle_applications_explain_it() {
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
    fn a_healthy_transfer_is_passed_over() {
        assert_quiet_on_a_healthy_transfer(Detector::FloorPinned);
    }
}
