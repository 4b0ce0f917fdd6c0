//! The packet numbers received in a space, and which of them an ACK frame reports (RFC 9000
//! §13.2.3, §13.2.4).
//!
//! A gap is a packet that is lost or late. A late one is acknowledged when it comes, because
//! only that tells its sender that nothing was lost. So a gap outlives the acknowledgement of
//! the ACK frame that reported it: it is forgotten after three PTOs, as long as a sender
//! remembers a packet that it declared lost.

use core::ops::{Range, RangeInclusive};
use core::time::Duration;

use crate::time::Instant;
use crate::wire::RangeSet;

/// Most ranges kept per space: 4 KiB. Older ones are forgotten, and then count as received, so
/// that a peer cannot use memory by making gaps.
const MAX_RANGES: usize = 256;

/// Most ranges in an ACK frame. A peer of ours charges nothing for as many, even if they
/// acknowledge nothing new.
const MAX_REPORTED: usize = 64;

/// How many of those are the newest ranges if there are more than fit. The rest are older
/// ones, in turn.
const NEWEST_REPORTED: usize = 48;

/// Received packet numbers, and how much of them the peer knows.
#[derive(Debug)]
pub(crate) struct ReceivedPackets {
    numbers: RangeSet,
    /// The peer has an ACK frame that reported the numbers below, except for what is in
    /// `late_from`.
    reported_below: u64,
    /// Numbers from here on are reported again, because some of them arrived after they had
    /// been passed over, or did not fit into a frame. `u64::MAX` = none.
    late_from: u64,
    /// An ACK frame with this largest number or a higher one contains what was late.
    late_reported_at: u64,
    /// Numbers below were passed over at least three PTOs ago.
    old_below: u64,
    /// The highest number at `since`: it becomes `old_below`.
    passed_over: u64,
    since: Option<Instant>,
    /// Where the next turn of older ranges begins, if there are too many for a frame.
    turn: usize,
}

impl ReceivedPackets {
    pub(crate) fn new() -> Self {
        Self {
            numbers: RangeSet::new(MAX_RANGES),
            reported_below: 0,
            late_from: u64::MAX,
            late_reported_at: 0,
            old_below: 0,
            passed_over: 0,
            since: None,
            turn: 0,
        }
    }

    /// Returns whether a number was received, or is so old that it counts as received.
    #[inline]
    pub(crate) fn is_seen(&self, number: u64) -> bool {
        self.numbers.is_seen(number)
    }

    /// Returns the lowest number from `from` on that was not received.
    pub(crate) fn first_unseen(&self, from: u64) -> u64 {
        self.numbers.first_unseen(from)
    }

    /// Returns the highest number received.
    #[inline]
    pub(crate) fn max(&self) -> Option<u64> {
        self.numbers.max()
    }

    /// Records a number.
    #[inline]
    pub(crate) fn insert(&mut self, number: u64) {
        if self.numbers.insert(number) && number < self.reported_below {
            self.report_again(number);
        }
    }

    /// Reports the numbers from `from` on until an ACK frame that is sent from now on, after
    /// another packet has arrived, is known to have arrived.
    fn report_again(&mut self, from: u64) {
        self.late_from = self.late_from.min(from);
        self.late_reported_at = self.max().map_or(0, |max| max.saturating_add(1));
    }

    /// Returns the ranges that the next ACK frame reports, in its order: the newest first.
    pub(crate) fn ranges_to_report(&self) -> impl Iterator<Item = RangeInclusive<u64>> + Clone {
        let from = self.report_from();
        let (newest, older) = self.selection(from);
        self.numbers
            .descending(newest)
            .chain(self.numbers.descending(older))
            .map(move |range| from.max(*range.start())..=*range.end())
    }

    /// Returns the lowest number that is reported.
    fn report_from(&self) -> u64 {
        self.reported_below.min(self.late_from)
    }

    /// Returns the ranges to report, by index: the newest, and some of the older ones if there
    /// are too many.
    fn selection(&self, from: u64) -> (Range<usize>, Range<usize>) {
        let all = self.numbers.indices_from(from);
        if all.len() <= MAX_REPORTED {
            return (all, 0..0);
        }
        let newest = all.end.saturating_sub(NEWEST_REPORTED);
        let older = all.len().saturating_sub(NEWEST_REPORTED);
        let top = newest.saturating_sub(self.turn.checked_rem(older).unwrap_or(0));
        let bottom = top.saturating_sub(MAX_REPORTED - NEWEST_REPORTED);
        (newest..all.end, bottom.max(all.start)..top)
    }

    /// Records that an ACK frame with the first `written` of
    /// [`ranges_to_report`](Self::ranges_to_report) was sent.
    pub(crate) fn on_reported(&mut self, written: usize) {
        let from = self.report_from();
        let wanted = self.numbers.indices_from(from).len();
        if written >= wanted {
            return;
        }
        self.report_again(from);
        let older = wanted.saturating_sub(NEWEST_REPORTED);
        let step = written.saturating_sub(NEWEST_REPORTED);
        self.turn = self
            .turn
            .saturating_add(step)
            .checked_rem(older)
            .unwrap_or(0);
    }

    /// Handles the acknowledgement of an ACK frame with this largest number.
    /// `late_period` returns the time that a late packet may take, three PTOs.
    pub(crate) fn on_report_acked(
        &mut self,
        largest: u64,
        now: Instant,
        late_period: impl FnOnce() -> Duration,
    ) {
        self.reported_below = self.reported_below.max(largest);
        if largest >= self.late_reported_at {
            self.late_from = u64::MAX;
        }
        let is_over = match self.since {
            Some(since) => now - since >= late_period(),
            None => true,
        };
        if is_over {
            self.since = Some(now);
            self.old_below = self.passed_over;
            self.passed_over = self.max().unwrap_or(0);
        }
        self.numbers
            .remove_below(self.old_below.min(self.reported_below));
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.numbers.release_memory();
    }

    /// Returns the allocated memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.numbers.memory()
    }
}

#[cfg(test)]
#[path = "received_tests.rs"]
mod tests;
