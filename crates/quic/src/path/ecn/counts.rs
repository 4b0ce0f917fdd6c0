//! Counts of ECN marks in a packet number space: those sent, and those that the peer reports
//! (RFC 9000 §13.4.2.1).

use super::{EcnCounts, EcnFailure, Mark};
use crate::count::Count;

/// Counts of marks that were sent in a packet number space and reported by the peer, over
/// all paths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceEcn {
    sent_ect0: u64,
    sent_ect1: u64,
    pub(super) reported: EcnCounts,
}

/// The ECN data of an ACK frame. Only for frames that increase the largest acknowledged
/// number: others may be out of date and must not count (RFC 9000 §13.4.2.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnAck {
    /// The frame's counts, if it is of type 0x03.
    pub counts: Option<EcnCounts>,
    /// Packets of this path newly acknowledged that were sent as ECT(0).
    pub newly_acked_ect0: u64,
    /// The same for ECT(1).
    pub newly_acked_ect1: u64,
}

impl EcnAck {
    pub(super) fn newly_acked(&self) -> u64 {
        self.newly_acked_ect0.saturating_add(self.newly_acked_ect1)
    }
}

impl SpaceEcn {
    /// Checks the counts of an ACK frame. Returns by how much each grew.
    pub(super) fn on_report(&mut self, ack: &EcnAck) -> Result<EcnCounts, EcnFailure> {
        let marked = ack.newly_acked();
        let Some(counts) = ack.counts else {
            return if marked == 0 {
                Ok(EcnCounts::default())
            } else {
                Err(EcnFailure::NotReported)
            };
        };
        let old = self.reported;
        // Invalid counts are still the baseline of a later test.
        self.reported = counts;
        let growth = EcnCounts {
            ect0: counts
                .ect0
                .checked_sub(old.ect0)
                .ok_or(EcnFailure::Decreased)?,
            ect1: counts
                .ect1
                .checked_sub(old.ect1)
                .ok_or(EcnFailure::Decreased)?,
            ce: counts.ce.checked_sub(old.ce).ok_or(EcnFailure::Decreased)?,
        };
        let arrived0 = growth.ect0.saturating_add(growth.ce);
        let arrived1 = growth.ect1.saturating_add(growth.ce);
        let arrived = arrived0.saturating_add(growth.ect1);
        if arrived0 < ack.newly_acked_ect0 || arrived1 < ack.newly_acked_ect1 || arrived < marked {
            return Err(EcnFailure::Bleached);
        }
        let sent = self.sent_ect0.saturating_add(self.sent_ect1);
        if counts.ect0 > self.sent_ect0 || counts.ect1 > self.sent_ect1 || counts.ce > sent {
            return Err(EcnFailure::Remarked);
        }
        Ok(growth)
    }

    pub(super) fn on_sent(&mut self, mark: Mark) {
        match mark {
            Mark::NotEct => {}
            Mark::Ect0 => self.sent_ect0.count_one(),
            Mark::Ect1 => self.sent_ect1.count_one(),
        }
    }
}
