//! The end of recovery lies beyond the packets sent so far: packets sent from now on count as sent
//! before it.

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData, Metrics};

#[derive(Clone, Debug, Default)]
pub(super) struct BoundaryInFuture {
    condition: Condition,
    by: u64,
    unit: &'static str,
}

impl Detect for BoundaryInFuture {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        let EventData::RecoveryMetricsUpdated(metrics) = &event.data else {
            return;
        };
        let ahead = ahead(metrics, view.now);
        if let Some((by, unit)) = ahead {
            self.by = by;
            self.unit = unit;
        }
        if let Some(period) = self.condition.update(ahead.is_some(), view, 0) {
            self.tell(period, out);
        }
        if effects.path {
            self.condition = Condition::default();
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.condition.finish(view, 0) {
            self.tell(period, out);
        }
    }
}

/// By how much the boundary is ahead: packets, or nanoseconds where a
/// controller keeps a time.
fn ahead(metrics: &Metrics, now: u64) -> Option<(u64, &'static str)> {
    if let (Some(boundary), Some(next)) = (metrics.extra("boundary"), metrics.extra("next_index")) {
        return (boundary > next).then(|| (boundary.saturating_sub(next), "packets"));
    }
    let start = metrics.extra("recovery_start")?;
    (start > now).then(|| (start.saturating_sub(now), "ns"))
}

impl BoundaryInFuture {
    fn tell(&self, period: Period, out: &mut Findings) {
        let (t0, t1) = (period.start, period.end);
        let finding = Finding::new(Detector::BoundaryInFuture, t0, t1, Severity::Error)
            .with("ahead by", format!("{} {}", self.by, self.unit));
        out.push(finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    #[test]
    fn boundary_index_or_time_in_the_future_is_found() {
        let mut script = Script::new("cubic", 10);
        script.wait(50).metrics(|metrics| {
            metrics.extra = vec![("boundary".into(), 12), ("next_index".into(), 10)];
        });
        assert!(script.finds(Detector::BoundaryInFuture));
        let mut script = Script::new("cubic", 10);
        script.wait(50).metrics(|metrics| {
            metrics.extra = vec![("recovery_start".into(), 60_000_000)];
        });
        assert!(script.finds(Detector::BoundaryInFuture));
    }

    #[test]
    fn boundary_at_the_next_packet_causes_no_finding() {
        let mut script = Script::new("cubic", 10);
        script.wait(50).metrics(|metrics| {
            metrics.extra = vec![("boundary".into(), 10), ("next_index".into(), 10)];
        });
        assert!(!script.finds(Detector::BoundaryInFuture));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::BoundaryInFuture);
    }
}
