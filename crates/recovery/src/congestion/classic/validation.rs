//! The response to losses with a window from before a long pause (RFC 7661).

use crate::controller::{Ack, CongestionCause, Controller as _, SendIndex};
use crate::limit::Limit;
use crate::time::Instant;

use super::super::doubt::Doubt;
use super::super::window_adjustment::WindowAdjustment;
use super::Classic;

/// Whether the window is validated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Validation {
    doubt: Doubt,
    /// The end of the round trip that validates the window if nothing in it is lost.
    until: Option<SendIndex>,
}

impl Validation {
    pub(super) fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.doubt.on_limit(limit, now);
    }

    /// Handles an ACK; `growing` if there was no loss.
    pub(super) fn on_ack(&mut self, ack: &Ack<'_>, growing: bool) {
        if ack.window_used_bytes > 0 {
            self.doubt.on_measured(ack.now);
        }
        if !growing || !self.doubt.can_be_settled() {
            return;
        }
        if ack.largest_index >= *self.until.get_or_insert(ack.next_index) {
            self.settle();
        }
    }

    /// Ends the doubt.
    fn settle(&mut self) {
        self.doubt.settle();
        self.until = None;
    }
}

impl<A: WindowAdjustment> Classic<A> {
    /// At the end of a recovery in which `delivered` bytes were acknowledged, replaces the response
    /// to the loss of a window that was not validated by the one to a flight that the path has
    /// carried (RFC 7661 §4.4.1). The window is from before the pause, and β times it may be
    /// many times what the path carries now.
    pub(super) fn validate_window(&mut self, delivered: u64) {
        if !self.validation.doubt.can_be_settled() {
            return;
        }
        self.validation.settle();
        let before = self.adjustment.save();
        let response = self
            .adjustment
            .reduce(delivered, self.mds, CongestionCause::Loss);
        let response = response.max(self.min_window());
        match self.ssthresh {
            Some(ssthresh) if ssthresh > response => self.ssthresh = Some(response),
            Some(_) | None => self.adjustment.restore(before),
        }
    }
}
