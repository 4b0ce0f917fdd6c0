//! SEARCH: leaving slow start when less arrives than was sent a round trip before
//! (draft-chung-ccwg-search-09).
//!
//! In slow start what is acknowledged now was sent a round trip ago. Behind a bottleneck that is
//! full it is less, whatever the round-trip time does: it may vary on its own, as it does over
//! satellites and radio. So the bytes acknowledged in a window of 3.5 round trips are compared
//! with those sent in the window one round trip earlier, and slow start ends if a share of
//! [`THRESHOLD`] is missing.
//!
//! ```text
//! bins of 0.35 RTT    sent        |----------W----------|
//!                     acknowledged     1 RTT    |----------W----------|
//!                                                                     now
//! ```
//!
//! Time is divided into bins, and the sums are kept for the end of each, so that an ACK costs a
//! comparison and a bin a subtraction. The window is lowered afterwards to what arrived in a
//! round trip, because detection takes about two of them, in which slow start has gone on.

use core::time::Duration;

use crate::time::{Instant, nanos};

/// The window in hundredths of the first round trip: `WINDOW_SIZE` is 3.5 of them (draft §3).
const WINDOW_HUNDREDTHS: u64 = 350;
/// `W`, the bins of a window (draft §3).
const BINS: usize = 10;
/// `EXTRA_BINS`: how far a round trip may reach back, in bins, before nothing can be compared
/// (draft §3). That is 5.25 times the first round trip.
const EXTRA_BINS: usize = 15;
/// `THRESH` in hundredths: the share of what was sent that may be missing (draft §3).
const THRESHOLD: u128 = 26;

/// Sums for the ends of a window's bins, both ends included.
const ACKED: usize = BINS + 1;
/// The same for the window before, which is interpolated, for which one bin more is needed.
const SENT: usize = ACKED + EXTRA_BINS;

/// What was sent and what arrived in the first slow start.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    sent: u64,
    acked: u64,
    /// `None` until there is an RTT sample.
    timeline: Option<Timeline>,
}

/// The bins.
#[derive(Clone, Debug)]
struct Timeline {
    /// The length of a bin, in nanoseconds.
    bin: u64,
    /// The last RTT sample.
    rtt: Duration,
    /// When the present bin ends.
    end: Instant,
    /// Bins that ended so far.
    ended: usize,
    /// Bytes acknowledged by the end of a bin, as a ring.
    acked: [u64; ACKED],
    /// Bytes sent by the end of a bin, as a ring.
    sent: [u64; SENT],
}

impl Search {
    /// Records a packet sent.
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// Records what an ACK acknowledges.
    pub(super) fn on_acked(&mut self, bytes: u64) {
        self.acked = self.acked.saturating_add(bytes);
    }

    /// Handles an ACK in slow start, after [`on_acked`](Self::on_acked). Returns, if slow start
    /// is to end, the bytes that the path holds without a queue.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        rtt: Option<Duration>,
        min_rtt: Duration,
    ) -> Option<u64> {
        let Some(timeline) = &mut self.timeline else {
            self.timeline = rtt.map(|rtt| Timeline::new(now, rtt, self.sent, self.acked));
            return None;
        };
        timeline.rtt = rtt.unwrap_or(timeline.rtt);
        if now < timeline.end {
            return None;
        }
        let passed = (nanos(now - timeline.end) / timeline.bin).saturating_add(1);
        // What is known is of the time before a pause, and so is the length of the bins.
        let Some(passed) = usize::try_from(passed).ok().filter(|n| *n <= BINS) else {
            self.timeline = Some(Timeline::new(now, timeline.rtt, self.sent, self.acked));
            return None;
        };
        timeline.end_bins(passed, self.sent, self.acked);
        timeline.is_full().then(|| timeline.capacity(min_rtt))
    }
}

impl Timeline {
    fn new(now: Instant, rtt: Duration, sent: u64, acked: u64) -> Self {
        let window = nanos(rtt).saturating_mul(WINDOW_HUNDREDTHS) / 100;
        let bin = (window / BINS as u64).max(1);
        Self {
            bin,
            rtt,
            end: now + Duration::from_nanos(bin),
            ended: 0,
            acked: [acked; ACKED],
            sent: [sent; SENT],
        }
    }

    /// Ends `passed` bins. Those in which no ACK came are empty: what was sent and acknowledged
    /// in them is known at the end of the last one only.
    fn end_bins(&mut self, passed: usize, sent: u64, acked: u64) {
        let (sent_before, acked_before) = (self.sent_by(self.ended), self.acked_by(self.ended));
        for n in 1..passed {
            self.sent[(self.ended + n) % SENT] = sent_before;
            self.acked[(self.ended + n) % ACKED] = acked_before;
        }
        self.ended += passed;
        self.end += Duration::from_nanos(self.bin).saturating_mul(passed as u32);
        self.sent[self.ended % SENT] = sent;
        self.acked[self.ended % ACKED] = acked;
    }

    fn sent_by(&self, bin: usize) -> u64 {
        self.sent[bin % SENT]
    }

    fn acked_by(&self, bin: usize) -> u64 {
        self.acked[bin % ACKED]
    }

    /// Bytes sent in the window that ends at the end of a bin.
    fn sent_until(&self, bin: usize) -> u128 {
        u128::from(self.sent_by(bin) - self.sent_by(bin - BINS))
    }

    /// Returns whether too little arrived in the last window of what was sent in the window one
    /// round trip before.
    fn is_full(&self) -> bool {
        let rtt = nanos(self.rtt);
        let back = usize::try_from(rtt / self.bin).unwrap_or(usize::MAX);
        // Both windows have to be known, and one bin before the earlier one.
        if back >= EXTRA_BINS || self.ended < back + BINS + 1 {
            return false;
        }
        let acked = u128::from(self.acked_by(self.ended) - self.acked_by(self.ended - BINS));
        // The earlier window ends within a bin.
        let (bin, within) = (u128::from(self.bin), u128::from(rtt % self.bin));
        let end = self.ended - back;
        let sent = self.sent_until(end) * (bin - within) + self.sent_until(end - 1) * within;
        let sent = sent / bin;
        sent > 0 && sent.saturating_sub(acked) * 100 >= sent * THRESHOLD
    }

    /// Returns what arrived in the last bins that together are at least as long as the first
    /// round trip, scaled to `min_rtt`: what the path holds without a queue.
    fn capacity(&self, min_rtt: Duration) -> u64 {
        let bins = (BINS * 100).div_ceil(WINDOW_HUNDREDTHS as usize);
        let acked = u128::from(self.acked_by(self.ended) - self.acked_by(self.ended - bins));
        let took = u128::from(self.bin) * bins as u128;
        let scaled = acked * u128::from(nanos(min_rtt)) / took;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
