//! The window is reduced again before anything sent after the last reduction was
//! acknowledged: several reductions for one event. Exempt are windows that never move, and a
//! controller that responds to the share of marks (Prague) once for marks and once for losses of the
//! same round (draft-briscoe-iccrg-prague-congestion-control).

use clearway_recovery::controller::WindowPolicy;

use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{BySpace, Event, EventData, Frame, Metrics};

#[derive(Clone, Debug, Default)]
pub(super) struct MultiCut {
    ssthresh: Option<u64>,
    events: Option<u64>,
    undone: Option<u64>,
    /// The last reduction: its time, and the largest packet number sent in each space.
    last: Option<(u64, BySpace<Option<u64>>)>,
    /// The signals of the last reduction.
    answered: Signals,
    /// Those that arrived since the metrics were last reported.
    arrived: Signals,
}

/// What a reduction may respond to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signals {
    lost: bool,
    marked: bool,
}

impl Signals {
    /// Whether one is of losses only, and the other of marks only.
    fn are_different(self, other: Self) -> bool {
        self.lost != self.marked && other.lost == self.marked && other.marked == self.lost
    }
}

impl Detect for MultiCut {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        if effects.path {
            *self = Self::default();
        }
        self.on_ack(event);
        self.arrived.lost |= effects.lost;
        self.arrived.marked |= effects.marked;
        let EventData::RecoveryMetricsUpdated(metrics) = &event.data else {
            return;
        };
        if view.window_policy() == WindowPolicy::Constant {
            return;
        }
        let cuts = self.cuts(metrics);
        let arrived = core::mem::take(&mut self.arrived);
        let in_proportion = view.metrics.extra("alpha").is_some();
        let since = self.last.map(|(at, _)| at);
        let since = since.filter(|_| !(in_proportion && arrived.are_different(self.answered)));
        if cuts > 1 || (cuts == 1 && since.is_some()) {
            let t0 = since.unwrap_or(view.now);
            let finding = Finding::new(Detector::MultiCut, t0, view.now, Severity::Error)
                .with("reductions", cuts.saturating_add(since.is_some().into()))
                .with("slow start threshold", metrics.ssthresh.unwrap_or(0));
            out.push(finding);
        }
        if cuts > 0 {
            self.last = Some((view.now, view.ledger.newest()));
            self.answered = arrived;
        }
    }

    fn finish(&mut self, _view: &View, _out: &mut Findings) {}
}

impl MultiCut {
    /// The number of reductions that these metrics show.
    fn cuts(&mut self, metrics: &Metrics) -> u64 {
        // An undone event does not end anything: its losses may begin a new one. Undoing the first
        // event leaves no threshold at all, so the count is used too.
        let known = self.undone;
        self.undone = metrics.spurious_events.or(known);
        if known.is_some_and(|known| self.undone > Some(known)) {
            self.last = None;
        }
        if let Some(spurious) = metrics
            .ssthresh
            .filter(|new| self.ssthresh.is_some_and(|old| *new > old))
        {
            self.ssthresh = Some(spurious);
            self.last = None;
        }
        if let Some(events) = metrics.congestion_events {
            self.ssthresh = metrics.ssthresh.or(self.ssthresh);
            let known = self.events.replace(events);
            return events.saturating_sub(known.unwrap_or(events));
        }
        let Some(new) = metrics.ssthresh else {
            return 0;
        };
        let old = self.ssthresh.replace(new);
        u64::from(old.is_some_and(|old| new < old))
    }

    /// A packet sent after the reduction was acknowledged: the next reduction is for another event.
    fn on_ack(&mut self, event: &Event) {
        let (Some((_, newest)), EventData::PacketReceived(packet)) = (self.last, &event.data)
        else {
            return;
        };
        let Some(space) = packet.kind.space() else {
            return;
        };
        let boundary = *newest.get(space);
        let later = packet.frames().iter().any(|frame| match frame {
            Frame::Ack { ranges, .. } => ranges.iter().any(|(_, to)| Some(*to) > boundary),
            _ => false,
        });
        if later {
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{self, Script, assert_quiet_on_a_healthy_transfer};

    fn cut(script: &mut Script, ssthresh: u64, events: Option<u64>) {
        script.metrics(|metrics| {
            metrics.ssthresh = Some(ssthresh * testing::MDS);
            metrics.congestion_events = events;
        });
    }

    #[test]
    fn two_reductions_for_one_flight_are_found() {
        for counted in [false, true] {
            let mut script = Script::new("cubic", 10);
            cut(&mut script, 1_000, counted.then_some(0));
            script.send(20).wait(10).lose(0);
            cut(&mut script, 14, counted.then_some(1));
            script.ack(3, 9).lose(1);
            cut(&mut script, 10, counted.then_some(2));
            assert!(script.finds(Detector::MultiCut), "{counted}");
        }
    }

    #[test]
    fn reduction_after_an_undo_causes_no_finding() {
        for undone in [false, true] {
            let mut script = Script::new("cubic", 10);
            script.metrics(|metrics| {
                metrics.congestion_events = Some(0);
                metrics.spurious_events = Some(0);
            });
            script.send(20).wait(10).lose(0);
            cut(&mut script, 14, Some(1));
            script.ack(0, 0).metrics(|metrics| {
                metrics.ssthresh = None;
                metrics.spurious_events = Some(undone.into());
            });
            script.lose(1);
            cut(&mut script, 14, Some(2));
            assert_eq!(script.finds(Detector::MultiCut), !undone);
        }
    }

    #[test]
    fn several_reductions_for_one_ack_are_found() {
        let mut script = Script::new("cubic", 10);
        cut(&mut script, 1_000, Some(0));
        script.send(20).wait(10).lose(0);
        cut(&mut script, 2, Some(7));
        assert!(script.finds(Detector::MultiCut));
    }

    #[test]
    fn congestion_events_of_a_fixed_window_cause_no_finding() {
        let mut script = Script::new("fixed", 10);
        cut(&mut script, 1_000, Some(0));
        script.send(20).wait(10).lose(0);
        cut(&mut script, 1_000, Some(1));
        script.lose(1);
        cut(&mut script, 1_000, Some(2));
        assert!(!script.finds(Detector::MultiCut));
    }

    #[test]
    fn one_reduction_per_round_causes_no_finding() {
        let mut script = Script::new("cubic", 10);
        cut(&mut script, 1_000, Some(0));
        for event in 1..6 {
            let first = script.next;
            script.send(20).wait(10).lose(first);
            cut(&mut script, 100 - event, Some(event));
            script.send(1).wait(10);
            script.ack(first + 1, script.next - 1);
        }
        assert!(!script.finds(Detector::MultiCut));
    }

    /// The draft of Prague allows a response to marks and one to losses in a round, not two to
    /// marks or two to losses; CUBIC may not do either (RFC 9002 §7.3.2).
    #[test]
    fn response_to_a_loss_after_one_to_marks_is_found_unless_marks_are_answered_in_proportion() {
        for (alpha, second_is_loss, found) in [
            (true, true, false),
            (true, false, true),
            (false, true, true),
            (false, false, true),
        ] {
            let mut script = Script::new("prague", 10);
            let marks = |script: &mut Script, ce: u64, number: u64| {
                let mut frame = Frame::ack([(number, number)]);
                if let Frame::Ack { ecn, .. } = &mut frame {
                    *ecn = Some([0, number, ce]);
                }
                script.receive(frame);
            };
            script.metrics(|metrics| {
                metrics.congestion_events = Some(0);
                metrics.extra = alpha.then(|| ("alpha".into(), 500)).into_iter().collect();
            });
            script.send(20).wait(10);
            marks(&mut script, 1, 0);
            cut(&mut script, 15, Some(1));
            if second_is_loss {
                script.lose(1);
            } else {
                marks(&mut script, 2, 2);
            }
            cut(&mut script, 10, Some(2));
            let said = script.finds(Detector::MultiCut);
            assert_eq!(said, found, "alpha {alpha}, a loss {second_is_loss}");
        }
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::MultiCut);
    }
}
