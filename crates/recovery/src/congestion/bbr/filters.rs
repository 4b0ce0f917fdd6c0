//! The filters of the model: the largest rate of two cycles, the smallest RTT of ten
//! seconds, the largest aggregate of ten rounds.

use core::time::Duration;

use crate::rate::bytes_in;
use crate::time::Instant;

use super::gains::{MIN_RTT_FILTER_LEN, PROBE_RTT_INTERVAL};

/// Longest time for which a cycle of the max_bw filter takes samples. The cycles of ProbeBW
/// are shorter, unless a round trip takes seconds.
const MAX_BW_CYCLE: Duration = Duration::from_secs(10);

/// BBR.max_bw_filter (§5.5.3): the maxima of the current and of the previous ProbeBW cycle.
///
/// The draft ends a cycle only with the last ACKs of a probe. If something else comes between,
/// a ProbeRTT or the next probe, the cycle does not end, and a bandwidth from before a fall
/// stays. So here a cycle also ends by time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxBwFilter {
    previous: u64,
    current: u64,
    /// The time of the first sample in `current`.
    since: Instant,
}

impl MaxBwFilter {
    /// Returns BBR.max_bw in bytes per second; 0 before the first sample.
    pub(super) fn get(self) -> u64 {
        self.previous.max(self.current)
    }

    /// Adds a sample of the current cycle.
    pub(super) fn update(&mut self, rate: u64, now: Instant) {
        if self.current > 0 && now > self.since + MAX_BW_CYCLE {
            self.advance();
        }
        if self.current == 0 {
            self.since = now;
        }
        self.current = self.current.max(rate);
    }

    /// Forgets both cycles for a rate that was measured now.
    pub(super) fn replace(&mut self, rate: u64, now: Instant) {
        *self = Self {
            previous: 0,
            current: rate,
            since: now,
        };
    }

    /// AdvanceMaxBwFilter(): begins a new cycle. A cycle without a sample does not replace
    /// the previous one.
    pub(super) fn advance(&mut self) {
        if self.current > 0 {
            self.previous = core::mem::take(&mut self.current);
        }
    }
}

/// How long after a ProbeRTT samples of a short round trip may still postpone the next one, by
/// `PROBE_RTT_INTERVAL`.
const MAX_POSTPONED: Duration = Duration::from_secs(10);

/// BBR.min_rtt and the schedule of ProbeRTT (§5.3.4.3), which use the same samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    /// `None` = Infinity: no sample yet. There is never a placeholder.
    min: Option<Duration>,
    stamp: Instant,
    probe_min: Option<Duration>,
    probe_stamp: Instant,
    /// When the last ProbeRTT ended, or the path began.
    probed: Instant,
    probe_expired: bool,
}

impl MinRtt {
    /// Creates a filter without samples.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            min: None,
            stamp: now,
            probe_min: None,
            probe_stamp: now,
            probed: now,
            probe_expired: false,
        }
    }

    /// Returns BBR.min_rtt.
    pub(super) fn get(self) -> Option<Duration> {
        self.min
    }

    /// Returns BBR.probe_rtt_expired, as of the last update.
    pub(super) fn is_probe_due(self) -> bool {
        self.probe_expired
    }

    /// Schedules the next ProbeRTT, after one has been done.
    pub(super) fn schedule_next(&mut self, now: Instant) {
        self.probe_stamp = now;
        self.probed = now;
    }

    /// UpdateMinRTT() with the ACK's RTT sample, if it gave one.
    ///
    /// A lower sample, and one at most `slack` above the minimum, refreshes it, in the sense of
    /// §5.3.4.2: the queue was almost empty, and a ProbeRTT would not find out more. The minimum
    /// rises by neither, so that a series of such samples cannot raise it. But where many flows
    /// share a queue, or one neighbour fills it and leaves it again and again, all of them may be
    /// samples of the same standing queue. So they postpone a ProbeRTT until [`MAX_POSTPONED`]
    /// after the last one, unless the flow is application-limited: the queue is then not its own.
    pub(super) fn update(
        &mut self,
        sample: Option<Duration>,
        slack: Duration,
        app_limited: bool,
        now: Instant,
    ) {
        self.probe_expired = now > self.probe_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = sample {
            let may_postpone = app_limited || now <= self.probed + MAX_POSTPONED;
            let is_short = |slack: Duration| {
                self.probe_min
                    .is_none_or(|min| rtt <= min.saturating_add(slack))
            };
            if self.probe_expired || (may_postpone && is_short(slack)) {
                self.probe_stamp = now;
            }
            if self.probe_expired || is_short(Duration::ZERO) {
                self.probe_min = Some(rtt);
            }
        }
        let Some(probe_min) = self.probe_min else {
            return;
        };
        let expired = now > self.stamp + MIN_RTT_FILTER_LEN;
        if expired || self.min.is_none_or(|min| probe_min < min) {
            self.min = Some(probe_min);
            self.stamp = self.probe_stamp;
        }
    }
}

/// BBR.ExtraAckedFilterLen (§2.12).
const EXTRA_ACKED_ROUNDS: usize = 10;

/// BBR.extra_acked (§5.5.9): how much more than expected ACKs acknowledge at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtraAcked {
    interval_start: Instant,
    delivered: u64,
    /// The maximum of each of the last rounds, indexed by the round modulo their number.
    rounds: [u64; EXTRA_ACKED_ROUNDS],
    round: u64,
}

impl ExtraAcked {
    /// Creates a filter without samples.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            interval_start: now,
            delivered: 0,
            rounds: [0; EXTRA_ACKED_ROUNDS],
            round: 0,
        }
    }

    /// Restarts the interval after idling, when no ACKs were expected (§5.4.1).
    pub(super) fn restart(&mut self, now: Instant) {
        self.interval_start = now;
    }

    /// UpdateACKAggregation(): `acked` bytes were acknowledged in round `round`, while the
    /// path was expected to deliver `bw` bytes per second.
    pub(super) fn update(&mut self, acked: u64, bw: u64, cwnd: u64, round: u64, now: Instant) {
        let mut expected = bytes_in(bw, now - self.interval_start);
        if self.delivered <= expected {
            self.delivered = 0;
            self.interval_start = now;
            expected = 0;
        }
        self.delivered = self.delivered.saturating_add(acked);
        let extra = self.delivered.saturating_sub(expected).min(cwnd);
        self.enter(round);
        let slot = &mut self.rounds[slot(round)];
        *slot = extra.max(*slot);
    }

    /// Moves on to a round, and clears the slots of the rounds in between.
    fn enter(&mut self, round: u64) {
        let gone = round.saturating_sub(self.round);
        for step in 1..=gone.min(EXTRA_ACKED_ROUNDS as u64) {
            self.rounds[slot(self.round.wrapping_add(step))] = 0;
        }
        self.round = self.round.max(round);
    }

    /// Returns the maximum of ten rounds, or of the current round in Startup.
    pub(super) fn get(&self, full_bw_reached: bool) -> u64 {
        if full_bw_reached {
            self.rounds.iter().copied().max().unwrap_or(0)
        } else {
            self.rounds[slot(self.round)]
        }
    }
}

fn slot(round: u64) -> usize {
    // Smaller than the number of slots.
    (round % EXTRA_ACKED_ROUNDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn max_bw_spans_two_cycles() {
        let mut filter = MaxBwFilter::default();
        filter.update(100, at(0));
        filter.advance();
        filter.update(40, at(1_000));
        assert_eq!(filter.get(), 100);
        filter.advance();
        assert_eq!(filter.get(), 40, "the first cycle is out of the window");
        filter.update(60, at(2_000));
        assert_eq!(filter.get(), 60);
    }

    #[test]
    fn cycle_without_samples_keeps_max_bw() {
        let mut filter = MaxBwFilter::default();
        filter.update(100, at(0));
        for _ in 0..10 {
            filter.advance();
        }
        assert_eq!(filter.get(), 100);
    }

    #[test]
    fn max_bw_cycle_ends_by_time() {
        let mut filter = MaxBwFilter::default();
        filter.update(100, at(0));
        for now in (1_000..=10_000).step_by(1_000) {
            filter.update(10, at(now));
        }
        assert_eq!(filter.get(), 100);
        filter.update(10, at(10_001));
        assert_eq!(filter.get(), 100, "the previous cycle");
        filter.update(20, at(20_001));
        assert_eq!(filter.get(), 100);
        filter.update(10, at(20_002));
        assert_eq!(filter.get(), 20);
    }

    /// Time without samples, while the application was the limit, is not part of a cycle.
    #[test]
    fn max_bw_does_not_age_without_samples() {
        let mut filter = MaxBwFilter::default();
        filter.update(100, at(0));
        filter.advance();
        filter.update(10, at(60_000));
        filter.update(10, at(70_000));
        assert_eq!(filter.get(), 100);
    }

    #[test]
    fn min_rtt_is_unknown_until_sampled() {
        let mut filter = MinRtt::new(at(0));
        filter.update(None, MS, false, at(10));
        assert_eq!(filter.get(), None);
        filter.update(Some(MS * 30), Duration::ZERO, false, at(20));
        assert_eq!(filter.get(), Some(MS * 30));
    }

    #[test]
    fn min_rtt_falls_at_once_and_rises_after_ten_seconds() {
        let mut filter = MinRtt::new(at(0));
        filter.update(Some(MS * 30), Duration::ZERO, false, at(20));
        filter.update(Some(MS * 20), Duration::ZERO, false, at(40));
        assert_eq!(filter.get(), Some(MS * 20));
        filter.update(Some(MS * 50), Duration::ZERO, false, at(5_000));
        assert!(!filter.is_probe_due());
        // Five seconds after the last minimum a probe is due, and what it sees
        // is kept apart until the ten seconds are over.
        filter.update(Some(MS * 50), Duration::ZERO, false, at(5_041));
        assert!(filter.is_probe_due());
        assert_eq!(filter.get(), Some(MS * 20));
        filter.update(Some(MS * 60), Duration::ZERO, false, at(10_041));
        assert_eq!(filter.get(), Some(MS * 50), "what the probe saw");
    }

    #[test]
    fn sample_within_slack_refreshes_min_rtt_without_raising_it() {
        let mut filter = MinRtt::new(at(0));
        filter.update(Some(MS * 30), MS, false, at(20));
        filter.update(Some(MS * 31), MS, false, at(4_000));
        filter.update(Some(MS * 32), MS, false, at(8_000));
        assert!(!filter.is_probe_due());
        filter.update(None, MS, false, at(9_000));
        assert!(!filter.is_probe_due(), "five seconds after the renewal");
        assert_eq!(filter.get(), Some(MS * 30));
        filter.update(Some(MS * 31), MS, false, at(9_001));
        assert!(filter.is_probe_due(), "too late, and 32 ms was too much");
    }

    /// With many flows in one queue each sample is near the one before, and none is the
    /// path's own round trip.
    #[test]
    fn samples_beside_the_minimum_postpone_a_probe_for_a_limited_time() {
        let mut filter = MinRtt::new(at(0));
        filter.update(Some(MS * 30), MS, false, at(20));
        for now in (100..15_000).step_by(100) {
            filter.update(Some(MS * 30), MS, false, at(now));
            assert!(!filter.is_probe_due(), "{now} ms");
        }
        filter.update(Some(MS * 30), MS, false, at(15_100));
        assert!(filter.is_probe_due());
        // A ProbeRTT shows that the queue was empty.
        filter.schedule_next(at(15_200));
        for now in (15_300..30_000).step_by(100) {
            filter.update(Some(MS * 31), MS, false, at(now));
            assert!(!filter.is_probe_due(), "{now} ms");
        }
        for now in (30_100..60_000).step_by(100) {
            filter.update(Some(MS * 31), MS, true, at(now));
            assert!(!filter.is_probe_due(), "{now} ms, application-limited");
        }
    }

    /// Beside a neighbour that fills the queue and leaves it, again and again, some sample is
    /// lower than all before, and none is the path's own round trip.
    #[test]
    fn ever_lower_samples_postpone_a_probe_for_a_limited_time() {
        let mut filter = MinRtt::new(at(0));
        for (count, now) in (100..15_000).step_by(100).enumerate() {
            let lower = MS * 300 - MS * u32::try_from(count).expect("a small number");
            filter.update(Some(lower), MS / 2, false, at(now));
            assert!(!filter.is_probe_due(), "{now} ms");
            assert_eq!(filter.get(), Some(lower));
        }
        filter.update(Some(MS), MS / 2, false, at(15_100));
        assert!(filter.is_probe_due());
        assert_eq!(filter.get(), Some(MS));
    }

    #[test]
    fn extra_acked_is_the_excess_over_the_delivery_rate() {
        // 1 MB/s; every 10 ms come 10,000 bytes at once.
        let mut filter = ExtraAcked::new(at(0));
        for tick in 1..50 {
            filter.update(10_000, 1_000_000, 1 << 20, 0, at(tick * 10));
        }
        assert_eq!(filter.get(true), 10_000);
        // A steady flow of small ACKs is not an aggregate.
        let mut filter = ExtraAcked::new(at(0));
        for tick in 1..500 {
            filter.update(1_000, 1_000_000, 1 << 20, 0, at(tick));
        }
        assert_eq!(filter.get(true), 1_000);
    }

    #[test]
    fn extra_acked_is_bounded_by_the_window() {
        let mut filter = ExtraAcked::new(at(0));
        filter.update(1 << 30, 1_000, 5_000, 0, at(1));
        assert_eq!(filter.get(true), 5_000);
    }

    #[test]
    fn extra_acked_covers_ten_rounds_and_one_round_in_startup() {
        let mut filter = ExtraAcked::new(at(0));
        filter.update(9_000, 1_000_000, 1 << 20, 3, at(1));
        assert_eq!((filter.get(false), filter.get(true)), (9_000, 9_000));
        filter.update(1_000, 1_000_000, 1 << 20, 4, at(1_000));
        assert_eq!((filter.get(false), filter.get(true)), (1_000, 9_000));
        filter.update(1_000, 1_000_000, 1 << 20, 12, at(2_000));
        assert_eq!(filter.get(true), 9_000);
        filter.update(1_000, 1_000_000, 1 << 20, 13, at(3_000));
        assert_eq!(filter.get(true), 1_000);
        filter.update(1_000, 1_000_000, 1 << 20, 1_000_000, at(4_000));
        assert_eq!(filter.get(true), 1_000);
    }
}
