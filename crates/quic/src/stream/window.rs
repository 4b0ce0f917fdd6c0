//! Receive windows that size themselves: nobody has to set one to get full speed.

use core::time::Duration;

use crate::time::{Instant, nanos};

/// The least time a window should cover, whatever the round trip: an application is
/// not scheduled sooner than this on a busy host, and loopback has no RTT to speak of.
const MIN_COVER: Duration = Duration::from_millis(4);

/// Credit granted to the peer: what was consumed plus one window (RFC 9000 §4.1).
///
/// The window doubles when the application consumed at a rate of at least a window
/// per two round trips, so a fast reader is never the bottleneck, and a slow reader
/// keeps the window it started with.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    max: u64,
    granted: u64,
    consumed: u64,
    mark: Mark,
}

/// Where the current measurement of the reader's rate started.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    consumed: u64,
}

impl Window {
    pub(super) fn new(size: u64, max: u64, now: Instant) -> Self {
        Self {
            size,
            max,
            granted: size,
            consumed: 0,
            mark: Mark {
                at: now,
                consumed: 0,
            },
        }
    }

    /// The highest offset the peer may send, as last advertised.
    pub(super) const fn granted(&self) -> u64 {
        self.granted
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) const fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(super) fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
    }

    /// Whether at least a quarter of the window could be granted anew.
    pub(super) const fn is_due(&self) -> bool {
        let limit = self.consumed.saturating_add(self.size);
        let fresh = limit.saturating_sub(self.granted);
        fresh > 0 && fresh >= self.size / 4
    }

    /// Grants all there is to grant and answers the new limit.
    pub(super) fn grant(&mut self, now: Instant, rtt: Duration) -> u64 {
        self.measure(now, rtt);
        self.granted = self.granted.max(self.consumed + self.size);
        self.granted
    }

    /// Makes the window at least `size` as far as its maximum allows.
    pub(super) fn raise_to(&mut self, size: u64) {
        self.size = self.size.max(size.min(self.max));
    }

    fn measure(&mut self, now: Instant, rtt: Duration) {
        let read = self.consumed - self.mark.consumed;
        if read < self.size / 2 {
            return;
        }
        let elapsed = u128::from(nanos(now.saturating_since(self.mark.at)));
        let cover = u128::from(nanos(rtt.max(MIN_COVER))) * 2;
        if u128::from(read) * cover >= u128::from(self.size) * elapsed {
            self.size = self.size.saturating_mul(2).min(self.max);
        }
        self.mark = Mark {
            at: now,
            consumed: self.consumed,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn credit_waits_for_a_quarter_window() {
        let mut window = Window::new(256 * KIB, MIB, Instant::ZERO);
        window.consume(64 * KIB - 1);
        assert!(!window.is_due());
        window.consume(1);
        assert!(window.is_due());
        assert_eq!(window.grant(at(1_000), Duration::ZERO), 320 * KIB);
        assert!(!window.is_due());
    }

    /// 1 Gbit/s × 100 ms: the sender uses each credit at once, one RTT per window.
    #[test]
    fn a_fast_reader_gets_twice_the_bandwidth_delay_product() {
        let rtt = Duration::from_millis(100);
        let mut window = Window::new(256 * KIB, 48 * MIB, Instant::ZERO);
        for step in 1..200 {
            let now = at(25 * step);
            window.consume((window.size() / 4).min(12_500_000 / 4));
            if window.is_due() {
                window.grant(now, rtt);
            }
        }
        assert!(window.size() >= 2 * 12_500_000, "{}", window.size());
        assert!(window.size() <= 48 * MIB);
    }

    #[test]
    fn a_slow_reader_keeps_its_window_and_never_gets_more_than_it() {
        let rtt = Duration::from_millis(20);
        let mut window = Window::new(256 * KIB, 48 * MIB, Instant::ZERO);
        for step in 1..500 {
            window.consume(16 * KIB);
            if window.is_due() {
                window.grant(at(10 * step), rtt);
            }
            assert!(window.granted() <= window.consumed() + 256 * KIB);
        }
        assert_eq!(window.size(), 256 * KIB);
    }

    #[test]
    fn growth_stops_at_the_budget() {
        let mut window = Window::new(256 * KIB, MIB, Instant::ZERO);
        for _ in 0..10 {
            window.consume(window.size());
            window.grant(at(1), Duration::from_secs(1));
        }
        assert_eq!(window.size(), MIB);
        window.raise_to(8 * MIB);
        assert_eq!(window.size(), MIB);
    }
}
