//! Rate limits: token buckets that time refills.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::time::Instant;

/// The size and the refill rate of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Most tokens that are saved up; a new bucket starts with as many.
    pub burst: u32,
    /// Tokens added per second; 0 = none.
    pub per_second: u32,
}

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// A token bucket that several threads share: at most `per_second` events a second, and as
/// many at once after a pause.
///
/// One number says when the bucket will be full again, and each event moves that time
/// further away (the generic cell rate algorithm, ITU-T I.371). An empty bucket is only
/// read, never written.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// When the bucket is full again, in nanoseconds.
    full_at: AtomicU64,
    /// Nanoseconds in which one token is added; `None` = never.
    interval: Option<u64>,
}

impl TokenBucket {
    /// Creates a full bucket. `per_second` must be far below a billion, since the interval
    /// between tokens is counted in whole nanoseconds.
    #[must_use]
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            full_at: AtomicU64::new(0),
            interval: SECOND.checked_div(per_second.into()).map(|i| i.max(1)),
        }
    }

    /// Takes a token; returns false if the bucket is empty.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let taken = |full_at| self.full_at_after_one(full_at, now);
        self.full_at.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }

    /// Returns whether [`take`](Self::take) would succeed.
    pub(crate) fn has_token(&self, now: Instant) -> bool {
        self.full_at_after_one(self.full_at.load(Relaxed), now)
            .is_some()
    }

    /// Returns when the bucket is full again after one more event, or `None` if it is empty.
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

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn bucket_with_rate_of_zero_is_always_empty() {
        let bucket = TokenBucket::new(0);
        assert!(!bucket.has_token(at(5)) && !bucket.take(at(5)));
    }

    #[test]
    fn bucket_is_full_at_start_and_after_a_pause() {
        let bucket = TokenBucket::new(3);
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
        fn bucket_never_exceeds_its_rate(
            per_second in 1..20_000_u32,
            steps in prop::collection::vec(0..5_000_000_u64, 1..200),
        ) {
            let bucket = TokenBucket::new(per_second);
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
    }
}
