//! Spreading what the window allows over the round trip (RFC 9002 §7.7).
//!
//! One pacer for all controllers: credit in bytes, kept in billionths of a byte
//! so that rate (bytes per second) times time (nanoseconds) is exact and nothing
//! drifts. Trains leave as a whole: once the credit is used up, the gate stays
//! closed until a full train has come together.

use core::time::Duration;

use crate::congestion::initial_window;
use crate::time::{Instant, nanos};

/// Largest train: what one segmentation-offload call takes.
pub const MAX_TRAIN: u64 = 64 * 1024;

const BILLION: i128 = 1_000_000_000;

/// What the pacer hands out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes per second, at least 1.
    pub(crate) rate: u64,
    /// Bytes that leave at once.
    pub(crate) train: u64,
    /// Bytes that may come together while the sender is late or idle.
    pub(crate) depth: u64,
}

impl Shape {
    /// So many trains a second (1000: of 1 ms each, as the send_quantum of
    /// draft-ietf-ccwg-bbr §5.6.3), of two packets at least (so that one ACK
    /// answers them).
    ///
    /// The initial window (RFC 9002 §7.2) is also the longest burst of a path that has
    /// not carried more. `trusted` is a path that has delivered a packet sent under a window larger
    /// than the initial one; others get bursts up to that only. `measured` is a path with an
    /// RTT sample: before it, the rate is a guess and the initial window leaves
    /// in one burst (§7.7 allows it), so no handshake waits for a guess.
    ///
    /// The depth is a train and the time of another: timers fire late, and the
    /// rate must hold all the same.
    pub(crate) fn new(per_second: u64, rate: u64, mds: u64, trusted: bool, measured: bool) -> Self {
        let rate = rate.max(1);
        let burst = initial_window(mds);
        let slice = rate / per_second.max(1);
        let longest = if trusted { MAX_TRAIN } else { burst };
        let train = slice.min(longest).max(2 * mds);
        let depth = match (measured, trusted) {
            (false, _) => burst,
            (true, false) => (train + slice).min(burst),
            (true, true) => train + slice,
        };
        Self { rate, train, depth }
    }
}

/// A path's pacer.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Billionths of a byte; negative after packets that did not ask.
    credit: i128,
    /// Up to when the credit is counted.
    at: Instant,
    /// The credit was used up and a train has not come together since.
    gathering: bool,
}

impl Pacer {
    /// A new path may send its initial window at once.
    pub(crate) fn new(mds: u64, now: Instant) -> Self {
        Self {
            credit: i128::from(initial_window(mds)) * BILLION,
            at: now,
            gathering: false,
        }
    }

    /// Bytes that may leave now (at least `mds`), or when to ask again: later
    /// than `now`, and open then if nothing else changed. `room` is what the
    /// window allows, at least `mds`.
    pub(crate) fn ask(
        &mut self,
        shape: Shape,
        mds: u64,
        room: u64,
        now: Instant,
    ) -> Result<u64, Instant> {
        self.refill(shape, now);
        let train = shape.train.min(room);
        let needed = if self.gathering { train } else { mds };
        let missing = i128::from(needed) * BILLION - self.credit;
        if missing <= 0 {
            self.gathering = false;
            let bytes = u64::try_from(self.credit / BILLION).unwrap_or(0);
            return Ok(bytes.min(train));
        }
        self.gathering = true;
        let missing = (i128::from(train) * BILLION - self.credit).max(1);
        let wait = missing.unsigned_abs().div_ceil(u128::from(shape.rate));
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Err(self.at + Duration::from_nanos(wait))
    }

    fn refill(&mut self, shape: Shape, now: Instant) {
        let elapsed = nanos(now - self.at);
        self.at = self.at.max(now);
        let earned = i128::from(elapsed) * i128::from(shape.rate);
        self.credit = (self.credit + earned).min(i128::from(shape.depth) * BILLION);
    }

    /// Bytes left, asked for or not. Debt stops at a train's length: probes
    /// must not silence what follows them.
    pub(crate) fn charge(&mut self, bytes: u64) {
        let floor = -i128::from(MAX_TRAIN) * BILLION;
        self.credit = (self.credit - i128::from(bytes) * BILLION).max(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MDS: u64 = 1200;

    /// With trains of a millisecond.
    fn shape(rate: u64, mds: u64, trusted: bool, measured: bool) -> Shape {
        Shape::new(1_000, rate, mds, trusted, measured)
    }

    /// Sends whole packets for `time` whenever the gate is open, waking
    /// `lateness` after each deadline. Returns bytes sent after the first burst,
    /// the largest train and the number of wake-ups.
    fn run(rate: u64, time: Duration, lateness: Duration) -> (u64, u64, u64) {
        let shape = shape(rate, MDS, true, true);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        // Use up the first burst.
        pacer.charge(initial_window(MDS));
        let (mut now, mut sent, mut largest, mut wakes) = (Instant::ZERO, 0, 0, 0);
        while now < Instant::ZERO + time {
            match pacer.ask(shape, MDS, u64::MAX, now) {
                Ok(bytes) => {
                    let train = bytes / MDS * MDS;
                    assert!(train > 0);
                    pacer.charge(train);
                    largest = largest.max(train);
                    sent += train;
                }
                Err(until) => {
                    assert!(until > now, "a deadline in the past is a busy loop");
                    now = until + lateness;
                    wakes += 1;
                }
            }
        }
        (sent, largest, wakes)
    }

    #[test]
    fn ten_gigabits_per_second_are_paced_exactly() {
        let rate = 1_250_000_000;
        let (sent, largest, _) = run(rate, Duration::from_secs(1), Duration::ZERO);
        assert!(sent.abs_diff(rate) <= 2 * MAX_TRAIN, "{sent}");
        assert!(largest <= MAX_TRAIN);
    }

    /// Each deadline of ten gigabits is the instant, rounded up to a nanosecond,
    /// at which exactly so many bytes have been earned: for a whole second, from
    /// 1 ns after each train (the error of rounding up is not lost).
    #[test]
    fn deadlines_at_ten_gigabits_are_exact_to_the_nanosecond() {
        let rate = 1_250_000_000;
        let shape = shape(rate, MDS, true, true);
        assert_eq!(shape.train, MAX_TRAIN);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        pacer.charge(initial_window(MDS));
        let (mut now, mut sent) = (Instant::ZERO, 0_u64);
        while now < Instant::ZERO + Duration::from_secs(1) {
            let Err(until) = pacer.ask(shape, MDS, u64::MAX, now) else {
                panic!("open before the train is earned, at {now:?}");
            };
            sent += MAX_TRAIN;
            let exact = (u128::from(sent) * 1_000_000_000).div_ceil(u128::from(rate));
            assert_eq!(u128::from(until.as_nanos()), exact);
            let before = Instant::from_nanos(until.as_nanos() - 1);
            assert_eq!(pacer.clone().ask(shape, MDS, u64::MAX, before), Err(until));
            assert_eq!(pacer.ask(shape, MDS, u64::MAX, until), Ok(MAX_TRAIN));
            pacer.charge(MAX_TRAIN);
            now = until;
        }
        assert!(sent >= rate);
    }

    /// clamp(rate × 1 ms, 2 packets, 64 KB), and at most the initial window
    /// until the path has shown more.
    #[test]
    fn train_length_is_a_millisecond_of_rate_within_its_limits() {
        for mds in [1_200, 1_452, 8_952] {
            for rate in [
                1,
                8_000,
                2_399_000,
                2_400_000,
                10_000_000,
                65_536_000,
                1 << 40,
            ] {
                let slice = rate / 1_000;
                let trusted = shape(rate, mds, true, true).train;
                assert_eq!(trusted, slice.clamp(2 * mds, 65_536), "{rate} at {mds}");
                let fresh = shape(rate, mds, false, true).train;
                let most = initial_window(mds).min(65_536);
                assert_eq!(fresh, slice.clamp(2 * mds, most), "{rate} at {mds}");
            }
        }
    }

    #[test]
    fn sixty_four_kilobits_per_second_are_paced_exactly() {
        let rate = 8000;
        let (sent, largest, wakes) = run(rate, Duration::from_secs(1000), Duration::ZERO);
        assert!(sent.abs_diff(rate * 1000) <= 4 * MDS, "{sent}");
        assert_eq!(largest, 2 * MDS);
        assert!(wakes <= rate * 1000 / (2 * MDS) + 2);
    }

    #[test]
    fn rate_with_fractional_nanoseconds_does_not_drift() {
        let rate = 1_234_567;
        let (sent, _, _) = run(rate, Duration::from_secs(600), Duration::ZERO);
        assert!(sent.abs_diff(rate * 600) <= 4 * MDS, "{sent}");
    }

    #[test]
    fn timers_late_by_a_millisecond_do_not_reduce_the_rate() {
        for rate in [100_000, 12_500_000, 1_250_000_000] {
            let late = Duration::from_micros(950);
            let (sent, _, _) = run(rate, Duration::from_secs(10), late);
            let slack = 2 * MAX_TRAIN + rate / 100;
            assert!(sent + slack >= rate * 10, "{sent} of {}", rate * 10);
        }
    }

    #[test]
    fn trains_are_a_millisecond_of_rate() {
        let train = |rate| shape(rate, MDS, true, true).train;
        assert_eq!(train(1000), 2 * MDS);
        assert_eq!(train(10_000_000), 10_000);
        assert_eq!(train(1_000_000_000), MAX_TRAIN);
    }

    #[test]
    fn more_trains_per_second_make_shorter_trains() {
        let shape = Shape::new(4_000, 40_000_000, MDS, true, true);
        assert_eq!((shape.train, shape.depth), (10_000, 20_000));
        assert_eq!(Shape::new(0, 1, MDS, true, true).train, 2 * MDS);
    }

    #[test]
    fn bursts_stay_within_the_initial_window_on_an_unproven_path() {
        for rate in [1000, 10_000_000, 1_000_000_000] {
            let fresh = shape(rate, MDS, false, true);
            assert!(fresh.train <= initial_window(MDS));
            assert!(fresh.depth <= initial_window(MDS));
            assert!(fresh.depth >= fresh.train);
        }
    }

    #[test]
    fn first_flight_is_sent_without_pacing() {
        let shape = shape(2 * 12_000 * 3, MDS, false, false);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        let mut sent = 0;
        while let Ok(bytes) = pacer.ask(shape, MDS, 12_000 - sent, Instant::ZERO) {
            pacer.charge(bytes);
            sent += bytes;
            if sent + MDS > 12_000 {
                break;
            }
        }
        assert_eq!(sent, 12_000);
    }

    #[test]
    fn first_flight_after_idle_is_paced() {
        // 100 ms, a window of 120 kB, avoidance: 1.5 MB/s.
        let shape = shape(1_500_000, MDS, true, true);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        let now = Instant::ZERO + Duration::from_secs(60);
        let mut burst = 0;
        while let Ok(bytes) = pacer.ask(shape, MDS, 120_000 - burst, now) {
            pacer.charge(bytes);
            burst += bytes;
        }
        assert!(burst <= shape.depth, "{burst}");
    }

    #[test]
    fn small_packet_does_not_wait_for_a_full_train() {
        let shape = shape(24_000, MDS, false, true);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        assert!(pacer.ask(shape, MDS, 12_000, Instant::ZERO).is_ok());
        pacer.charge(300);
        assert!(pacer.ask(shape, MDS, 12_000, Instant::ZERO).is_ok());
    }

    #[test]
    fn gate_stays_closed_until_a_full_train_is_earned() {
        let shape = shape(10_000_000, MDS, true, true);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        pacer.charge(initial_window(MDS));
        let ask =
            |pacer: &mut Pacer, nanos| pacer.ask(shape, MDS, u64::MAX, Instant::from_nanos(nanos));
        let until = Err(Instant::from_nanos(1_000_000));
        assert_eq!(ask(&mut pacer, 0), until);
        // An ACK wakes the sender halfway: four packets would have credit.
        assert_eq!(ask(&mut pacer, 500_000), until);
        assert_eq!(ask(&mut pacer, 1_000_000), Ok(10_000));
    }

    #[test]
    fn debt_is_limited_to_one_train() {
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        for _ in 0..10_000 {
            pacer.charge(MDS);
        }
        let shape = shape(1_000_000, MDS, true, true);
        let until = pacer.ask(shape, MDS, 100_000, Instant::ZERO).unwrap_err();
        assert!(until <= Instant::ZERO + Duration::from_millis(100));
    }

    /// Probes that did not ask are paid for by what follows (RFC 9002 §7.7).
    #[test]
    fn debt_is_paid_back_before_the_next_train() {
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        pacer.charge(initial_window(MDS) + 10 * MDS);
        let shape = shape(1_000_000, MDS, true, true);
        let until = pacer.ask(shape, MDS, 100_000, Instant::ZERO).unwrap_err();
        // Ten packets and a train of two at a byte per microsecond.
        assert_eq!(until.as_nanos(), 12 * MDS * 1_000);
    }

    proptest! {
        #[test]
        fn gate_opens_at_the_returned_deadline(
            rate in 1_u64..2_000_000_000,
            mds in 1200_u64..9000,
            trusted: bool,
            steps in prop::collection::vec((0_u64..3_000_000, 0_u64..20_000, 1_u64..200), 1..60),
        ) {
            let shape = shape(rate, mds, trusted, true);
            let mut pacer = Pacer::new(mds, Instant::ZERO);
            let mut now = Instant::ZERO;
            for (wait, sent, packets) in steps {
                let room = mds * packets;
                match pacer.ask(shape, mds, room, now) {
                    Ok(bytes) => {
                        prop_assert!(bytes >= mds && bytes <= room && bytes <= shape.train);
                        pacer.charge(sent.min(bytes));
                    }
                    Err(until) => {
                        prop_assert!(until > now);
                        prop_assert!(pacer.clone().ask(shape, mds, room, until).is_ok());
                    }
                }
                now += Duration::from_nanos(wait);
            }
        }
    }
}
