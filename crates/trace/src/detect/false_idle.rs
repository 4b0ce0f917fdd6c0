//! The growth curve is shifted as if the connection had been idle although data waited: busy time
//! counted as idle time. Or the inverse: it is not shifted over a pause of the application. Or it
//! restarts without a reduction, so that a pause counts as a loss.

use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData, Metrics};

/// The error of a millisecond clock.
const SLACK: u64 = 1_000_000;
/// A pause that the curve must not include.
const LONG: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct FalseIdle {
    shift: Option<u64>,
    /// When the position of the curve was last reported.
    told: u64,
    /// The last time at which the application or flow control was the limit.
    quiet: Option<u64>,
    /// The last ACK before this event.
    last_ack: Option<u64>,
    /// The previous event, and whether the application or flow control was the limit from then on.
    before: (u64, bool),
    /// For how long it was, since the position of the curve was last reported.
    paused: u64,
    /// The curve's own time, as last reported.
    place: Option<u64>,
    /// The same, with the counters of events that may restart the curve.
    stage: Option<(u64, Causes)>,
}

/// How often the window was reduced, reductions were undone, and persistent
/// congestion was found.
type Causes = [Option<u64>; 3];

impl Detect for FalseIdle {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        if view.is_quiet() || effects.path {
            self.quiet = Some(view.now);
        }
        let (at, quiet) = core::mem::replace(&mut self.before, (view.now, view.is_quiet()));
        if quiet {
            self.paused = self.paused.saturating_add(view.now.saturating_sub(at));
        }
        let before = self.last_ack;
        self.last_ack = view.last_ack;
        let EventData::RecoveryMetricsUpdated(metrics) = &event.data else {
            return;
        };
        let Some(shift) = metrics.extra("epoch_shift") else {
            return;
        };
        let moved = shift.saturating_sub(self.shift.replace(shift).unwrap_or(shift));
        let told = core::mem::replace(&mut self.told, view.now);
        self.judge_pause(metrics, told, view, out);
        self.judge_stage(metrics, effects, view, out);
        // Idle since the last report: the shift may be correct.
        if self.quiet.is_some_and(|quiet| quiet >= told) || view.waits_for_network() != Some(true) {
            return;
        }
        let Some(ack) = before.or(view.last_ack) else {
            return;
        };
        let idle = view.now.saturating_sub(ack.max(told));
        if moved > idle.saturating_add(SLACK) {
            let finding = Finding::new(Detector::FalseIdle, told, view.now, Severity::Error)
                .with("curve moved by", span(moved))
                .with("nothing acknowledged for", span(idle));
            out.push(finding);
        }
    }

    fn finish(&mut self, _view: &View, _out: &mut Findings) {}
}

impl FalseIdle {
    /// A curve's own time advances while the connection is busy, and not in pauses.
    fn judge_pause(&mut self, metrics: &Metrics, told: u64, view: &View, out: &mut Findings) {
        let paused = core::mem::take(&mut self.paused);
        let now = metrics.extra("t");
        let before = core::mem::replace(&mut self.place, now);
        let (Some(before), Some(now)) = (before, now) else {
            return;
        };
        // A curve that restarts goes back.
        let ran = now.saturating_sub(before);
        let busy = (view.now.saturating_sub(told)).saturating_sub(paused);
        if paused > LONG && ran > busy.saturating_add(paused / 2) {
            let finding = Finding::new(Detector::FalseIdle, told, view.now, Severity::Error)
                .with("nothing to send for", span(paused))
                .with("curve advanced by", span(ran));
            out.push(finding);
        }
    }

    /// A curve restarts after a reduction, an undo, or persistent congestion.
    fn judge_stage(
        &mut self,
        metrics: &Metrics,
        effects: &EventEffects,
        view: &View,
        out: &mut Findings,
    ) {
        let causes = [
            metrics.congestion_events,
            metrics.spurious_events,
            metrics.persistent_events,
        ];
        if effects.path || causes[0].is_none() {
            self.stage = None;
        }
        let Some(now) = metrics.extra("t") else {
            return;
        };
        let before = self.stage.replace((now, causes));
        let Some((before, same)) = before else {
            return;
        };
        if now < before && same == causes {
            let finding = Finding::new(Detector::FalseIdle, view.now, view.now, Severity::Error)
                .with("curve had advanced for", span(before))
                .with("restarted without a reduction at", span(now));
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    fn shifted(script: &mut Script, shift: u64) {
        script.metrics(|metrics| metrics.extra = vec![("epoch_shift".into(), shift * 1_000_000)]);
    }

    #[test]
    fn curve_shift_by_one_rtt_every_rtt_is_found() {
        let mut script = Script::new("cubic", 10);
        for round in 0..5 {
            script.round(2, 2);
            shifted(&mut script, round * 10);
        }
        assert!(script.finds(Detector::FalseIdle));
    }

    #[test]
    fn curve_shift_by_an_application_pause_causes_no_finding() {
        let mut script = Script::new("cubic", 10);
        script.round(10, 10);
        shifted(&mut script, 0);
        script.limit(Limit::Application).wait(500);
        script
            .send(10)
            .limit(Limit::Congestion)
            .wait(10)
            .ack(10, 19);
        shifted(&mut script, 500);
        assert!(!script.finds(Detector::FalseIdle));
    }

    #[test]
    fn pause_counted_as_growth_time_is_found() {
        for counted in [false, true] {
            let mut script = Script::new("cubic", 10);
            let place = |script: &mut Script, shift: u64, t: u64| {
                script.metrics(|metrics| {
                    let ms = |value: u64| value * 1_000_000;
                    metrics.extra = vec![("epoch_shift".into(), ms(shift)), ("t".into(), ms(t))];
                });
            };
            script.round(10, 10);
            place(&mut script, 0, 10);
            script.limit(Limit::Application).wait(5_000);
            script.send(10).limit(Limit::Congestion).wait(10);
            let moved = if counted { 0 } else { 5_000 };
            place(&mut script, moved, 5_020 - moved);
            assert_eq!(script.finds(Detector::FalseIdle), counted);
        }
    }

    #[test]
    fn new_growth_epoch_without_reduction_is_found() {
        for reductions in [0, 1] {
            let mut script = Script::new("cubic", 10);
            for (events, t) in [(0, 5_000), (reductions, 20)] {
                script.round(10, 10).metrics(|metrics| {
                    metrics.congestion_events = Some(events);
                    let ms = t * 1_000_000;
                    metrics.extra = vec![("epoch_shift".into(), 0), ("t".into(), ms)];
                });
            }
            assert_eq!(script.finds(Detector::FalseIdle), reductions == 0);
        }
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::FalseIdle);
    }
}
