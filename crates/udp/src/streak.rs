//! Failures in a row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Calls that have to fail in a row, without one success between them, before a socket counts
/// as broken on the strength of errors that name no cause. A single strange errno, or a few in
/// a burst, say nothing.
const CALLS: u32 = 64;

/// How long they have to go on for: as long as a reload of a packet filter or a pause of the
/// machine takes, with room to spare, and shorter than the idle timeout (30 s), so that people
/// hear the cause instead of "timed out".
const PERIOD: Duration = Duration::from_secs(10);

/// Failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct Streak {
    /// Whether there are any: all that a success has to look at.
    begun: AtomicBool,
    failures: Mutex<Option<Failures>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    first: Instant,
    count: u32,
}

impl Streak {
    /// A call succeeded.
    pub(crate) fn end(&self) {
        if self.begun.load(Ordering::Relaxed) {
            self.begun.store(false, Ordering::Relaxed);
            *self.lock() = None;
        }
    }

    /// A call failed; whether so many have, for so long, that none will succeed.
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
    fn streak_is_fatal_only_when_both_long_and_many() {
        let streak = Streak::default();
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
