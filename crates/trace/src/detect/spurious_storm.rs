//! Many packets that had been declared lost are acknowledged after all: at least
//! one in five, and five in a second.

use super::view::{News, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

const SECOND: u64 = 1_000_000_000;
const MANY: u64 = 5;

#[derive(Debug, Default)]
pub(super) struct SpuriousStorm {
    /// Start of the second, losses and late ACKs in it.
    since: u64,
    lost: u64,
    late: u64,
    /// The storm so far: from, to, losses, late ACKs.
    storm: Option<(u64, u64, u64, u64)>,
}

impl Detect for SpuriousStorm {
    fn on_event(&mut self, view: &View, news: &News, _event: &Event, out: &mut Findings) {
        if view.now.saturating_sub(self.since) >= SECOND {
            self.close(out);
            self.since = view.now;
        }
        self.lost = self.lost.saturating_add(news.lost.into());
        let late = news.acked.map_or(0, |acked| acked.spurious);
        self.late = self.late.saturating_add(late);
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        let _ = view;
        self.close(out);
        self.end(out);
    }
}

impl SpuriousStorm {
    /// A second is over.
    fn close(&mut self, out: &mut Findings) {
        let (lost, late) = (
            core::mem::take(&mut self.lost),
            core::mem::take(&mut self.late),
        );
        // Late ACKs of losses of the second before have no losses beside them.
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
                .with("acknowledged after all", late);
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
    fn losses_that_arrive_after_all_are_seen() {
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
    fn packets_taken_back_that_arrive_after_all_are_seen() {
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
    fn real_losses_are_none_of_it() {
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
    fn a_healthy_transfer_is_passed_over() {
        assert_quiet_on_a_healthy_transfer(Detector::SpuriousStorm);
    }
}
