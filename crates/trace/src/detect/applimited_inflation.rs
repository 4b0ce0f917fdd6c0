//! The window is far larger than the bytes in flight ever were since its last reduction: it grew
//! without being used (RFC 9002 §7.8). BBR is exempt, since its window follows its model and not
//! the bytes in flight.

use clearway_recovery::controller::WindowPolicy;

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Round trips for which the condition must last.
const ROUNDS: u64 = 3;
/// Datagrams that rounding may add.
const SLACK: u64 = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct ApplimitedInflation {
    /// The largest flight since the last reduction.
    largest: u64,
    window: Option<u64>,
    condition: Condition,
    worst: (u64, u64),
}

impl Detect for ApplimitedInflation {
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
        self.largest = self.largest.max(view.flight.unwrap_or(0));
        if !effects.metrics || view.window_policy() != WindowPolicy::Reactive {
            return;
        }
        let Some(window) = view.window() else { return };
        let before = self.window.replace(window);
        if before.is_none_or(|before| window < before) {
            // During PRR the window passes below the threshold, and the end of recovery is not
            // growth.
            let settled = view.metrics.ssthresh.unwrap_or(0);
            self.largest = view.flight.unwrap_or(0).max(window).max(settled);
        }
        let twice = self.largest.max(view.initial_window).saturating_mul(2);
        let bound = twice.saturating_add(view.datagrams(SLACK));
        let holds = window > bound;
        if let Some(period) = self.condition.update(holds, view, view.round_trips(ROUNDS)) {
            self.judge(view, period, out);
        }
        if holds {
            self.worst = (window, self.largest);
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.condition.finish(view, view.round_trips(ROUNDS)) {
            self.judge(view, period, out);
        }
    }
}

impl ApplimitedInflation {
    fn judge(&self, view: &View, period: Period, out: &mut Findings) {
        let Some(srtt) = view.srtt() else { return };
        if period.lasted() >= srtt.saturating_mul(ROUNDS) {
            let (t0, t1) = (period.start, period.end);
            let (window, largest) = self.worst;
            let finding = Finding::new(Detector::ApplimitedInflation, t0, t1, Severity::Error)
                .with("window", window)
                .with("largest flight", largest);
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
    fn window_that_grows_unused_is_found() {
        let mut script = Script::new("cubic", 20);
        let mut window = 10;
        for _ in 0..40 {
            script.send(2).limit(Limit::Application).wait(20);
            window += 2;
            script
                .ack(script.next - 2, script.next - 1)
                .window(window, 0);
        }
        assert!(script.finds(Detector::ApplimitedInflation));
    }

    #[test]
    fn large_window_that_was_once_used_causes_no_finding() {
        let mut script = Script::new("cubic", 20);
        for window in 10..80 {
            script.round(window, window + 1);
        }
        for _ in 0..40 {
            script.send(2).limit(Limit::Application).wait(20);
            script.ack(script.next - 2, script.next - 1).window(80, 0);
        }
        assert!(!script.finds(Detector::ApplimitedInflation));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::ApplimitedInflation);
    }
}
