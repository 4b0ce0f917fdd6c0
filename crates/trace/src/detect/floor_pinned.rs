//! The window stays at its minimum although data waits and nothing is lost.
//!
//! This is what the idle-time bug of CUBIC comes down to, whichever form it takes.

use super::spell::Spell;
use super::view::{News, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Round trips for which nothing else explains it.
const ROUNDS: u64 = 20;

#[derive(Debug, Default)]
pub(super) struct FloorPinned {
    spell: Spell,
    worst: u64,
}

impl Detect for FloorPinned {
    fn on_event(&mut self, view: &View, news: &News, _event: &Event, out: &mut Findings) {
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
            .is_some_and(|window| window <= view.floor() + view.mds);
        let holds = low && !trouble && view.waits_for_network() == Some(true) && !view.is_fixed();
        if let Some(span) = self.spell.update(holds, view.now) {
            self.judge(view, span, out);
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
        if t1 - t0 >= ROUNDS * srtt {
            let finding = Finding::new(Detector::FloorPinned, t0, t1, Severity::Error)
                .with("window", self.worst)
                .with("minimum window", view.floor())
                .with("round trips", (t1 - t0) / srtt);
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
