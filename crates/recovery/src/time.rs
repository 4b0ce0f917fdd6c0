//! Time in integer nanoseconds. It is always passed in: this crate reads no clock.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the caller chose.
///
/// Virtual time starts at zero; with sockets the origin is the moment the endpoint was
/// created. Instants of different origins cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than everything; 584 years after the origin.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Creates an instant from nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Returns a duration in nanoseconds, at most 584 years.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(rhs)))
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// Saturates at zero, so that clock readings out of order do no harm.
    fn sub(self, rhs: Self) -> Duration {
        self.saturating_since(rhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_added_and_subtracted() {
        let mut instant = Instant::from_nanos(5_000);
        instant += Duration::from_micros(2);
        assert_eq!(instant, Instant::from_nanos(7_000));
        assert_eq!(
            instant - Duration::from_micros(3),
            Instant::from_nanos(4_000)
        );
        assert_eq!(
            instant - Instant::from_nanos(1_000),
            Duration::from_micros(6)
        );
    }

    #[test]
    fn arithmetic_saturates_at_origin_and_far_future() {
        let second = Duration::from_secs(1);
        assert_eq!(Instant::from_nanos(1) - second, Instant::ZERO);
        assert_eq!(Instant::FAR_FUTURE + second, Instant::FAR_FUTURE);
        assert_eq!(Instant::ZERO - Instant::from_nanos(1), Duration::ZERO);
    }
}
