//! Persistent congestion is declared although no period of losses spans three probe timeouts
//! without an acknowledgement in it (RFC 9002 §7.6). Losses of a handshake count too, so nothing is said where
//! some were declared shortly before.

use super::finding::span;
use super::ledger::Fate;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData, PacketType};

/// kPersistentCongestionThreshold (RFC 9002 §7.6.1).
const PTOS: u64 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct PersistentFalse {
    events: Option<u64>,
    /// When a packet of the handshake was last declared lost.
    handshake_lost: Option<u64>,
}

impl Detect for PersistentFalse {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        if effects.path {
            *self = Self::default();
        }
        if let EventData::PacketLost { kind, .. } = &event.data
            && matches!(kind, PacketType::Initial | PacketType::Handshake)
        {
            self.handshake_lost = Some(view.now);
        }
        let declared = match &event.data {
            EventData::CongestionStateUpdated { trigger, .. } => {
                // If it is also counted, the count is used.
                self.events.is_none() && trigger.as_deref() == Some("persistent_congestion")
            }
            EventData::RecoveryMetricsUpdated(metrics) => {
                let known = self.events;
                self.events = metrics.persistent_events.or(known);
                known.is_some_and(|known| self.events > Some(known))
            }
            _ => false,
        };
        if !declared || view.ledger.in_flight().is_none() {
            return;
        }
        let Some(pto) = view.pto() else { return };
        let longest = longest_run(view);
        // The RTT estimate may have changed between the losses and now.
        let three = pto.saturating_mul(PTOS);
        let since_handshake = self.handshake_lost.map(|at| view.now.saturating_sub(at));
        if since_handshake.is_some_and(|time| time <= three) {
            return;
        }
        if longest < three.saturating_sub(three / 4) {
            let finding = Finding::new(
                Detector::PersistentFalse,
                view.now,
                view.now,
                Severity::Error,
            )
            .with("losses span", span(longest))
            .with("three probe timeouts", span(three));
            out.push(finding);
        }
    }

    fn finish(&mut self, _view: &View, _out: &mut Findings) {}
}

/// The longest time between the sending of two lost ack-eliciting packets with nothing acknowledged
/// in between, in the 1-RTT space.
fn longest_run(view: &View) -> u64 {
    let (mut longest, mut first) = (0, None);
    for sent in view.ledger.data().filter(|sent| sent.ack_eliciting) {
        match sent.fate {
            Fate::Lost => {
                let first = *first.get_or_insert(sent.time);
                longest = longest.max(sent.time.saturating_sub(first));
            }
            Fate::Acked | Fate::Spurious => first = None,
            Fate::Outstanding | Fate::Forgotten | Fate::Withdrawn => {}
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    fn collapse(script: &mut Script) {
        script.metrics(|metrics| metrics.persistent_events = Some(1));
    }

    fn script() -> Script {
        let mut script = Script::new("cubic", 20);
        script.metrics(|metrics| metrics.persistent_events = Some(0));
        script
    }

    #[test]
    fn persistent_congestion_after_a_short_burst_is_found() {
        let mut script = script();
        script.send(20).wait(20).ack(19, 19);
        for number in 0..19 {
            script.lose(number);
        }
        collapse(&mut script);
        assert!(script.finds(Detector::PersistentFalse));
    }

    #[test]
    fn persistent_congestion_despite_an_ack_between_losses_is_found() {
        let mut script = script();
        script.send(1).wait(90).send(1).wait(90).send(1).wait(20);
        script.ack(1, 1).lose(0).lose(2);
        collapse(&mut script);
        assert!(script.finds(Detector::PersistentFalse));
    }

    #[test]
    fn persistent_congestion_of_a_handshake_is_not_judged() {
        let after = |wait: u64| {
            let mut script = script();
            script.send(2).wait(20).ack(0, 0);
            script.tell(EventData::PacketLost {
                kind: PacketType::Handshake,
                number: 1,
                size: None,
                mtu_probe: false,
                trigger: None,
            });
            script.wait(wait);
            collapse(&mut script);
            script.finds(Detector::PersistentFalse)
        };
        assert!(!after(0));
        assert!(after(500));
    }

    #[test]
    fn persistent_congestion_after_three_ptos_causes_no_finding() {
        let mut script = script();
        // PTO: 20 + 8 + 25 ms.
        script
            .send(1)
            .wait(60)
            .pto()
            .send(1)
            .wait(120)
            .pto()
            .send(2)
            .wait(20);
        script.ack(3, 3).lose(0).lose(1).lose(2);
        collapse(&mut script);
        assert!(!script.finds(Detector::PersistentFalse));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::PersistentFalse);
    }
}
