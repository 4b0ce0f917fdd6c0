//! The lab's clock as the rivals see it.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use clearway_lab::stack::UNIX_ORIGIN;
use clearway_links::Time;

/// Virtual time zero. It lies a day ahead of the process's start, so that a
/// stack may subtract from it; only differences to it ever matter.
static ORIGIN: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_secs(86_400));

/// Virtual time as an `Instant`.
pub(crate) fn instant(now: Time) -> Instant {
    *ORIGIN + Duration::from_nanos(now.0)
}

/// And back; what lies before the origin is the origin.
pub(crate) fn time(at: Instant) -> Time {
    let since = at.saturating_duration_since(*ORIGIN).as_nanos();
    Time(u64::try_from(since).unwrap_or(u64::MAX))
}

/// The wall clock of the lab, which stands still.
pub(crate) fn wall() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(UNIX_ORIGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_survive_both_ways() {
        for nanos in [0, 1, 999_999_999, 86_400_000_000_001] {
            assert_eq!(time(instant(Time(nanos))), Time(nanos));
        }
    }

    #[test]
    fn time_before_the_origin_is_the_origin() {
        let before = instant(Time(0)) - Duration::from_secs(1);
        assert_eq!(time(before), Time(0));
    }
}
