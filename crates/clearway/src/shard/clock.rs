//! The endpoint's time: nanoseconds since it was created.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clearway_quic::Instant;

use crate::runtime::Runtime;

/// Converts the host's monotonic clock into the transport's, and back.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The system's, since this origin.
    System(std::time::Instant),
    Runtime(Arc<dyn Runtime>),
    /// Returns the time that the test has set for its thread.
    #[cfg(test)]
    Manual,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Source::System(std::time::Instant::now()))
    }

    /// Creates the clock of a runtime.
    pub(crate) fn of(runtime: Arc<dyn Runtime>) -> Self {
        Self(Source::Runtime(runtime))
    }

    pub(crate) fn now(&self) -> Instant {
        match &self.0 {
            Source::System(origin) => Instant::ZERO + origin.elapsed(),
            Source::Runtime(runtime) => Instant::ZERO + runtime.now(),
            #[cfg(test)]
            Source::Manual => {
                let now = MANUAL.get();
                MANUAL.set(now + STEP.get());
                now
            }
        }
    }

    /// Returns the runtime whose clock it is, if it is not the system's.
    pub(crate) fn runtime(&self) -> Option<&Arc<dyn Runtime>> {
        match &self.0 {
            Source::Runtime(runtime) => Some(runtime),
            Source::System(_) => None,
            #[cfg(test)]
            Source::Manual => None,
        }
    }

    /// Converts back to the system's clock; `None` if that cannot represent the time, or it is
    /// another clock.
    pub(crate) fn to_system(&self, at: Instant) -> Option<std::time::Instant> {
        match &self.0 {
            Source::System(origin) => origin.checked_add(Duration::from_nanos(at.as_nanos())),
            Source::Runtime(_) => None,
            #[cfg(test)]
            Source::Manual => None,
        }
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
        Self(Source::Manual)
    }

    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.0, Source::Manual)
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
