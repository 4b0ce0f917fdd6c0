//! Failures in a row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of consecutive failed calls before a socket counts as broken because of errors with an
/// unknown cause. A single strange errno, or a few in a burst, do not count.
const CALLS: u32 = 64;

/// How long the failures must last: longer than a reload of a packet filter or a pause of the
/// machine, and shorter than the idle timeout (30 s), so that users see the cause instead of "timed
/// out".
const PERIOD: Duration = Duration::from_secs(10);

/// Failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct FailureStreak {
    /// Whether there are any: the only thing that a success has to check.
    begun: AtomicBool,
    failures: Mutex<Option<Failures>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    first: Instant,
    count: u32,
}

impl FailureStreak {
    /// Records a success.
    pub(crate) fn end(&self) {
        if self.begun.load(Ordering::Relaxed) {
            self.begun.store(false, Ordering::Relaxed);
            *self.lock() = None;
        }
    }

    /// Records a failure; returns whether there were so many, for so long, that the socket is
    /// broken.
    pub(crate) fn add(&self, now: Instant) -> bool {
        self.begun.store(true, Ordering::Relaxed);
        let mut failures = self.lock();
        let Failures { first, count } = failures.unwrap_or(Failures {
            first: now,
            count: 0,
        });
        let count = count.saturating_add(1);
        *failures = Some(Failures { first, count });
        count >= CALLS && now.saturating_duration_since(first) >= PERIOD
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_streak_is_fatal_only_when_long_and_many() {
        let streak = FailureStreak::default();
        let start = Instant::now();
        for _ in 0..10 * CALLS {
            assert!(!streak.add(start + PERIOD / 2), "too short");
        }
        assert!(!streak.add(start + PERIOD));
        assert!(streak.add(start + PERIOD + PERIOD / 2));
        streak.end();
        assert!(!streak.add(start + PERIOD * 3), "one success ends it");
        for _ in 2..CALLS {
            assert!(!streak.add(start + PERIOD * 9), "too few");
        }
        assert!(streak.add(start + PERIOD * 9));
    }
}
