//! Points in time as integer nanoseconds.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the caller chose.
///
/// In virtual time the origin is the start of the run, in real time the moment
/// the relay started. Arithmetic saturates, so [`Time::NEVER`] stays never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than everything; 584 years after the origin.
    pub const NEVER: Self = Self(u64::MAX);

    /// From nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From microseconds since the origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// From milliseconds since the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From seconds since the origin.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time since `earlier`; `None` if `earlier` is later.
    #[must_use]
    pub fn checked_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// The first multiple of `tick` at or after this moment; a zero tick
    /// changes nothing.
    #[must_use]
    pub fn ceil_to(self, tick: Duration) -> Self {
        match self.0.checked_rem(nanos(tick)) {
            None | Some(0) => self,
            Some(past) => Self(self.0.saturating_add(nanos(tick) - past)),
        }
    }
}

/// Nanoseconds of a duration, saturating at 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub for Time {
    type Output = Duration;
    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Duration {
        self.saturating_since(rhs)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_round_up() {
        let tick = Duration::from_millis(1);
        assert_eq!(Time::from_micros(1).ceil_to(tick), Time::from_millis(1));
        assert_eq!(Time::from_millis(3).ceil_to(tick), Time::from_millis(3));
        assert_eq!(Time(5).ceil_to(Duration::ZERO), Time(5));
        assert_eq!(Time::NEVER.ceil_to(tick), Time::NEVER);
    }

    #[test]
    fn arithmetic_on_never_saturates() {
        assert_eq!(Time::NEVER + Duration::from_secs(1), Time::NEVER);
        assert_eq!(Time::from_secs(1).checked_since(Time::from_secs(2)), None);
    }
}
