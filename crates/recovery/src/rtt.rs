//! Estimating the round-trip time (RFC 9002 §5).

use core::time::Duration;

use crate::time::{Instant, nanos};

/// Timer granularity (RFC 9002 §6.1.2, kGranularity).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);

/// Limit of samples in a row that are skipped as those of repeated ACKs. If a peer is
/// always that late, its delay has to be measured.
const MAX_SKIPPED_SAMPLES: u8 = 3;

/// A path's round-trip time.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    latest: Duration,
    smoothed: Duration,
    variance: Duration,
    min: Option<Duration>,
    first_sample: Option<Instant>,
    /// How much longer a packet is in flight than the newest one of the ACK that acknowledges it,
    /// on average, in nanoseconds: at most 4.3 s, of which a quarter of a round trip counts.
    waiting: u32,
    /// Samples skipped since the last one taken.
    skipped: u8,
}

impl Rtt {
    /// Creates an estimate without samples, which assumes `initial` (RFC 9002 §5.3,
    /// §6.2.2).
    pub(crate) fn new(initial: Duration) -> Self {
        Self {
            latest: initial,
            smoothed: initial,
            variance: initial / 2,
            min: None,
            first_sample: None,
            waiting: 0,
            skipped: 0,
        }
    }

    /// Returns the last sample; before the first one the initial RTT.
    #[must_use]
    pub const fn latest(&self) -> Duration {
        self.latest
    }

    /// Returns the exponentially weighted mean; before the first sample the initial RTT.
    #[must_use]
    pub const fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Returns how long a packet counts in flight, on average: the round trip, and the time that it
    /// waits for an ACK that acknowledges later ones, too. A window is delivered once in this time.
    /// At most a quarter more than the round trip, so that 5/4 of a window in this time is never
    /// less than a window in a round trip: where one ACK is for most of a window, what waits is
    /// what the pacer itself has spread.
    ///
    /// The newest round trip counts where it is shorter than the smoothed one: after a reduction
    /// the queue drains sooner than the mean tells.
    pub(crate) fn in_flight_time(&self) -> Duration {
        let smoothed = nanos(self.smoothed);
        let waiting = u64::from(self.waiting).min(smoothed / 4);
        Duration::from_nanos(smoothed.min(nanos(self.latest)).saturating_add(waiting))
    }

    /// Records how long ago the packets of the ACK that gave the last sample were sent, on average,
    /// in nanoseconds.
    pub(crate) fn on_mean_age(&mut self, age: u64) {
        let waited = age.saturating_sub(nanos(self.latest));
        let mean = (u64::from(self.waiting) * 7).saturating_add(waited) / 8;
        self.waiting = u32::try_from(mean).unwrap_or(u32::MAX);
    }

    /// Returns the mean deviation (rttvar).
    #[must_use]
    pub const fn variance(&self) -> Duration {
        self.variance
    }

    /// Returns the smallest sample. `None` before the first one, because a placeholder
    /// smaller than every sample would stay for ever.
    #[must_use]
    pub const fn min(&self) -> Option<Duration> {
        self.min
    }

    /// Returns whether any sample has been taken.
    #[must_use]
    pub const fn has_sample(&self) -> bool {
        self.first_sample.is_some()
    }

    /// Returns when the first sample was taken.
    pub(crate) const fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    /// Returns smoothed_rtt + max(4·rttvar, kGranularity): the PTO without the peer's
    /// delay and without backoff (RFC 9002 §6.2.1).
    #[must_use]
    pub fn pto(&self) -> Duration {
        self.smoothed
            .saturating_add(self.variance.saturating_mul(4).max(GRANULARITY))
    }

    /// Returns max(smoothed_rtt, latest_rtt), the base of the time threshold (RFC 9002
    /// §6.1.2).
    pub(crate) fn conservative(&self) -> Duration {
        self.smoothed.max(self.latest)
    }

    /// Replaces the initial RTT, for instance by the round trip of a Retry or
    /// of a PATH_CHALLENGE (RFC 9002 §6.2.2). No effect after a sample.
    pub(crate) fn set_initial(&mut self, initial: Duration) {
        if self.first_sample.is_none() {
            *self = Self::new(initial);
        }
    }

    /// Returns whether to skip a sample because the peer reports that it delayed the ACK
    /// for longer than its `max_ack_delay` and the probe timeout. Then the first ACK of the
    /// packet was lost, and a later one, sent in response to a probe, repeats it. RFC 9002
    /// §5.3 would count the wait as part of the path's RTT: after seconds of loss the next
    /// probe timeouts would last for seconds although the path is clear again.
    ///
    /// `latest` is the sample, `ack_delay` what the peer reports, before it is limited.
    pub(crate) fn skip_repeated_ack(
        &mut self,
        latest: Duration,
        ack_delay: Duration,
        max_ack_delay: Duration,
    ) -> bool {
        let repeat = self.has_sample()
            && ack_delay <= latest
            && ack_delay > max_ack_delay
            && ack_delay > max_ack_delay.saturating_add(self.pto())
            && self.skipped < MAX_SKIPPED_SAMPLES;
        if repeat {
            self.skipped += 1;
        }
        repeat
    }

    /// Takes a sample (RFC 9002 §5.3). `ack_delay` is what the peer reported,
    /// already limited to its max_ack_delay if the handshake is confirmed.
    pub(crate) fn sample(&mut self, latest: Duration, ack_delay: Duration, now: Instant) {
        self.latest = latest;
        self.skipped = 0;
        let Some(min) = self.min else {
            self.min = Some(latest);
            self.smoothed = latest;
            self.variance = latest / 2;
            self.first_sample = Some(now);
            return;
        };
        let min = min.min(latest);
        self.min = Some(min);
        let adjusted = if latest >= min.saturating_add(ack_delay) {
            latest - ack_delay
        } else {
            latest
        };
        // The deviation is measured from the mean before this sample, as in
        // appendix A.7 and RFC 6298 §2.3.
        let deviation = self.smoothed.abs_diff(adjusted);
        self.variance = (self.variance * 3 + deviation) / 4;
        self.smoothed = (self.smoothed * 7 + adjusted) / 8;
    }

    /// Resets the minimum to the latest sample after persistent congestion (RFC 9002 §5.2).
    pub(crate) fn on_persistent_congestion(&mut self) {
        if self.min.is_some() {
            self.min = Some(self.latest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const NOW: Instant = Instant::from_nanos(7);

    fn sampled(first: Duration) -> Rtt {
        let mut rtt = Rtt::new(MS * 333);
        rtt.sample(first, Duration::ZERO, NOW);
        rtt
    }

    #[test]
    fn initial_rtt_gives_a_pto_of_about_a_second() {
        let rtt = Rtt::new(MS * 333);
        assert_eq!(rtt.pto(), MS * 999);
        assert_eq!(rtt.min(), None);
        assert!(!rtt.has_sample());
    }

    #[test]
    fn first_sample_replaces_the_initial_rtt() {
        let mut rtt = Rtt::new(MS * 333);
        // The peer's delay does not apply to the first sample.
        rtt.sample(MS * 100, MS * 40, NOW);
        assert_eq!(rtt.smoothed(), MS * 100);
        assert_eq!(rtt.variance(), MS * 50);
        assert_eq!(rtt.min(), Some(MS * 100));
        assert_eq!(rtt.first_sample(), Some(NOW));
    }

    #[test]
    fn later_samples_move_smoothed_rtt_by_an_eighth() {
        let mut rtt = sampled(MS * 100);
        rtt.sample(MS * 180, Duration::ZERO, NOW);
        // rttvar = 3/4·50 + 1/4·|100 − 180|; smoothed = 7/8·100 + 1/8·180.
        assert_eq!(rtt.variance(), Duration::from_micros(57_500));
        assert_eq!(rtt.smoothed(), MS * 110);
        assert_eq!(rtt.latest(), MS * 180);
        assert_eq!(rtt.min(), Some(MS * 100));
    }

    #[test]
    fn packets_that_wait_for_an_ack_are_in_flight_for_longer_than_a_round_trip() {
        let mut rtt = sampled(MS * 100);
        assert_eq!(rtt.in_flight_time(), MS * 100);
        for (age, expected) in [(100, 100), (116, 102), (90, 101), (900, 125)] {
            rtt.on_mean_age(age * 1_000_000);
            let off = rtt.in_flight_time().abs_diff(MS * expected);
            assert!(off < MS, "{age}: {:?}", rtt.in_flight_time());
        }
    }

    #[test]
    fn in_flight_time_falls_at_once_and_rises_slowly() {
        let mut rtt = sampled(MS * 60);
        rtt.sample(MS * 30, Duration::ZERO, NOW);
        assert_eq!(rtt.in_flight_time(), MS * 30);
        rtt.sample(MS * 90, Duration::ZERO, NOW);
        assert_eq!(rtt.in_flight_time(), rtt.smoothed());
        assert!(rtt.smoothed() < MS * 62);
    }

    #[test]
    fn ack_delay_is_subtracted_from_the_sample() {
        let mut rtt = sampled(MS * 100);
        rtt.sample(MS * 140, MS * 24, NOW);
        assert_eq!(rtt.smoothed(), Duration::from_micros(102_000));
        assert_eq!(rtt.latest(), MS * 140);
    }

    #[test]
    fn ack_delay_leading_below_min_rtt_is_ignored() {
        let mut rtt = sampled(MS * 100);
        rtt.sample(MS * 120, MS * 21, NOW);
        assert_eq!(rtt.smoothed(), Duration::from_micros(102_500));
        // Exactly at the minimum it is subtracted.
        let mut rtt = sampled(MS * 100);
        rtt.sample(MS * 120, MS * 20, NOW);
        assert_eq!(rtt.smoothed(), MS * 100);
    }

    #[test]
    fn min_rtt_ignores_ack_delay() {
        let mut rtt = sampled(MS * 100);
        rtt.sample(MS * 90, MS * 30, NOW);
        assert_eq!(rtt.min(), Some(MS * 90));
    }

    #[test]
    fn min_rtt_is_reset_to_latest_sample_after_persistent_congestion() {
        let mut rtt = sampled(MS * 20);
        rtt.sample(MS * 300, Duration::ZERO, NOW);
        rtt.on_persistent_congestion();
        assert_eq!(rtt.min(), Some(MS * 300));
        let mut unsampled = Rtt::new(MS * 333);
        unsampled.on_persistent_congestion();
        assert_eq!(unsampled.min(), None, "the initial RTT does not count");
    }

    #[test]
    fn initial_rtt_can_be_replaced_only_before_the_first_sample() {
        let mut rtt = Rtt::new(MS * 333);
        rtt.set_initial(MS * 40);
        assert_eq!(rtt.pto(), MS * 120);
        rtt.sample(MS * 10, Duration::ZERO, NOW);
        rtt.set_initial(MS * 40);
        assert_eq!(rtt.smoothed(), MS * 10);
    }

    #[test]
    fn pto_is_at_least_the_timer_granularity() {
        let mut rtt = sampled(Duration::ZERO);
        rtt.sample(Duration::ZERO, Duration::ZERO, NOW);
        assert_eq!(rtt.pto(), GRANULARITY);
    }

    #[test]
    fn ack_delayed_longer_than_the_pto_is_not_sampled() {
        let mut rtt = sampled(MS * 20);
        assert_eq!(rtt.pto(), MS * 60);
        let late = |rtt: &mut Rtt, delay| rtt.skip_repeated_ack(MS * 1020, delay, MS * 25);
        assert!(!late(&mut rtt, MS * 85), "that is what a probe waits for");
        assert!(late(&mut rtt, MS * 86));
        assert!(!late(&mut rtt, MS * 1021), "longer than the round trip");
        assert!(
            !Rtt::new(MS * 20).skip_repeated_ack(MS * 1020, MS * 1000, MS * 25),
            "nothing is known of the path without a first sample"
        );
    }

    #[test]
    fn peer_with_constantly_late_acks_is_sampled_again() {
        let mut rtt = sampled(MS * 20);
        let mut taken = 0;
        for _ in 0..40 {
            if !rtt.skip_repeated_ack(MS * 1020, MS * 1000, MS * 25) {
                rtt.sample(MS * 1020, MS * 25, NOW);
                taken += 1;
            }
        }
        assert!(taken >= 10, "{taken}");
        assert!(rtt.pto() > MS * 1020, "{:?}", rtt.pto());
    }
}
