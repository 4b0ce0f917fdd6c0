//! The path became longer and the minimum RTT did not follow: samples stay far above it even when
//! the pipe is empty. A controller that relies on the minimum (BBR) then uses less than the path's
//! capacity. CUBIC and Prague do not, and beside a neighbour's queue they see such samples forever.

use clearway_recovery::controller::WindowPolicy;

use super::condition::{Condition, Period};
use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData};

/// Number of samples at an almost empty pipe that are needed.
const SAMPLES: u32 = 3;
/// Round trips, and time, for which it must last.
const ROUNDS: u64 = 20;
const LEAST: u64 = 10_000_000_000;
/// Allowance for jitter.
const JITTER: u64 = 5_000_000;
/// How long a receiver may wait before it acknowledges single packets: the default of max_ack_delay
/// (RFC 9000 §18.2). Bulk data is acknowledged at once.
const ACK_DELAY: u64 = 25_000_000;
/// Datagrams in flight that do not build a queue.
const EMPTY: u64 = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct RttStep {
    condition: Condition,
    samples: u32,
    /// The ACK of the last sample: reports without another one repeat it.
    acked: Option<u64>,
    /// The smallest sample since.
    least: u64,
    min: u64,
    /// The best delivery rate, in bits per second: as far as is known, that of the link.
    best: u64,
}

impl Detect for RttStep {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        if effects.path {
            *self = Self::default();
        }
        if view.window_policy() != WindowPolicy::Model {
            return;
        }
        let EventData::RecoveryMetricsUpdated(metrics) = &event.data else {
            return;
        };
        // The controller's own minimum is the one it relies on.
        let own = view.metrics.extra("min_rtt");
        let min = own.or(view.metrics.min_rtt);
        let (Some(latest), Some(min)) = (metrics.latest_rtt, min) else {
            return;
        };
        if view.last_ack.is_some() && self.acked == view.last_ack {
            return;
        }
        self.acked = view.last_ack;
        self.best = self.best.max(metrics.delivery_rate.unwrap_or(0));
        // The controller's own minimum expires, and needs no allowance.
        let prompt = own.is_some() || view.waits_for_network() == Some(true);
        let late = if prompt { JITTER } else { JITTER + ACK_DELAY };
        let bound = min.saturating_add(min / 2).saturating_add(late);
        let holds = latest > bound;
        if let Some(period) = self.condition.update(holds, view, needed(view)) {
            self.judge(view, period, out);
            self.samples = 0;
        }
        if holds {
            let first = self.condition.since() == Some(view.now);
            self.least = if first {
                latest
            } else {
                latest.min(self.least)
            };
            self.min = min;
            let empty = view
                .flight
                .is_some_and(|flight| flight <= view.datagrams(EMPTY));
            // What the link was busy with in this round trip was in flight.
            let idle = latest.saturating_sub(self.busy(view, latest));
            let empty = empty && idle > bound;
            self.samples = self
                .samples
                .saturating_add((empty && effects.metrics).into());
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

impl RttStep {
    /// Returns for how much of this time the link was busy, if it carries the best rate that was seen; zero if
    /// rates are not known.
    fn busy(&self, view: &View, time: u64) -> u64 {
        let rate = view.metrics.delivery_rate.unwrap_or(0);
        let part = u128::from(time).saturating_mul(rate.min(self.best).into());
        part.checked_div(self.best.into())
            .and_then(|busy| u64::try_from(busy).ok())
            .unwrap_or(0)
    }

    fn judge(&self, view: &View, period: Period, out: &mut Findings) {
        if self.samples >= SAMPLES && period.observed >= needed(view) {
            let (t0, t1) = (period.start, period.end);
            let finding = Finding::new(Detector::RttStep, t0, t1, Severity::Warning)
                .with("minimum RTT", span(self.min))
                .with("minimum since", span(self.least));
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{self, Script, assert_quiet_on_a_healthy_transfer};

    fn sample(script: &mut Script, rtt: u64, flight: u64) {
        script.wait(500).metrics(|metrics| {
            metrics.latest_rtt = Some(rtt * 1_000_000);
            metrics.bytes_in_flight = Some(flight * testing::MDS);
        });
    }

    #[test]
    fn stale_minimum_rtt_after_path_change_is_found() {
        let mut script = Script::new("bbr", 20);
        for _ in 0..40 {
            sample(&mut script, 80, 2);
        }
        assert!(script.finds(Detector::RttStep));
    }

    /// The path's minimum is right, the controller's is not.
    #[test]
    fn controllers_own_minimum_rtt_is_used_when_present() {
        let with_minimum = |own: u64| {
            let mut script = Script::new("bbr", 30);
            script.limit(Limit::Congestion);
            script.metrics(|metrics| metrics.extra = vec![("min_rtt".into(), own * 1_000_000)]);
            for _ in 0..40 {
                sample(&mut script, 31, 2);
            }
            script.finds(Detector::RttStep)
        };
        assert!(with_minimum(10));
        assert!(!with_minimum(30));
    }

    #[test]
    fn delayed_acks_cause_no_finding() {
        let mut script = Script::new("bbr", 30);
        script.limit(Limit::Application);
        for _ in 0..40 {
            sample(&mut script, 55, 2);
        }
        assert!(!script.finds(Detector::RttStep));
    }

    /// On a slow link a few datagrams take as long as a longer path; where most of the link is used,
    /// nothing is lost by the minimum.
    #[test]
    fn rtt_of_a_busy_link_causes_no_finding() {
        let at_rate = |kilobits: u64| {
            let mut script = Script::new("bbr", 20);
            for rate in [1_000, kilobits] {
                script.metrics(|metrics| metrics.delivery_rate = Some(rate * 1_000));
            }
            for _ in 0..40 {
                sample(&mut script, 160, 4);
            }
            script.finds(Detector::RttStep)
        };
        assert!(!at_rate(1_000));
        assert!(!at_rate(700), "idle for 48 of 160 ms");
        assert!(at_rate(400), "idle for 96 of 160 ms");
    }

    #[test]
    fn standing_queue_causes_no_finding() {
        let mut script = Script::new("bbr", 20);
        for _ in 0..40 {
            sample(&mut script, 200, 300);
        }
        assert!(!script.finds(Detector::RttStep));
        for _ in 0..40 {
            sample(&mut script, 22, 2);
        }
        assert!(!script.finds(Detector::RttStep));
    }

    /// A download of 1.3 s through a queue, and an idle timeout 29 s later.
    #[test]
    fn silence_after_few_samples_causes_no_finding() {
        let mut script = Script::new("bbr", 20);
        for _ in 0..13 {
            script.wait(100).metrics(|metrics| {
                metrics.latest_rtt = Some(75_000_000);
                metrics.bytes_in_flight = Some(2 * testing::MDS);
            });
        }
        script.wait(29_000).tell(EventData::ConnectionStateUpdated {
            new: "closed".into(),
        });
        assert!(!script.finds(Detector::RttStep));
        // Nor do samples on both sides of it.
        for _ in 0..13 {
            sample(&mut script, 75, 2);
        }
        assert!(!script.finds(Detector::RttStep));
    }

    #[test]
    fn reports_without_another_sample_cause_no_finding() {
        let mut script = Script::new("bbr", 20);
        script.send(1).ack(0, 0);
        for _ in 0..40 {
            sample(&mut script, 80, 2);
        }
        assert!(!script.finds(Detector::RttStep));
    }

    #[test]
    fn small_flow_of_a_controller_without_a_model_causes_no_finding() {
        for (controller, found) in [("bbr", true), ("cubic", false), ("prague", false)] {
            let mut script = Script::new(controller, 20);
            script.limit(Limit::Congestion);
            for _ in 0..40 {
                sample(&mut script, 200, 2);
            }
            assert_eq!(script.finds(Detector::RttStep), found, "{controller}");
        }
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::RttStep);
    }
}
