//! The window is the limit and does not grow although nothing is lost.
//!
//! Exempt are BBR, whose window rests while its model holds, fixed windows, and CUBIC at its
//! plateau.

use clearway_recovery::controller::WindowPolicy;
use clearway_recovery::limit::Limit;

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Round trips without growth.
const ROUNDS: u64 = 10;
/// Number of ACKs without which a window cannot grow: between two probe timeouts there are none.
const ACKS: u64 = 5;
/// For this long CUBIC grows by less than a byte at the flat part of its curve, however short the
/// round trip.
const PLATEAU: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct GrowthMissing {
    condition: Condition,
    window: u64,
    /// ACKs of new data since it began.
    acks: u64,
}

impl Detect for GrowthMissing {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        let some = effects.acked.is_some_and(|acked| acked.packets > 0);
        self.acks = self.acks.saturating_add(some.into());
        let Some(window) = view.window() else { return };
        let trouble = effects.lost || effects.pto || effects.marked || effects.path;
        let recovering = view
            .state
            .as_deref()
            .is_some_and(|state| state.contains("recovery"));
        let holds = view.limit == Some(Limit::Congestion)
            && !trouble
            && !recovering
            && window == self.window
            && view.window_policy() == WindowPolicy::Reactive;
        // Pacing between two full windows does not interrupt it.
        let pauses = view.limit == Some(Limit::Pacing) && window == self.window && !trouble;
        let began = self.condition.since().is_none();
        let holds = holds || pauses && self.condition.since().is_some();
        if let Some(period) = self.condition.update(holds, view, needed(view)) {
            self.judge(view, period, out);
        }
        if holds && began {
            self.acks = 0;
        }
        self.window = window;
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.condition.finish(view, needed(view)) {
            self.judge(view, period, out);
        }
    }
}

/// How long it must be seen.
fn needed(view: &View) -> u64 {
    view.round_trips(ROUNDS).max(PLATEAU)
}

impl GrowthMissing {
    fn judge(&self, view: &View, period: Period, out: &mut Findings) {
        let Some(srtt) = view.srtt() else { return };
        if period.observed >= needed(view) && self.acks >= ACKS {
            let (t0, t1) = (period.start, period.end);
            let finding = Finding::new(Detector::GrowthMissing, t0, t1, Severity::Error)
                .with("window", self.window)
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
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    #[test]
    fn full_window_that_does_not_grow_is_found() {
        let mut script = Script::new("newreno", 100);
        for _ in 0..15 {
            script.round(30, 30);
        }
        assert!(script.finds(Detector::GrowthMissing));
    }

    #[test]
    fn missing_growth_without_acks_causes_no_finding() {
        let mut script = Script::new("newreno", 100);
        for _ in 0..3 {
            script.round(30, 30);
        }
        // The probes were lost in an outage, and the only ACK came after it.
        script.wait(3_000);
        script.round(30, 31);
        assert!(!script.finds(Detector::GrowthMissing));
    }

    #[test]
    fn silence_after_few_rounds_causes_no_finding() {
        let mut script = Script::new("newreno", 100);
        for _ in 0..7 {
            script.round(30, 30);
        }
        script.wait(29_000).window(30, 0);
        assert!(!script.finds(Detector::GrowthMissing));
    }

    #[test]
    fn occasional_growth_or_fixed_window_causes_no_finding() {
        let mut script = Script::new("cubic", 100);
        for round in 0..40 {
            script.round(30, 30 + round / 5);
        }
        assert!(!script.finds(Detector::GrowthMissing));
        let mut script = Script::new("fixed", 100);
        for _ in 0..15 {
            script.round(30, 30);
        }
        assert!(!script.finds(Detector::GrowthMissing));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::GrowthMissing);
    }
}
