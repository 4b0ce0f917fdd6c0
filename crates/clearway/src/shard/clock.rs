//! The endpoint's time: nanoseconds since it was created.

use std::time::{Duration, SystemTime};

use clearway_quic::Instant;

/// Converts the system's monotonic clock into the transport's, and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
    /// Returns the time that the test has set for its thread.
    #[cfg(test)]
    manual: bool,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            origin: std::time::Instant::now(),
            #[cfg(test)]
            manual: false,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        #[cfg(test)]
        if self.manual {
            let now = MANUAL.get();
            MANUAL.set(now + STEP.get());
            return now;
        }
        Instant::ZERO + self.origin.elapsed()
    }

    /// Converts back; `None` if the system's clock cannot represent the time.
    pub(crate) fn to_system(self, at: Instant) -> Option<std::time::Instant> {
        self.origin.checked_add(Duration::from_nanos(at.as_nanos()))
    }

    /// Returns the wall-clock time in Unix seconds, for tokens.
    pub(crate) fn unix_seconds() -> u64 {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }
}

#[cfg(test)]
thread_local! {
    /// The time of manual clocks of this thread.
    static MANUAL: std::cell::Cell<Instant> = const { std::cell::Cell::new(Instant::ZERO) };
    /// How far each read advances them.
    static STEP: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

#[cfg(test)]
impl Clock {
    /// Creates a clock that stands still until [`set`](Self::set).
    pub(crate) fn manual() -> Self {
        Self {
            manual: true,
            ..Self::start()
        }
    }

    pub(crate) fn is_manual(&self) -> bool {
        self.manual
    }

    /// Makes every read of a manual clock of this thread advance it by `step`.
    pub(crate) fn set_step(step: Duration) {
        STEP.set(step);
    }

    /// Sets every manual clock of this thread.
    pub(crate) fn set(now: Instant) {
        MANUAL.set(now);
    }
}
