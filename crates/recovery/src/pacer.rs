//! Pacing: spreading the window over the round trip (RFC 9002 §7.7).
//!
//! All controllers use this pacer. It earns credit in bytes, counted in billionths of a
//! byte so that rate (bytes per second) times time (nanoseconds) is exact and does not
//! drift. Packets are sent in trains: once the credit is used up, the gate stays closed
//! until the credit for a full train has been earned.

use core::time::Duration;

use crate::congestion::initial_window;
use crate::rate::NANOS;
use crate::time::{Instant, nanos};

/// Longest train in bytes: what one call with segmentation offload takes (and the largest
/// send quantum of draft-ietf-ccwg-bbr §5.6.3).
pub(crate) const MAX_TRAIN: u64 = 64 * 1024;

/// Datagrams of the shortest train: one ACK acknowledges two (RFC 9000 §13.2.2).
const MIN_TRAIN_DATAGRAMS: u64 = 2;

/// Trains a second on a path with a queue that marks: of 250 µs
/// (draft-briscoe-iccrg-prague-congestion-control).
const MARKED_TRAINS: u64 = 4_000;

/// Datagrams from which on a train stays as long as it is on a path that marks. Where a
/// millisecond is that many, a flow is not held at its minimum by its own trains, and shorter ones
/// cost more than they gave: ten flows on 1 Gbit/s had 93 % of it instead of 95 (NewReno), and
/// shares of BBR flows differed more.
const LONG_TRAIN_DATAGRAMS: u64 = 4;

const BILLION: i128 = NANOS as i128;

/// Returns the length of the shortest train in bytes.
pub(crate) fn min_train(mds: u64) -> u64 {
    mds.saturating_mul(MIN_TRAIN_DATAGRAMS)
}

/// Returns the length of a train in bytes, if the rate (bytes per second) is divided into
/// `per_second` trains: at most `longest`, and at least [`min_train`].
pub(crate) fn train_bytes(rate: u64, per_second: u64, longest: u64, mds: u64) -> u64 {
    let slice = rate / per_second.max(1);
    slice.min(longest).max(min_train(mds))
}

/// The pacing rate, and the bursts that the pacer allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pacing {
    /// Bytes per second, at least 1.
    pub(crate) rate: u64,
    /// Bytes that are sent at once.
    pub(crate) train: u64,
    /// Most credit in bytes that is earned while the sender is late or idle.
    pub(crate) depth: u64,
}

impl Pacing {
    /// Divides the rate into `per_second` trains of at least two packets. 1,000 trains of 1 ms
    /// correspond to the send_quantum of draft-ietf-ccwg-bbr §5.6.3.
    ///
    /// `trusted` is a path that has delivered a packet sent under a window larger than the
    /// initial one. On other paths the initial window (RFC 9002 §7.2) is also the longest
    /// burst. `measured` is a path with an RTT sample. Before the first one the rate is a
    /// guess, and the initial window is sent in one burst (§7.7 allows it), so that the
    /// handshake is not delayed.
    ///
    /// The depth is a train and what is earned in the time of another, so that the rate is
    /// kept although timers fire late.
    pub(crate) fn new(per_second: u64, rate: u64, mds: u64, trusted: bool, measured: bool) -> Self {
        let rate = rate.max(1);
        let burst = initial_window(mds);
        let slice = rate / per_second.max(1);
        let longest = if trusted { MAX_TRAIN } else { burst };
        let train = train_bytes(rate, per_second, longest, mds);
        let depth = match (measured, trusted) {
            (false, _) => burst,
            (true, false) => (train + slice).min(burst),
            (true, true) => train + slice,
        };
        Self { rate, train, depth }
    }

    /// Shortens short trains for a queue that marks: to 250 µs, and to one datagram where that
    /// is less. A train of two whose second datagram waits for the first is marked by a queue
    /// that marks earlier than that, whatever the window: it stays at its minimum for ever.
    pub(crate) fn for_marking_queue(self, mds: u64) -> Self {
        if self.train >= mds.saturating_mul(LONG_TRAIN_DATAGRAMS) {
            return self;
        }
        let slice = self.rate / MARKED_TRAINS;
        let train = self.train.min(slice.max(mds));
        Self {
            train,
            depth: self.depth.min(train + slice),
            ..self
        }
    }
}

/// A path's pacer.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// In billionths of a byte; negative after packets that were sent without asking.
    credit: i128,
    /// The time up to which credit was earned.
    at: Instant,
    /// The credit was used up, and that of a full train has not been earned since.
    waiting_for_train: bool,
}

impl Pacer {
    /// Creates the pacer of a new path, which may send its initial window at once.
    pub(crate) fn new(mds: u64, now: Instant) -> Self {
        Self {
            credit: i128::from(initial_window(mds)) * BILLION,
            at: now,
            waiting_for_train: false,
        }
    }

    /// Returns the bytes that may be sent now (at least `mds`), or as an error when to ask
    /// again: later than `now`, and successful then if nothing else changed. `room` is what
    /// the window allows, at least `mds`.
    pub(crate) fn request(
        &mut self,
        pacing: Pacing,
        mds: u64,
        room: u64,
        now: Instant,
    ) -> Result<u64, Instant> {
        self.refill(pacing, now);
        let train = pacing.train.min(room);
        let needed = if self.waiting_for_train { train } else { mds };
        let whole = i128::from(train) * BILLION;
        if self.credit >= i128::from(needed) * BILLION {
            self.waiting_for_train = false;
            // What is less than a train fits 64 bits, whose division takes a fraction of the time.
            let bytes = match u64::try_from(self.credit) {
                Ok(credit) if self.credit < whole => credit / NANOS,
                _ => train,
            };
            return Ok(bytes);
        }
        self.waiting_for_train = true;
        let missing = (whole - self.credit).max(1);
        let wait = missing.unsigned_abs().div_ceil(u128::from(pacing.rate));
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Err(self.at + Duration::from_nanos(wait))
    }

    fn refill(&mut self, pacing: Pacing, now: Instant) {
        let elapsed = nanos(now - self.at);
        self.at = self.at.max(now);
        let earned = i128::from(elapsed) * i128::from(pacing.rate);
        self.credit = (self.credit + earned).min(i128::from(pacing.depth) * BILLION);
    }

    /// Subtracts bytes sent, allowed or not. Debt is limited to the longest train, so that
    /// probes do not block what follows them for long.
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
    fn pacing(rate: u64, mds: u64, trusted: bool, measured: bool) -> Pacing {
        Pacing::new(1_000, rate, mds, trusted, measured)
    }

    /// Sends whole packets for `time` whenever the gate is open, waking
    /// `lateness` after each deadline. Returns bytes sent after the first burst,
    /// the largest train and the number of wake-ups.
    fn run(rate: u64, time: Duration, lateness: Duration) -> (u64, u64, u64) {
        let pacing = pacing(rate, MDS, true, true);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        // Use up the first burst.
        pacer.charge(initial_window(MDS));
        let (mut now, mut sent, mut largest, mut wakes) = (Instant::ZERO, 0, 0, 0);
        while now < Instant::ZERO + time {
            match pacer.request(pacing, MDS, u64::MAX, now) {
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

    /// At ten gigabits per second, for a whole second, each deadline is the instant at which a
    /// train has been earned, rounded up to a nanosecond; the rounding error does not add up.
    #[test]
    fn deadlines_at_ten_gigabits_are_exact_to_the_nanosecond() {
        let rate = 1_250_000_000;
        let pacing = pacing(rate, MDS, true, true);
        assert_eq!(pacing.train, MAX_TRAIN);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        pacer.charge(initial_window(MDS));
        let (mut now, mut sent) = (Instant::ZERO, 0_u64);
        while now < Instant::ZERO + Duration::from_secs(1) {
            let Err(until) = pacer.request(pacing, MDS, u64::MAX, now) else {
                panic!("open before the train is earned, at {now:?}");
            };
            sent += MAX_TRAIN;
            let exact = (u128::from(sent) * 1_000_000_000).div_ceil(u128::from(rate));
            assert_eq!(u128::from(until.as_nanos()), exact);
            let before = Instant::from_nanos(until.as_nanos() - 1);
            assert_eq!(
                pacer.clone().request(pacing, MDS, u64::MAX, before),
                Err(until)
            );
            assert_eq!(pacer.request(pacing, MDS, u64::MAX, until), Ok(MAX_TRAIN));
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
                let trusted = pacing(rate, mds, true, true).train;
                assert_eq!(trusted, slice.clamp(2 * mds, 65_536), "{rate} at {mds}");
                let fresh = pacing(rate, mds, false, true).train;
                let most = initial_window(mds).min(65_536);
                assert_eq!(fresh, slice.clamp(2 * mds, most), "{rate} at {mds}");
            }
        }
    }

    #[test]
    fn marking_queue_shortens_trains_of_less_than_four_datagrams() {
        for rate in [8_000, 1_250_000, 4_000_000] {
            let short = pacing(rate, MDS, true, true).for_marking_queue(MDS);
            assert_eq!(short.rate, rate);
            assert_eq!(short.train, MDS, "{rate}");
            assert!(short.depth < 2 * MDS, "no two at once: {short:?}");
        }
        for rate in [4_800_000, 12_500_000, 1 << 40] {
            let plain = pacing(rate, MDS, true, true);
            assert_eq!(plain.for_marking_queue(MDS), plain);
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
        let train = |rate| pacing(rate, MDS, true, true).train;
        assert_eq!(train(1000), 2 * MDS);
        assert_eq!(train(10_000_000), 10_000);
        assert_eq!(train(1_000_000_000), MAX_TRAIN);
    }

    #[test]
    fn more_trains_per_second_make_shorter_trains() {
        let pacing = Pacing::new(4_000, 40_000_000, MDS, true, true);
        assert_eq!((pacing.train, pacing.depth), (10_000, 20_000));
        assert_eq!(Pacing::new(0, 1, MDS, true, true).train, 2 * MDS);
    }

    #[test]
    fn bursts_stay_within_the_initial_window_on_an_unproven_path() {
        for rate in [1000, 10_000_000, 1_000_000_000] {
            let fresh = pacing(rate, MDS, false, true);
            assert!(fresh.train <= initial_window(MDS));
            assert!(fresh.depth <= initial_window(MDS));
            assert!(fresh.depth >= fresh.train);
        }
    }

    #[test]
    fn first_flight_is_sent_without_pacing() {
        let pacing = pacing(2 * 12_000 * 3, MDS, false, false);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        let mut sent = 0;
        while let Ok(bytes) = pacer.request(pacing, MDS, 12_000 - sent, Instant::ZERO) {
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
        let pacing = pacing(1_500_000, MDS, true, true);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        let now = Instant::ZERO + Duration::from_secs(60);
        let mut burst = 0;
        while let Ok(bytes) = pacer.request(pacing, MDS, 120_000 - burst, now) {
            pacer.charge(bytes);
            burst += bytes;
        }
        assert!(burst <= pacing.depth, "{burst}");
    }

    #[test]
    fn small_packet_does_not_wait_for_a_full_train() {
        let pacing = pacing(24_000, MDS, false, true);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        assert!(pacer.request(pacing, MDS, 12_000, Instant::ZERO).is_ok());
        pacer.charge(300);
        assert!(pacer.request(pacing, MDS, 12_000, Instant::ZERO).is_ok());
    }

    #[test]
    fn gate_stays_closed_until_a_full_train_is_earned() {
        let pacing = pacing(10_000_000, MDS, true, true);
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        pacer.charge(initial_window(MDS));
        let ask = |pacer: &mut Pacer, nanos| {
            pacer.request(pacing, MDS, u64::MAX, Instant::from_nanos(nanos))
        };
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
        let pacing = pacing(1_000_000, MDS, true, true);
        let until = pacer
            .request(pacing, MDS, 100_000, Instant::ZERO)
            .unwrap_err();
        assert!(until <= Instant::ZERO + Duration::from_millis(100));
    }

    /// Probes that did not ask are paid for by what follows (RFC 9002 §7.7).
    #[test]
    fn debt_is_paid_back_before_the_next_train() {
        let mut pacer = Pacer::new(MDS, Instant::ZERO);
        pacer.charge(initial_window(MDS) + 10 * MDS);
        let pacing = pacing(1_000_000, MDS, true, true);
        let until = pacer
            .request(pacing, MDS, 100_000, Instant::ZERO)
            .unwrap_err();
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
            let pacing = pacing(rate, mds, trusted, true);
            let mut pacer = Pacer::new(mds, Instant::ZERO);
            let mut now = Instant::ZERO;
            for (wait, sent, packets) in steps {
                let room = mds * packets;
                match pacer.request(pacing, mds, room, now) {
                    Ok(bytes) => {
                        prop_assert!(bytes >= mds && bytes <= room && bytes <= pacing.train);
                        pacer.charge(sent.min(bytes));
                    }
                    Err(until) => {
                        prop_assert!(until > now);
                        prop_assert!(pacer.clone().request(pacing, mds, room, until).is_ok());
                    }
                }
                now += Duration::from_nanos(wait);
            }
        }
    }
}
