//! A reduction is undone without proof that it was wrong: since the last undo no packet declared
//! lost was acknowledged.

use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData};

#[derive(Clone, Debug, Default)]
pub(super) struct UndoUnproven {
    /// Number of undos reported so far.
    undone: Option<u64>,
    /// Late ACKs since the last one.
    proofs: u64,
    /// Losses since the last one.
    losses: u64,
    /// Losses that were no longer remembered at the last one.
    forgotten: u64,
}

impl Detect for UndoUnproven {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        self.losses = self.losses.saturating_add(effects.lost.into());
        let proofs = effects.acked.map_or(0, |acked| acked.spurious);
        self.proofs = self.proofs.saturating_add(proofs);
        if effects.path {
            self.undone = None;
        }
        let EventData::RecoveryMetricsUpdated(metrics) = &event.data else {
            return;
        };
        let Some(undone) = metrics.spurious_events else {
            return;
        };
        let known = self.undone.replace(undone);
        if known.is_none_or(|known| undone <= known) {
            return;
        }
        let proofs = core::mem::take(&mut self.proofs);
        let losses = core::mem::take(&mut self.losses);
        let remembered = view.ledger.losses_forgotten();
        let known = core::mem::replace(&mut self.forgotten, remembered);
        let unseen = remembered.saturating_sub(known);
        // A packet that the ledger has forgotten may have been the proof.
        if proofs > 0 || unseen > 0 || view.ledger.in_flight().is_none() {
            return;
        }
        let at = view.now;
        let finding = Finding::new(Detector::UndoUnproven, at, at, Severity::Error)
            .with("lost since the previous undo", losses)
            .with("acknowledged later", proofs);
        out.push(finding);
    }

    fn finish(&mut self, _view: &View, _out: &mut Findings) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    /// A loss that is undone, after a late ACK of the packet or without one.
    fn undone(proven: bool) -> Script {
        let mut script = Script::new("cubic", 10);
        script.metrics(|metrics| metrics.spurious_events = Some(0));
        script.send(20).wait(10).lose(0).ack(1, 9);
        if proven {
            script.ack(0, 0);
        }
        script.metrics(|metrics| metrics.spurious_events = Some(1));
        script
    }

    #[test]
    fn undo_after_a_real_loss_is_found() {
        assert!(undone(false).finds(Detector::UndoUnproven));
    }

    #[test]
    fn undo_after_a_late_ack_causes_no_finding() {
        assert!(!undone(true).finds(Detector::UndoUnproven));
    }

    #[test]
    fn second_undo_needs_new_proof() {
        let mut script = undone(true);
        script.lose(12).ack(13, 19);
        script.metrics(|metrics| metrics.spurious_events = Some(2));
        assert!(script.finds(Detector::UndoUnproven));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::UndoUnproven);
    }
}
