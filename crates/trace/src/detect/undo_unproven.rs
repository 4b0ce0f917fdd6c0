//! A reduction is undone although nothing proves it wrong: since the last undo no
//! packet that had been declared lost was acknowledged after all.

use super::view::{News, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData};

#[derive(Debug, Default)]
pub(super) struct UndoUnproven {
    /// Undos told so far.
    undone: Option<u64>,
    /// Late ACKs since the last one.
    proofs: u64,
    /// Losses since the last one.
    losses: u64,
    /// Losses that were no longer remembered at the last one.
    forgotten: u64,
}

impl Detect for UndoUnproven {
    fn on_event(&mut self, view: &View, news: &News, event: &Event, out: &mut Findings) {
        self.losses = self.losses.saturating_add(news.lost.into());
        let proofs = news.acked.map_or(0, |acked| acked.spurious);
        self.proofs = self.proofs.saturating_add(proofs);
        if news.path {
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
        // What the ledger has forgotten may have been the proof.
        if proofs > 0 || unseen > 0 || view.ledger.in_flight().is_none() {
            return;
        }
        let at = view.now;
        let finding = Finding::new(Detector::UndoUnproven, at, at, Severity::Error)
            .with("lost since the undo before", losses)
            .with("acknowledged after all", proofs);
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
    fn an_undo_after_a_real_loss_is_seen() {
        assert!(undone(false).finds(Detector::UndoUnproven));
    }

    #[test]
    fn an_undo_after_a_late_ack_is_right() {
        assert!(!undone(true).finds(Detector::UndoUnproven));
    }

    #[test]
    fn one_proof_is_good_for_one_undo() {
        let mut script = undone(true);
        script.lose(12).ack(13, 19);
        script.metrics(|metrics| metrics.spurious_events = Some(2));
        assert!(script.finds(Detector::UndoUnproven));
    }

    #[test]
    fn a_healthy_transfer_is_passed_over() {
        assert_quiet_on_a_healthy_transfer(Detector::UndoUnproven);
    }
}
