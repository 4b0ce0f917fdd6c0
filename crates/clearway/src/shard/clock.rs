//! The endpoint's time: nanoseconds since it was made.

use std::time::{Duration, SystemTime};

use clearway_quic::Instant;

/// Turns the system's monotonic clock into the transport's, and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            origin: std::time::Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
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
