//! CE marks: "MUST treat any CE marks as congestion" (§3.6).
//!
//! The draft says no more. A round with marks counts as one with loss, and a probe ends. But data
//! that is marked is still delivered: the short-term bounds fall to what was delivered, and so
//! never below what fills the queue to where it marks. So each marked round also takes from the
//! bytes in flight, by the average share of marked packets (as DCTCP, RFC 8257 §3.3). A queue
//! that marks a packet now and then, as CoDel does, is answered mildly; one that marks every packet
//! is drained.
//!
//! A flow that is marked does not probe for the sake of Reno either (§5.3.3.8): a mark makes Reno
//! begin again, too. On short paths the flows would otherwise always be probing, and a probe
//! begins by forgetting the bounds.

use crate::controller::Congestion;

use super::Bbr;
use super::facts::Facts;

/// A share of all, in fixed point.
const ONE: u64 = 1 << 16;

/// Gain of the moving average: 2⁻⁴ (RFC 8257 §3.3).
const GAIN_SHIFT: u32 = 4;

/// The share of marked packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// Bytes acknowledged in this round.
    acked: u64,
    /// Bytes of packets marked in it.
    marked: u64,
    /// The average over rounds, in units of 1/`ONE`; 0 before the first round with marks, whose
    /// share it begins with.
    average: u64,
}

impl Marks {
    /// Ends a round. Returns whether there were marks in it.
    fn end_round(&mut self) -> bool {
        let marked = u128::from(self.marked.min(self.acked)) * u128::from(ONE);
        let share = u64::try_from(marked / u128::from(self.acked.max(1))).unwrap_or(ONE);
        self.average = if self.average == 0 {
            share
        } else {
            self.average - (self.average >> GAIN_SHIFT) + (share >> GAIN_SHIFT)
        };
        let marked = self.marked > 0;
        (self.acked, self.marked) = (0, 0);
        marked
    }

    /// Returns what a marked round leaves of the bytes in flight.
    fn reduced(self, inflight: u64) -> u64 {
        let kept = ONE - self.average.min(ONE);
        let kept = u128::from(inflight) * u128::from(kept) / u128::from(ONE);
        u64::try_from(kept).unwrap_or(u64::MAX)
    }
}

impl Bbr {
    /// Counts what an ACK acknowledges; at the end of a round, responds to its marks.
    pub(super) fn update_marks(&mut self, facts: &Facts) {
        if self.loss_round.started {
            let marked = self.marks.end_round();
            if marked && !self.phase.is_probing() {
                self.bound_inflight_by_marks();
                self.rounds.since_probe_up = 0;
            }
        }
        self.marks.acked = self.marks.acked.saturating_add(facts.newly_acked);
    }

    /// Reduces inflight_shortterm, from what was delivered in the round at most.
    fn bound_inflight_by_marks(&mut self) {
        let latest = self.loss_round.inflight_latest;
        let from = self.inflight_shortterm.min(self.cwnd).min(latest);
        self.inflight_shortterm = self.marks.reduced(from).max(self.min_pipe_cwnd());
    }

    /// Handles CE marks: the round counts as one with loss, and a probe ends. This happens once
    /// per event (RFC 9002 §7.3.2): later marks of the same flight come from the queue to which
    /// the flow has already responded, and would limit the rate of DOWN for the rest of the cycle.
    pub(super) fn handle_marks(&mut self, event: &Congestion, news: bool) {
        let marked = event.packets.saturating_mul(self.mds);
        self.marks.marked = self.marks.marked.saturating_add(marked);
        self.loss_round.note_marked(marked);
        if !news {
            return;
        }
        self.note_loss(event.next_index);
        // Marks cannot turn out to be spurious.
        self.forget_undo();
        if self.probe.is_sample {
            self.handle_inflight_too_high(event.largest_tx_in_flight, false, event.now);
            self.forget_undo();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_begins_with_the_first_share_and_moves_by_a_sixteenth() {
        let mut marks = Marks::default();
        let mut round = |acked, marked| {
            (marks.acked, marks.marked) = (acked, marked);
            (marks.end_round(), marks.average)
        };
        assert_eq!(round(10_000, 0), (false, 0));
        assert_eq!(round(10_000, 5_000), (true, ONE / 2));
        assert_eq!(round(10_000, 0), (false, ONE / 32 * 15));
        assert_eq!(
            round(10_000, 10_000),
            (true, ONE / 512 * 15 * 15 + ONE / 16)
        );
        // More marks than bytes, and no bytes at all.
        assert!(round(10, 1_000).1 <= ONE);
        assert!(round(0, u64::MAX).1 <= ONE);
    }
}
