//! What a path carries, for a later connection over it (RFC 9959 §3.1).
//!
//! The largest delivery rate of the last eight to sixteen round trips, times the smallest round
//! trip. A window would not do: it may hold a queue, the overshoot of slow start, or more than
//! the application ever sent (§4.1).

use crate::congestion::initial_window;
use crate::controller::{SavedPath, SendIndex};
use crate::rate::{RateSample, bytes_in};
use crate::rtt::Rtt;

/// Round trips of a cycle. The maximum is taken over this cycle and the one before.
const CYCLE_ROUNDS: u32 = 8;
/// Initial windows below which a path is not worth remembering (RFC 9959 §3.1).
const LEAST_WINDOWS: u64 = 4;

/// A path's delivery rates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacity {
    /// Bytes per second: the largest of the cycle before, and of this one.
    before: u64,
    rate: u64,
    /// A sample of this cycle was not limited by the application.
    measured: bool,
    round_end: SendIndex,
    rounds: u32,
}

impl Capacity {
    /// Handles an ACK whose newest packet is `largest`; the next packet sent will be `next`.
    pub(crate) fn on_ack(
        &mut self,
        sample: Option<&RateSample>,
        largest: SendIndex,
        next: SendIndex,
    ) {
        if let Some(sample) = sample {
            // What was sent for want of more data shows no limit, but that it arrived.
            self.measured |= !sample.app_limited;
            self.rate = self.rate.max(sample.delivery_rate);
        }
        if largest < self.round_end {
            return;
        }
        self.round_end = next;
        self.rounds += 1;
        if self.rounds < CYCLE_ROUNDS {
            return;
        }
        self.rounds = 0;
        // A cycle without a measurement replaces nothing.
        self.before = match self.measured {
            true => self.rate,
            false => self.rate.max(self.before),
        };
        self.rate = 0;
        self.measured = false;
    }

    /// Returns what to save, if it is enough to be of use.
    pub(crate) fn to_save(self, rtt: &Rtt, mds: u64) -> Option<SavedPath> {
        let rtt = rtt.min()?;
        let capacity = bytes_in(self.rate.max(self.before), rtt);
        let least = initial_window(mds).saturating_mul(LEAST_WINDOWS);
        (capacity >= least).then_some(SavedPath { capacity, rtt })
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::time::Instant;

    fn rtt(ms: u64) -> Rtt {
        let mut rtt = Rtt::new(Duration::from_millis(333));
        let sample = Duration::from_millis(ms);
        rtt.sample(sample, Duration::ZERO, Instant::ZERO);
        rtt
    }

    fn sample(rate: u64, app_limited: bool) -> RateSample {
        RateSample {
            delivery_rate: rate,
            app_limited,
            ..RateSample::default()
        }
    }

    /// One round trip with one sample.
    fn round(capacity: &mut Capacity, rate: u64, app_limited: bool) {
        let next = capacity.round_end + 1;
        capacity.on_ack(Some(&sample(rate, app_limited)), capacity.round_end, next);
    }

    fn rounds(capacity: &mut Capacity, count: u32, rate: u64, app_limited: bool) {
        (0..count).for_each(|_| round(capacity, rate, app_limited));
    }

    fn bytes(capacity: Capacity) -> Option<u64> {
        capacity
            .to_save(&rtt(100), 1_200)
            .map(|saved| saved.capacity)
    }

    #[test]
    fn capacity_is_the_delivery_rate_over_the_smallest_round_trip() {
        let mut capacity = Capacity::default();
        round(&mut capacity, 2_000_000, false);
        round(&mut capacity, 1_500_000, false);
        let saved = capacity.to_save(&rtt(100), 1_200).unwrap();
        assert_eq!(saved.capacity, 200_000);
        assert_eq!(saved.rtt, Duration::from_millis(100));
    }

    #[test]
    fn less_than_four_initial_windows_are_not_saved() {
        for (rate, saved) in [(479_990, None), (480_000, Some(48_000))] {
            let mut capacity = Capacity::default();
            round(&mut capacity, rate, false);
            assert_eq!(bytes(capacity), saved, "{rate}");
        }
        assert_eq!(bytes(Capacity::default()), None);
    }

    #[test]
    fn slower_path_is_known_after_two_cycles() {
        let mut capacity = Capacity::default();
        rounds(&mut capacity, 8, 8_000_000, false);
        rounds(&mut capacity, 7, 1_000_000, false);
        assert_eq!(bytes(capacity), Some(800_000));
        round(&mut capacity, 1_000_000, false);
        assert_eq!(bytes(capacity), Some(100_000));
    }

    #[test]
    fn more_acks_of_one_round_end_no_cycle() {
        let mut capacity = Capacity::default();
        rounds(&mut capacity, 8, 8_000_000, false);
        round(&mut capacity, 1_000_000, false);
        let within = capacity.round_end - 1;
        for _ in 0..20 {
            capacity.on_ack(Some(&sample(1_000_000, false)), within, within + 2);
        }
        assert_eq!(bytes(capacity), Some(800_000));
    }

    #[test]
    fn application_limited_samples_raise_the_capacity_but_do_not_lower_it() {
        let mut capacity = Capacity::default();
        rounds(&mut capacity, 8, 2_000_000, false);
        rounds(&mut capacity, 40, 1_000, true);
        assert_eq!(bytes(capacity), Some(200_000));
        round(&mut capacity, 3_000_000, true);
        assert_eq!(bytes(capacity), Some(300_000));
    }
}
