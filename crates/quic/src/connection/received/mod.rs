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
    /// `None` while no number is missing below the last report that was acknowledged, nor arrived
    /// after later ones since: then `numbers` begins there.
    gaps: Option<Box<Gaps>>,
}

/// What is known of the numbers below the last acknowledged report, while some are missing or
/// were late.
#[derive(Debug)]
struct Gaps {
    /// The peer has an ACK frame that reported the numbers below, except for what is in
    /// `late_from` and `later_from`.
    reported_below: u64,
    /// Numbers from here on are reported again, because some of them arrived after they had
    /// been passed over, or did not fit into a frame. `u64::MAX` = none.
    late_from: u64,
    /// An ACK frame with this largest number or a higher one contains what was late.
    late_reported_at: u64,
    /// As `late_from`, for what has come to it since. It has its turn after that, or else where
    /// packets are late again and again no report would ever contain all that was late.
    later_from: u64,
    /// Numbers below were passed over at least three PTOs ago.
    old_below: u64,
    /// The highest number at `since`: it becomes `old_below`.
    passed_over: u64,
    since: Option<Instant>,
    /// Where the next turn of older ranges begins, if there are too many for a frame.
    turn: usize,
}

impl Gaps {
    fn new() -> Box<Self> {
        Box::new(Self {
            reported_below: 0,
            late_from: u64::MAX,
            late_reported_at: 0,
            later_from: u64::MAX,
            old_below: 0,
            passed_over: 0,
            since: None,
            turn: 0,
        })
    }

    /// Returns the lowest number that is reported.
    fn report_from(&self) -> u64 {
        let late = self.late_from.min(self.later_from);
        self.reported_below.min(late)
    }

    /// Reports the numbers from `from` on until an ACK frame that is sent from now on, after
    /// another packet than `max` has arrived, is known to have arrived.
    fn report_again(&mut self, from: u64, max: Option<u64>) {
        if self.late_from == u64::MAX {
            self.late_from = from;
            self.late_reported_at = max.map_or(0, |max| max.saturating_add(1));
        } else {
            self.later_from = self.later_from.min(from);
        }
    }

    /// Records that the peer has an ACK frame with this largest number; `max` is the highest
    /// number received.
    fn on_report_acked(&mut self, largest: u64, max: Option<u64>) {
        self.reported_below = self.reported_below.max(largest);
        if largest >= self.late_reported_at {
            self.late_from = u64::MAX;
            let later = core::mem::replace(&mut self.later_from, u64::MAX);
            self.report_again(later, max);
        }
    }
}

impl ReceivedPackets {
    pub(crate) fn new() -> Self {
        Self {
            numbers: RangeSet::new(MAX_RANGES),
            gaps: None,
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

    /// Records a number. If later ones have come, ACK frames may be on the way that report it
    /// missing, so that an acknowledgement of those says nothing of it.
    #[inline]
    pub(crate) fn insert(&mut self, number: u64) {
        let is_late = self.numbers.max().is_some_and(|max| number < max);
        if self.numbers.insert(number) && is_late {
            let gaps = self.gaps.get_or_insert_with(Gaps::new);
            gaps.report_again(number, self.numbers.max());
        }
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
        self.gaps.as_ref().map_or(0, |gaps| gaps.report_from())
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
        let turn = self.gaps.as_ref().map_or(0, |gaps| gaps.turn);
        let top = newest.saturating_sub(turn.checked_rem(older).unwrap_or(0));
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
        let gaps = self.gaps.get_or_insert_with(Gaps::new);
        gaps.report_again(from, self.numbers.max());
        let older = wanted.saturating_sub(NEWEST_REPORTED);
        let step = written.saturating_sub(NEWEST_REPORTED);
        gaps.turn = gaps
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
        let max = self.max();
        let is_complete = self.numbers.first_unseen(0) > largest;
        if is_complete
            && self
                .gaps
                .as_ref()
                .is_none_or(|gaps| gaps.late_from == u64::MAX)
        {
            self.gaps = None;
            self.numbers.remove_below(largest);
            return;
        }
        let gaps = self.gaps.get_or_insert_with(Gaps::new);
        gaps.on_report_acked(largest, max);
        let is_over = match gaps.since {
            Some(since) => now - since >= late_period(),
            None => true,
        };
        if is_over {
            gaps.since = Some(now);
            gaps.old_below = gaps.passed_over;
            gaps.passed_over = max.unwrap_or(0);
        }
        let forgotten = gaps.old_below.min(gaps.report_from());
        self.numbers.remove_below(forgotten);
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.numbers.release_memory();
    }

    /// Returns the allocated memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let gaps = self.gaps.as_ref().map_or(0, |_| size_of::<Gaps>());
        self.numbers.memory().saturating_add(gaps)
    }
}

#[cfg(test)]
mod tests;
