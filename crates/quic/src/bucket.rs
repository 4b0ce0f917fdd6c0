//! Allowances that time refills.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::time::{Instant, nanos};

/// How an allowance refills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Most that are saved up, and what there is at first.
    pub burst: u32,
    /// How many come back in a second; 0 = none.
    pub per_second: u32,
}

/// Counts down events of which a [`Rate`] allows so many. Only time and
/// [`put_back`](Self::put_back) put anything back.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Taken and not come back.
    taken: u32,
    /// When `taken` was last right.
    at: Instant,
}

impl TokenBucket {
    /// A full one.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { taken: 0, at: now }
    }

    /// Takes one; false if there is none.
    pub fn take(&mut self, now: Instant, rate: Rate) -> bool {
        self.refill(now, rate);
        let some = self.taken < rate.burst;
        self.taken = self.taken.saturating_add(u32::from(some));
        some
    }

    /// Whether [`take`](Self::take) would answer true.
    pub fn has_token(&mut self, now: Instant, rate: Rate) -> bool {
        self.refill(now, rate);
        self.taken < rate.burst
    }

    /// Puts `count` back; a full one stays full.
    pub fn put_back(&mut self, count: u32) {
        self.taken = self.taken.saturating_sub(count);
    }

    /// Puts back what time has earned.
    fn refill(&mut self, now: Instant, rate: Rate) {
        #[expect(
            clippy::arithmetic_side_effects,
            reason = "64 bits times 64 fit 128, and a second is not zero"
        )]
        let earned_in =
            |nanos: u64| u128::from(nanos) * u128::from(rate.per_second) / u128::from(SECOND);
        let elapsed = nanos(now.saturating_since(self.at));
        let earned = u32::try_from(earned_in(elapsed)).unwrap_or(u32::MAX);
        if earned >= self.taken {
            // Full: what time earns now is not saved.
            self.taken = 0;
            self.at = self.at.max(now);
        } else if earned > 0 {
            self.taken = self.taken.saturating_sub(earned);
            // The part of the next one that has been earned already stays earned.
            let used = u64::from(earned).saturating_mul(SECOND);
            let used = used.checked_div(u64::from(rate.per_second)).unwrap_or(0);
            self.at += core::time::Duration::from_nanos(used);
        }
    }
}

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Counts down events of which several threads may cause so many a second together, and
/// as many at once after a pause.
///
/// One number says when the allowance will be whole again, and each event moves that
/// further away (the generic cell rate algorithm of ITU-T I.371). One that is empty is
/// only read.
#[derive(Debug)]
pub struct SharedTokenBucket {
    /// Nanoseconds.
    full_at: AtomicU64,
    /// Nanoseconds that one event takes to come back; `None` = there are none.
    interval: Option<u64>,
}

impl SharedTokenBucket {
    /// A full one, for a number of events that is small beside a billion.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self {
            full_at: AtomicU64::new(0),
            interval: SECOND.checked_div(per_second.into()).map(|i| i.max(1)),
        }
    }

    /// Takes one; false if there is none.
    pub fn take(&self, now: Instant) -> bool {
        let taken = |full_at| self.full_at_after_one(full_at, now);
        self.full_at.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }

    /// Whether [`take`](Self::take) would answer true.
    pub fn has_token(&self, now: Instant) -> bool {
        self.full_at_after_one(self.full_at.load(Relaxed), now)
            .is_some()
    }

    /// When it is whole again after one more event; `None` if there is none.
    fn full_at_after_one(&self, full_at: u64, now: Instant) -> Option<u64> {
        let now = now.as_nanos();
        let next = full_at.max(now).checked_add(self.interval?)?;
        (next <= now.saturating_add(SECOND)).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const RATE: Rate = Rate {
        burst: 3,
        per_second: 2,
    };

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn bucket_empties_and_is_refilled_by_time() {
        let mut bucket = TokenBucket::new(Instant::ZERO);
        for expected in [true, true, true, false, false] {
            assert_eq!(bucket.take(Instant::ZERO, RATE), expected);
        }
        assert!(!bucket.take(at(499), RATE));
        assert!(bucket.take(at(500), RATE));
        assert!(!bucket.take(at(999), RATE));
        assert!(bucket.take(at(1_000), RATE));
        bucket.put_back(1);
        assert!(bucket.take(at(1_000), RATE) && !bucket.take(at(1_000), RATE));
    }

    #[test]
    fn full_bucket_saves_no_further_tokens() {
        let mut bucket = TokenBucket::new(Instant::ZERO);
        bucket.put_back(100);
        let taken = (0..10).filter(|_| bucket.take(at(60_000), RATE)).count();
        assert_eq!(taken, 3);
        // Time that goes backwards earns nothing.
        assert!(!bucket.take(at(0), RATE));
    }

    #[test]
    fn bucket_with_rate_of_zero_is_never_refilled() {
        let rate = Rate {
            burst: 1,
            per_second: 0,
        };
        let mut bucket = TokenBucket::new(Instant::ZERO);
        assert!(bucket.take(Instant::ZERO, rate));
        assert!(!bucket.take(at(1 << 40), rate));
    }

    #[test]
    fn shared_bucket_with_rate_of_zero_is_always_empty() {
        let bucket = SharedTokenBucket::new(0);
        assert!(!bucket.has_token(at(5)) && !bucket.take(at(5)));
    }

    #[test]
    fn shared_bucket_is_full_at_start_and_after_a_pause() {
        let bucket = SharedTokenBucket::new(3);
        for now in [at(0), at(1_000), at(1 << 40)] {
            let taken = (0..10).filter(|_| bucket.take(now)).count();
            assert_eq!(taken, 3, "{now:?}");
            // Time that goes backwards earns nothing.
            assert!(!bucket.has_token(at(0)));
        }
    }

    proptest! {
        /// A second's worth at once, then as many as the rate allows.
        #[test]
        fn shared_bucket_never_exceeds_its_rate(
            per_second in 1..20_000_u32,
            steps in prop::collection::vec(0..5_000_000_u64, 1..200),
        ) {
            let bucket = SharedTokenBucket::new(per_second);
            let (mut now, mut taken) = (Instant::ZERO, 0_u64);
            for step in steps {
                while bucket.has_token(now) {
                    prop_assert!(bucket.take(now));
                    taken += 1;
                }
                prop_assert!(!bucket.take(now));
                let interval = 1_000_000_000 / u64::from(per_second);
                prop_assert_eq!(taken, (now.as_nanos() + 1_000_000_000) / interval);
                now += Duration::from_nanos(step);
            }
        }

        /// Never more than the burst and what time allows, never much less for one who
        /// asks all the time.
        #[test]
        fn bucket_never_exceeds_its_rate(
            burst in 1..50_u32,
            per_second in 1..2_000_u32,
            steps in prop::collection::vec(0..5_000_000_u64, 1..400),
        ) {
            let rate = Rate { burst, per_second };
            let mut bucket = TokenBucket::new(Instant::ZERO);
            let (mut now, mut taken) = (Instant::ZERO, 0_u128);
            for step in steps {
                now += Duration::from_nanos(step);
                while bucket.take(now, rate) {
                    taken += 1;
                }
            }
            let earned = u128::from(now.as_nanos()) * u128::from(per_second) / 1_000_000_000;
            prop_assert!(taken <= u128::from(burst) + earned);
            // A step may earn more than is saved.
            let most = u128::from(burst) + earned;
            prop_assert!(taken >= u128::from(burst), "{} of {}", taken, most);
        }
    }
}
