//! The sender is limited by its own window or pacer, the queue is empty, nothing is lost or marked,
//! and the path carries less than half of what it carried before.

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Delivery is measured in bins of this length.
const BIN: u64 = 1_000_000_000;
/// How long it must last: CUBIC's curve takes 14 s back to a window of 2,000 datagrams.
const LEAST: u64 = 30_000_000_000;
/// Round trips for which it must last: a window that grows by a datagram each needs some.
const ROUNDS: u64 = 100;

#[derive(Clone, Debug, Default)]
pub(super) struct UnderusedPath {
    bin: u64,
    /// Bytes delivered when the bin began.
    delivered: Option<u64>,
    /// Whether anything but an empty queue and the sender's own limit was seen in the bin.
    disturbed: bool,
    /// The rates of the last two bins, and the most that two bins in a row delivered, in bytes
    /// a second: one bin alone may hold what had piled up.
    last: u64,
    best: u64,
    condition: Condition,
    /// The largest rate in the period.
    rate: u64,
}

impl Detect for UnderusedPath {
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
        self.disturbed |= effects.lost || effects.pto || effects.marked;
        if !effects.metrics {
            return;
        }
        self.disturbed |= view.waits_for_network() != Some(true)
            || view.metrics.app_limited == Some(true)
            || view.has_queue();
        let bin = view.now / BIN;
        if bin != self.bin {
            self.end_bin(view, bin, out);
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.condition.finish(view, needed(view)) {
            self.judge(view, period, out);
        }
    }
}

/// How long it must be seen.
fn needed(view: &View) -> u64 {
    view.round_trips(ROUNDS).max(LEAST)
}

impl UnderusedPath {
    fn end_bin(&mut self, view: &View, bin: u64, out: &mut Findings) {
        let bins = bin.saturating_sub(self.bin).max(1);
        let delivered = view.metrics.delivered;
        let since = delivered.zip(self.delivered);
        let rate = since.and_then(|(now, then)| now.saturating_sub(then).checked_div(bins));
        let disturbed = core::mem::take(&mut self.disturbed);
        self.bin = bin;
        self.delivered = delivered;
        let Some(rate) = rate else { return };
        self.best = self.best.max(rate.min(self.last));
        self.last = rate;
        let holds = !disturbed && rate < self.best / 2;
        if let Some(period) = self.condition.update(holds, view, needed(view)) {
            self.judge(view, period, out);
            self.rate = 0;
        }
        if holds {
            self.rate = self.rate.max(rate);
        }
    }

    fn judge(&self, view: &View, period: Period, out: &mut Findings) {
        if period.observed >= needed(view) {
            let (t0, t1) = (period.start, period.end);
            let finding = Finding::new(Detector::UnderusedPath, t0, t1, Severity::Warning)
                .with("at most in bit/s", self.rate.saturating_mul(8))
                .with("before in bit/s", self.best.saturating_mul(8));
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    /// Delivers this many kB a tenth of a second.
    fn run(script: &mut Script, seconds: u64, kb: u64, rtt: u64, limit: Limit) {
        for _ in 0..seconds * 10 {
            script.wait(100).limit(limit).metrics(|metrics| {
                metrics.smoothed_rtt = Some(rtt * 1_000_000);
                metrics.delivered = Some(metrics.delivered.unwrap_or(0) + kb * 1_000);
            });
        }
    }

    fn after_half_a_minute(kb: u64, rtt: u64, limit: Limit) -> bool {
        let mut script = Script::new("prague", 40);
        run(&mut script, 5, 100, 40, Limit::Congestion);
        run(&mut script, 35, kb, rtt, limit);
        script.finds(Detector::UnderusedPath)
    }

    #[test]
    fn half_of_what_was_delivered_before_is_found_at_an_empty_queue() {
        assert!(after_half_a_minute(45, 40, Limit::Congestion));
        assert!(after_half_a_minute(45, 40, Limit::Pacing));
        assert!(!after_half_a_minute(55, 40, Limit::Congestion));
    }

    #[test]
    fn slower_link_or_application_causes_no_finding() {
        assert!(!after_half_a_minute(20, 80, Limit::Congestion), "a queue");
        assert!(!after_half_a_minute(20, 40, Limit::Application));
        assert!(!after_half_a_minute(20, 40, Limit::StreamFlowControl));
    }

    #[test]
    fn silence_is_no_low_rate() {
        let mut script = Script::new("prague", 40);
        run(&mut script, 5, 100, 40, Limit::Congestion);
        for _ in 0..3 {
            script.wait(29_000);
            run(&mut script, 2, 20, 40, Limit::Congestion);
        }
        assert!(!script.finds(Detector::UnderusedPath));
    }

    #[test]
    fn losses_explain_a_low_rate() {
        let mut script = Script::new("cubic", 40);
        run(&mut script, 5, 100, 40, Limit::Congestion);
        for _ in 0..8 {
            run(&mut script, 5, 20, 40, Limit::Congestion);
            let number = script.next;
            script.send(1).lose(number);
        }
        assert!(!script.finds(Detector::UnderusedPath));
    }

    #[test]
    fn burst_of_what_had_piled_up_is_no_rate_of_the_path() {
        let mut script = Script::new("cubic", 40);
        run(&mut script, 5, 20, 40, Limit::Congestion);
        run(&mut script, 1, 100, 40, Limit::Congestion);
        run(&mut script, 40, 20, 40, Limit::Congestion);
        assert!(!script.finds(Detector::UnderusedPath));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::UnderusedPath);
    }
}
