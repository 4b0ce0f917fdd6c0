//! The endpoint's time: nanoseconds since it was made.

use std::time::{Duration, SystemTime};

use clearway_quic::Instant;

/// Scheduler the system's monotonic clock into the transport's, and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
    /// Tells the time that its thread has set by hand.
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

    /// `None`: later than the system's clock can say.
    pub(crate) fn to_system(self, at: Instant) -> Option<std::time::Instant> {
        self.origin.checked_add(Duration::from_nanos(at.as_nanos()))
    }

    /// Wall time in Unix seconds, for tokens.
    pub(crate) fn unix_seconds() -> u64 {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }
}

#[cfg(test)]
thread_local! {
    /// What manual clocks of this thread say.
    static MANUAL: std::cell::Cell<Instant> = const { std::cell::Cell::new(Instant::ZERO) };
    /// How far each look moves them.
    static STEP: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

#[cfg(test)]
impl Clock {
    /// A clock that stands still until [`set`](Self::set).
    pub(crate) fn manual() -> Self {
        Self {
            manual: true,
            ..Self::start()
        }
    }

    pub(crate) fn is_manual(&self) -> bool {
        self.manual
    }

    /// Every look at a manual clock of this thread takes so long from now on.
    pub(crate) fn set_step(step: Duration) {
        STEP.set(step);
    }

    /// The time for every manual clock of this thread.
    pub(crate) fn set(now: Instant) {
        MANUAL.set(now);
    }
}
