//! Many packets declared lost are acknowledged later: at least one in five, and five in a second.

use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

const SECOND: u64 = 1_000_000_000;
const MANY: u64 = 5;

#[derive(Clone, Debug, Default)]
pub(super) struct SpuriousStorm {
    /// Start of the current second, losses and late ACKs in it.
    since: u64,
    lost: u64,
    late: u64,
    /// The storm so far: start, end, losses, late ACKs.
    storm: Option<(u64, u64, u64, u64)>,
}

impl Detect for SpuriousStorm {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        if view.now.saturating_sub(self.since) >= SECOND {
            self.close(out);
            self.since = view.now;
        }
        self.lost = self.lost.saturating_add(effects.lost.into());
        let late = effects.acked.map_or(0, |acked| acked.spurious);
        self.late = self.late.saturating_add(late);
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        let _ = view;
        self.close(out);
        self.end(out);
    }
}

impl SpuriousStorm {
    /// Ends a second.
    fn close(&mut self, out: &mut Findings) {
        let (lost, late) = (
            core::mem::take(&mut self.lost),
            core::mem::take(&mut self.late),
        );
        // Late ACKs for losses of the second before have no losses to be compared with.
        if late >= MANY && late.saturating_mul(5) >= lost {
            let (t0, _, losses, spurious) = self.storm.unwrap_or((self.since, 0, 0, 0));
            let until = self.since.saturating_add(SECOND);
            let losses = losses.saturating_add(lost);
            self.storm = Some((t0, until, losses, spurious.saturating_add(late)));
        } else if lost > 0 {
            self.end(out);
        }
    }

    fn end(&mut self, out: &mut Findings) {
        if let Some((t0, t1, lost, late)) = self.storm.take() {
            let finding = Finding::new(Detector::SpuriousStorm, t0, t1, Severity::Warning)
                .with("declared lost", lost)
                .with("acknowledged later", late);
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};
    use crate::event::{EventData, PacketType};

    #[test]
    fn frequent_spurious_losses_are_found() {
        let mut script = Script::new("cubic", 40);
        for _ in 0..20 {
            let first = script.next;
            script
                .send(10)
                .wait(40)
                .lose(first)
                .lose(first + 1)
                .ack(first + 2, first + 9);
            script.wait(5).ack(first, first + 9);
        }
        assert!(script.finds(Detector::SpuriousStorm));
    }

    #[test]
    fn acknowledged_packets_discarded_earlier_are_found() {
        let mut script = Script::new("cubic", 40);
        script.send(20).wait(10);
        for number in 0..20 {
            script.tell(EventData::PacketLost {
                kind: PacketType::OneRtt,
                number,
                size: None,
                mtu_probe: false,
                trigger: Some("withdrawn".into()),
            });
        }
        script.wait(30).ack(0, 19).wait(1_000).send(1);
        assert!(script.finds(Detector::SpuriousStorm));
    }

    #[test]
    fn real_losses_cause_no_finding() {
        let mut script = Script::new("cubic", 40);
        for round in 0..40 {
            let first = script.next;
            script
                .send(10)
                .wait(40)
                .lose(first)
                .ack(first + 1, first + 9);
            if round == 20 {
                script.ack(first, first);
            }
        }
        assert!(!script.finds(Detector::SpuriousStorm));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::SpuriousStorm);
    }
}
