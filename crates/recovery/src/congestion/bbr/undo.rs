//! Undoes the response to spurious losses (§5.5.11).

use crate::controller::{SendIndex, Spurious};

use super::Bbr;
use super::phase::Phase;

/// A phase that ended because of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probing {
    /// Startup.
    Startup,
    /// ProbeBW_UP.
    Up,
}

/// The state before a congestion event (§2.15).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// The boundary of the event.
    pub(super) event: Option<SendIndex>,
    /// The boundary of the event before.
    pub(super) boundary: SendIndex,
    /// BBR.undo_state.
    pub(super) was_probing: Option<Probing>,
    pub(super) bw_shortterm: u64,
    pub(super) inflight_shortterm: u64,
    pub(super) inflight_longterm: u64,
}

impl Bbr {
    /// SaveStateUponLoss() (§5.5.11.1), once per congestion event: by its later losses the
    /// first one has already changed the state.
    pub(super) fn save_state_upon_loss(&mut self, event: SendIndex) {
        self.save_cwnd();
        if self.undo.event.is_some_and(|saved| saved >= event) {
            return;
        }
        self.undo = Undo {
            event: Some(event),
            boundary: self.boundary,
            was_probing: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// Forgets the saved state: the congestion is confirmed and cannot be undone any more.
    pub(super) fn forget_undo(&mut self) {
        self.undo = Undo::default();
    }

    /// HandleSpuriousLossDetection() (§5.5.11.2).
    pub(super) fn handle_spurious_loss_detection(&mut self, event: &Spurious) {
        if self.undo.event != Some(event.event) {
            return;
        }
        let undo = core::mem::take(&mut self.undo);
        self.metrics.spurious_events += 1;
        self.recovering = false;
        // What else is lost of that flight begins an event of its own. No event has followed, or the
        // state of this one would not be saved any more.
        self.boundary = undo.boundary;
        self.restore_cwnd();
        self.loss_round.loss_seen = false;
        self.full_pipe.reset(0);
        self.bw_shortterm = self.bw_shortterm.max(undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        match undo.was_probing {
            Some(Probing::Startup) if self.phase != Phase::Startup => {
                self.full_pipe.reached = false;
                if self.phase != Phase::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(Probing::Up) if self.phase != Phase::Up => {
                if self.phase != Phase::ProbeRtt {
                    self.start_probe_bw_refill();
                }
            }
            Some(Probing::Startup | Probing::Up) | None => {}
        }
    }
}
