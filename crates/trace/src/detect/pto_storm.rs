//! Repeated probe timeouts: three in a row, or three within ten round trips while ACKs arrive.

use std::collections::VecDeque;

use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

const MANY: usize = 3;
const ROUNDS: u64 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct PtoStorm {
    /// The last PTOs, and whether an ACK came between them.
    last: VecDeque<u64>,
    acks: VecDeque<bool>,
    acked: bool,
    /// The current storm.
    storm: Option<(u64, u64, u64)>,
    /// The number of consecutive probe timeouts, as last reported.
    count: u64,
}

impl Detect for PtoStorm {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        if effects.acked.is_some() {
            self.acked = true;
        }
        if let Some((_, last, _)) = self.storm {
            let rounds = view
                .srtt()
                .unwrap_or(100_000_000)
                .saturating_mul(2 * ROUNDS);
            let calm = view.now.saturating_sub(last) > rounds;
            let over = effects.acked.is_some_and(|acked| acked.packets > 0);
            if calm || (over && !effects.pto) {
                self.end(out);
            }
        }
        if effects.metrics {
            self.on_count(view);
        }
        if !effects.pto {
            return;
        }
        self.last.push_back(view.now);
        self.acks.push_back(core::mem::take(&mut self.acked));
        if self.last.len() > MANY {
            self.last.pop_front();
            self.acks.pop_front();
        }
        let count = view.metrics.pto_count.unwrap_or(0);
        let first = self.last.front().copied().unwrap_or(view.now);
        let span = view.now.saturating_sub(first);
        let unanswered = self.acks.iter().skip(1).all(|acked| !acked);
        let dense = view
            .srtt()
            .is_some_and(|srtt| span <= srtt.saturating_mul(ROUNDS));
        if self.last.len() == MANY && (unanswered || dense) || count >= MANY as u64 {
            let (t0, _, ptos) = self.storm.unwrap_or((first, 0, 2));
            self.storm = Some((t0, view.now, ptos.saturating_add(1)));
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        let _ = view;
        self.end(out);
    }
}

impl PtoStorm {
    /// The count is reported after the timeout that raised it.
    fn on_count(&mut self, view: &View) {
        let count = view.metrics.pto_count.unwrap_or(0);
        let known = core::mem::replace(&mut self.count, count);
        let first = self.last.front().copied();
        if let (None, Some(first)) = (self.storm, first)
            && count > known
            && count >= MANY as u64
        {
            self.storm = Some((first, view.now, count));
        }
    }

    fn end(&mut self, out: &mut Findings) {
        if let Some((t0, t1, ptos)) = self.storm.take() {
            let finding = Finding::new(Detector::PtoStorm, t0, t1, Severity::Warning)
                .with("probe timeouts", ptos);
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};
    use crate::event::{EventData, Packet, PacketType};

    #[test]
    fn outage_is_reported_as_pto_storm() {
        let mut script = Script::new("cubic", 20);
        script.send(4);
        for period in [50, 100, 200, 400] {
            script.wait(period).pto().send(2);
        }
        let findings = script.findings();
        let storms: Vec<_> = findings
            .iter()
            .filter(|each| each.detector == Detector::PtoStorm)
            .collect();
        assert_eq!(storms.len(), 1, "{findings:?}");
        assert!(
            storms[0]
                .evidence
                .contains(&("probe timeouts".into(), "4".into()))
        );
    }

    #[test]
    fn timeouts_while_acks_arrive_are_found() {
        let mut script = Script::new("cubic", 50);
        for _ in 0..4 {
            script.send(1).wait(80).pto().send(1).wait(50);
            script.ack(script.next - 2, script.next - 1);
            script.metrics(|metrics| metrics.pto_count = Some(0));
        }
        assert!(script.finds(Detector::PtoStorm));
    }

    /// A sender that records neither timers nor their number, as aioquic.
    fn silent_script() -> Script {
        let mut script = Script::new("reno", 20);
        script.metrics(|metrics| metrics.pto_count = None);
        script
    }

    #[test]
    fn outage_is_found_in_a_trace_without_timers() {
        let mut script = silent_script();
        script.send(10).wait(20).ack(0, 9).send(10);
        for period in [60, 120, 240, 380] {
            script.wait(period).send(2);
        }
        let findings = script.findings();
        let storm = findings
            .iter()
            .find(|each| each.detector == Detector::PtoStorm)
            .expect("found");
        let count = ("probe timeouts".into(), "4".into());
        assert!(storm.evidence.contains(&count), "{storm:?}");
    }

    #[test]
    fn pauses_of_the_application_are_no_timeouts() {
        let mut script = silent_script();
        for _ in 0..10 {
            let first = script.next;
            script.send(10).wait(20).ack(first, first + 9).wait(500);
        }
        // Packets that were lost are not in flight: what comes next answers no timeout.
        for _ in 0..10 {
            let number = script.next;
            script.send(1).wait(30).lose(number).wait(500);
        }
        assert!(!script.finds(Detector::PtoStorm));
    }

    #[test]
    fn trace_without_acknowledged_packet_numbers_shows_no_timeouts() {
        let mut script = silent_script();
        let mut unsized_packet = Packet::new(PacketType::OneRtt, 0, 0);
        unsized_packet.size = None;
        script.tell(EventData::PacketSent(unsized_packet));
        for _ in 0..10 {
            script.send(1).wait(500);
        }
        assert!(!script.finds(Detector::PtoStorm));
    }

    /// ACKs of packets sent on another path do not answer a probe.
    #[test]
    fn three_timeouts_in_a_row_are_found_despite_acks() {
        let mut script = Script::new("cubic", 2);
        script.send(40);
        for timeout in 0..3 {
            script.wait(40 << timeout).pto().send(2);
            script.ack(timeout, timeout);
        }
        assert!(script.finds(Detector::PtoStorm));
    }

    #[test]
    fn occasional_tail_loss_causes_no_finding() {
        let mut script = Script::new("cubic", 20);
        for _ in 0..6 {
            script.send(1).wait(50).pto().send(1).wait(20);
            script.ack(script.next - 2, script.next - 1);
            script
                .metrics(|metrics| metrics.pto_count = Some(0))
                .wait(2_000);
        }
        assert!(!script.finds(Detector::PtoStorm));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::PtoStorm);
    }
}
