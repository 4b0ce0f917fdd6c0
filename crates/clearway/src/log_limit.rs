//! Log lines at a limited rate: what an unknown peer causes must not fill a log.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{self, Duration};

use clearway_quic::Instant;

/// The time over which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Limits the log lines about one kind of event.
#[derive(Debug)]
pub(crate) struct LogLimiter {
    per_second: u32,
    began: Option<Instant>,
    /// Lines logged in this second.
    lines: u32,
    /// Events since the last line that were not logged.
    suppressed: u64,
}

impl Default for LogLimiter {
    /// Allows one line a second.
    fn default() -> Self {
        Self::new(1)
    }
}

impl LogLimiter {
    pub(crate) const fn new(per_second: u32) -> Self {
        Self {
            per_second,
            began: None,
            lines: 0,
            suppressed: 0,
        }
    }

    /// Records an event. Returns how many events were suppressed since the last line if this
    /// one may be logged, or `None` if not.
    pub(crate) fn record(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now >= began + WINDOW) {
            self.began = Some(now);
            self.lines = 0;
        }
        if self.lines >= self.per_second {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.lines = self.lines.saturating_add(1);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Most warnings about clients in one second, in the whole process; the others are counted,
/// and logged at level `DEBUG`. Ten: enough to see every kind of problem, and at most a few
/// hundred megabytes of log a day.
const CLIENT_WARNINGS_PER_SECOND: u32 = 10;

/// One limit for the whole process, because all threads write to one log.
static CLIENT_WARNINGS: Mutex<LogLimiter> = Mutex::new(LogLimiter::new(CLIENT_WARNINGS_PER_SECOND));
static START: LazyLock<time::Instant> = LazyLock::new(time::Instant::now);

/// Asks for a warning about a client. Returns how many were suppressed since the last one
/// that was logged, or `None` if this one has to be suppressed too.
pub(crate) fn client_warning() -> Option<u64> {
    let now = Instant::ZERO + START.elapsed();
    let limiter = CLIENT_WARNINGS.lock();
    let mut limiter = limiter.unwrap_or_else(PoisonError::into_inner);
    limiter.record(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn lines_beyond_one_per_second_are_counted_in_the_next_line() {
        let mut limiter = LogLimiter::default();
        assert_eq!(limiter.record(at(0)), Some(0));
        assert_eq!(limiter.record(at(1)), None);
        assert_eq!(limiter.record(at(999)), None);
        assert_eq!(limiter.record(at(1_000)), Some(2));
    }

    #[test]
    fn limit_of_ten_lines_holds_per_second_even_if_time_goes_back() {
        let mut limiter = LogLimiter::new(10);
        let told = (0..1_000).filter_map(|_| limiter.record(at(5)));
        assert_eq!(told.collect::<Vec<_>>(), [0; 10]);
        assert_eq!(limiter.record(at(1_005)), Some(990));
        assert_eq!(limiter.record(at(1_005)), Some(0));
        // Another thread may have read the clock earlier.
        let late = (0..100).filter_map(|_| limiter.record(at(1_004))).count();
        assert_eq!(late, 8);
        assert_eq!(limiter.record(at(60_000)), Some(92));
    }
}
