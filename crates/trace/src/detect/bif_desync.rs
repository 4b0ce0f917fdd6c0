//! The reported bytes in flight differ from the sum over the packets in flight.

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData, Metrics};

/// Round trips for which a difference must last, so that the order of events does not matter.
const ROUNDS: u64 = 2;
/// Datagrams that may be accounted for elsewhere (probes, another path).
const SLACK: u64 = 4;

/// Time for which the sum of all paths may differ: events of one instant are recorded one after the
/// other, and no packet belongs to another account.
const INSTANT: u64 = 5_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct BifDesync {
    condition: Condition,
    worst: (u64, u64),
    /// The same for all paths together, where that is reported.
    sum_spell: Condition,
    sum_worst: (u64, u64),
}

impl Detect for BifDesync {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        if effects.path {
            self.condition = Condition::default();
            return;
        }
        let EventData::RecoveryMetricsUpdated(metrics) = &event.data else {
            return;
        };
        self.compare_sums(view, metrics, out);
        let (Some(told), Some(sum)) = (metrics.bytes_in_flight, view.ledger.in_flight()) else {
            return;
        };
        let holds = differs(view, told, sum);
        if let Some(period) = self.condition.update(holds, view, view.round_trips(ROUNDS)) {
            self.judge(view, period, out);
        }
        if holds {
            self.worst = (told, sum);
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.condition.finish(view, view.round_trips(ROUNDS)) {
            self.judge(view, period, out);
        }
        if let Some(period) = self.sum_spell.finish(view, INSTANT) {
            self.judge_sums(period, out);
        }
    }
}

fn differs(view: &View, told: u64, sum: u64) -> bool {
    let by = told.abs_diff(sum);
    by > view.datagrams(SLACK) && by > told.max(sum) / 4
}

impl BifDesync {
    fn compare_sums(&mut self, view: &View, metrics: &Metrics, out: &mut Findings) {
        let told = metrics.extra("in_flight_on_all_paths");
        let (Some(told), Some(sum)) = (told, view.ledger.on_all_paths()) else {
            return;
        };
        let holds = differs(view, told, sum);
        if let Some(period) = self.sum_spell.update(holds, view, INSTANT) {
            self.judge_sums(period, out);
        }
        if holds {
            self.sum_worst = (told, sum);
        }
    }

    fn judge_sums(&self, period: Period, out: &mut Findings) {
        if period.lasted() > INSTANT {
            let (t0, t1) = (period.start, period.end);
            let (told, sum) = self.sum_worst;
            let finding = Finding::new(Detector::BifDesync, t0, t1, Severity::Error)
                .with("reported for all paths", told)
                .with("sum over packets", sum);
            out.push(finding);
        }
    }

    fn judge(&self, view: &View, period: Period, out: &mut Findings) {
        let Some(srtt) = view.srtt() else { return };
        if period.lasted() >= srtt.saturating_mul(ROUNDS) {
            let (t0, t1) = (period.start, period.end);
            let (told, sum) = self.worst;
            let finding = Finding::new(Detector::BifDesync, t0, t1, Severity::Error)
                .with("reported", told)
                .with("sum over packets", sum);
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    #[test]
    fn bytes_in_flight_reset_to_zero_is_found() {
        let mut script = Script::new("cubic", 20);
        script.send(40).window(50, 0).wait(100).window(50, 0);
        assert!(script.finds(Detector::BifDesync));
    }

    #[test]
    fn correct_bytes_in_flight_cause_no_finding() {
        let mut script = Script::new("cubic", 20);
        script
            .send(40)
            .window(50, 40)
            .wait(30)
            .lose(0)
            .ack(1, 20)
            .window(50, 19);
        script
            .wait(30)
            .ack(1, 39)
            .window(50, 0)
            .wait(100)
            .window(50, 0);
        assert!(!script.finds(Detector::BifDesync));
    }

    /// The bytes in flight of the current path are correct in both.
    #[test]
    fn bytes_in_flight_lost_on_path_change_are_found() {
        let finds = |forgotten: bool| {
            let mut script = Script::new("cubic", 20);
            script.send(40).window(50, 40);
            script.tell(EventData::TupleAssigned { remote: None });
            for _ in 0..4 {
                let all = if forgotten { 0 } else { 40 * 1_200 };
                script.wait(10).metrics(|metrics| {
                    metrics.bytes_in_flight = Some(0);
                    metrics.extra = vec![("in_flight_on_all_paths".into(), all)];
                });
            }
            script.finds(Detector::BifDesync)
        };
        assert!(finds(true));
        assert!(!finds(false));
    }

    /// The report stood between packets of the same instant, and none follows.
    #[test]
    fn difference_before_a_silence_causes_no_finding() {
        let mut script = Script::new("cubic", 20);
        script.send(40).window(50, 20).wait(29_000);
        script.ack(0, 39).window(50, 0);
        assert!(!script.finds(Detector::BifDesync));
    }

    #[test]
    fn trace_without_frames_causes_no_finding() {
        let mut script = Script::new("cubic", 20);
        for event in &mut script.send(40).events {
            if let EventData::PacketSent(packet) = &mut event.data {
                packet.frames = None;
            }
        }
        script.window(50, 0).wait(100).window(50, 0);
        assert!(!script.finds(Detector::BifDesync));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::BifDesync);
    }
}
