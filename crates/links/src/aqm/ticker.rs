//! Regular updates of a controller, executed late but with their nominal times.

use core::time::Duration;

use crate::Time;

/// Maximum number of missed updates that are made up for. After a longer pause the queue has long
/// reached its final state.
const MOST_AT_ONCE: u32 = 4096;

/// Yields the times of the updates that are due.
#[derive(Clone, Debug)]
pub(crate) struct Ticker {
    next: Time,
    period: Duration,
    burst: u32,
}

impl Ticker {
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            next: Time::ZERO + period,
            // A period of zero would never end.
            period: period.max(Duration::from_nanos(1)),
            burst: 0,
        }
    }

    /// The next update that is due by `now`.
    pub(crate) fn due(&mut self, now: Time) -> Option<Time> {
        if self.next > now || self.next == Time::NEVER {
            self.burst = 0;
            return None;
        }
        let at = self.next;
        self.burst += 1;
        self.next = if self.burst < MOST_AT_ONCE {
            at + self.period
        } else {
            now + self.period
        };
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_update_fires_once_and_long_gaps_are_truncated() {
        let mut ticker = Ticker::new(Duration::from_millis(15));
        assert_eq!(ticker.due(Time::from_millis(14)), None);
        assert_eq!(
            ticker.due(Time::from_millis(31)),
            Some(Time::from_millis(15))
        );
        assert_eq!(
            ticker.due(Time::from_millis(31)),
            Some(Time::from_millis(30))
        );
        assert_eq!(ticker.due(Time::from_millis(31)), None);
        let mut made_up = 0;
        while ticker.due(Time::NEVER).is_some() {
            made_up += 1;
        }
        assert!(made_up <= MOST_AT_ONCE, "{made_up}");
    }
}
