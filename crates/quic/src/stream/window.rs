//! Receive windows that adapt their size, so that full speed needs no configuration.

use core::time::Duration;

use crate::time::{Instant, nanos};
use crate::wire::cursor::VARINT_MAX;

/// The shortest time that a window should cover, whatever the round trip: on a busy host it takes
/// this long until an application runs, and the RTT of loopback is next to nothing.
const MIN_COVER: Duration = Duration::from_millis(4);

/// Smallest number of round trips of reading that a window covers. One is in flight, one passes
/// between a grant and the first byte that uses it, and a sender in slow start needs twice as much
/// by then. The fourth allows for one lost update.
const ROUND_TRIPS: u128 = 4;

/// Updates per window on a path without loss.
const UPDATES: u64 = 8;

/// A peer short of credit is sent a new limit if that is higher by this fraction of the window.
const MIN_LIMIT_STEP: u64 = 16;

/// The credit granted to the peer: consumed bytes plus one window (RFC 9000 §4.1).
///
/// The window doubles when the application has read at least a window in four round trips. So flow
/// control never limits a fast reader without loss, and a slow reader keeps the initial window.
///
/// Updates can be lost like any packet, and a receiver sends too little to detect that soon. So the
/// window records which limit the peer has acknowledged, and reports when that is
/// [too low](Self::is_short). Packets that are sent anyway then carry the current limit.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    max: u64,
    granted: u64,
    /// The highest limit that the peer has acknowledged.
    confirmed: u64,
    consumed: u64,
    mark: RateSample,
}

/// The start of the current measurement of the reader's rate.
#[derive(Clone, Copy, Debug)]
struct RateSample {
    at: Instant,
    consumed: u64,
}

impl Window {
    pub(super) fn new(size: u64, max: u64, now: Instant) -> Self {
        Self {
            size,
            max,
            granted: size,
            confirmed: size,
            consumed: 0,
            mark: RateSample {
                at: now,
                consumed: 0,
            },
        }
    }

    /// Returns the last advertised limit: the highest offset that the peer may send.
    pub(super) const fn granted(&self) -> u64 {
        self.granted
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the largest allowed size of the window.
    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    pub(super) const fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(super) fn consume(&mut self, bytes: u64) {
        self.consumed = self.consumed.saturating_add(bytes);
    }

    /// Returns whether the limit could be raised by at least an eighth of the window.
    pub(super) fn is_due(&self) -> bool {
        self.next_limit().saturating_sub(self.granted) >= (self.size / UPDATES).max(1)
    }

    /// Called when the peer acknowledges this limit.
    pub(super) fn on_limit_acked(&mut self, limit: u64) {
        self.confirmed = self.confirmed.max(limit);
    }

    /// Returns whether the peer, which has sent at least `received` bytes, has acknowledged a limit
    /// less than half a window above that, and sending the current limit (again) would help.
    ///
    /// On a path without loss this never happens with a window of four round trips: an eighth is not
    /// granted yet, and a quarter is granted and not yet acknowledged.
    pub(super) fn is_short(&self, received: u64) -> bool {
        self.confirmed.saturating_sub(received) < self.size / 2
            && self.has_newer_limit(self.confirmed)
    }

    /// Returns whether to send the current limit to a peer that reports being blocked at `at`. It
    /// cannot be blocked below a limit that it has acknowledged: such a report is old or false.
    pub(super) fn should_repeat_limit(&self, at: u64) -> bool {
        at >= self.confirmed && (self.granted > at || self.has_newer_limit(at))
    }

    fn has_newer_limit(&self, since: u64) -> bool {
        self.next_limit().saturating_sub(since) >= (self.size / MIN_LIMIT_STEP).max(1)
    }

    /// Returns the limit that [`Self::grant`] would return now.
    fn next_limit(&self) -> u64 {
        let next_limit = self.consumed.saturating_add(self.size);
        self.granted.max(next_limit.min(VARINT_MAX))
    }

    /// Raises the limit as far as possible and returns it.
    pub(super) fn grant(&mut self, now: Instant, rtt: Duration) -> u64 {
        self.measure(now, rtt);
        self.granted = self.next_limit();
        self.granted
    }

    /// Limits the window to `max`, and makes it at least `initial` within that. Credit that was granted
    /// cannot be revoked (RFC 9000 §4.1), so a smaller window grants nothing until enough was consumed.
    pub(super) fn limit(&mut self, initial: u64, max: u64) {
        self.max = max;
        self.size = self.size.max(initial).min(max);
    }

    /// Raises the window to at least `size`, within its maximum.
    pub(super) fn raise_to(&mut self, size: u64) {
        self.size = self.size.max(size.min(self.max));
    }

    fn measure(&mut self, now: Instant, rtt: Duration) {
        let read = self.consumed.saturating_sub(self.mark.consumed);
        if read < self.size / 2 {
            return;
        }
        let elapsed = u128::from(nanos(now.saturating_since(self.mark.at)));
        let cover = u128::from(nanos(rtt.max(MIN_COVER))).saturating_mul(ROUND_TRIPS);
        let fast = u128::from(self.size).saturating_mul(elapsed);
        if u128::from(read).saturating_mul(cover) >= fast {
            self.size = self.size.saturating_mul(2).min(self.max);
        }
        self.mark = RateSample {
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
    fn max_data_is_due_after_an_eighth_of_window() {
        let mut window = Window::new(256 * KIB, MIB, Instant::ZERO);
        window.consume(32 * KIB - 1);
        assert!(!window.is_due());
        window.consume(1);
        assert!(window.is_due());
        assert_eq!(window.grant(at(1_000), Duration::ZERO), 288 * KIB);
        assert!(!window.is_due());
    }

    #[test]
    fn peer_is_short_of_credit_until_latest_limit_is_acknowledged() {
        let mut window = Window::new(256 * KIB, 256 * KIB, Instant::ZERO);
        assert!(!window.is_short(256 * KIB), "it has all there is");
        window.consume(128 * KIB);
        assert!(!window.is_short(128 * KIB), "half a window is left");
        assert!(window.is_short(128 * KIB + 1));
        window.grant(at(1_000), Duration::ZERO);
        assert!(window.is_short(128 * KIB + 1), "sent is not received");
        window.on_limit_acked(384 * KIB);
        window.on_limit_acked(300 * KIB);
        assert!(!window.is_short(256 * KIB));
        window.consume(16 * KIB - 1);
        assert!(!window.is_short(384 * KIB), "crumbs wait");
        window.consume(1);
        assert!(window.is_short(384 * KIB));
    }

    #[test]
    fn blocked_peer_is_answered_if_limit_was_raised() {
        let mut window = Window::new(256 * KIB, 256 * KIB, Instant::ZERO);
        assert!(!window.should_repeat_limit(256 * KIB));
        window.consume(16 * KIB - 1);
        assert!(!window.should_repeat_limit(256 * KIB), "crumbs wait");
        window.consume(1);
        assert!(window.should_repeat_limit(256 * KIB));
        window.grant(at(1_000), Duration::ZERO);
        assert!(window.should_repeat_limit(256 * KIB), "the update was lost");
        assert!(window.should_repeat_limit(272 * KIB - 1));
        assert!(!window.should_repeat_limit(272 * KIB));
        assert!(
            !window.should_repeat_limit(256 * KIB - 1),
            "it has had more"
        );
    }

    /// 1 Gbit/s × 100 ms: the sender uses each credit at once, one RTT per window.
    #[test]
    fn window_of_fast_reader_grows_to_four_times_bandwidth_delay_product() {
        let rtt = Duration::from_millis(100);
        let mut window = Window::new(256 * KIB, 96 * MIB, Instant::ZERO);
        for step in 1..200 {
            let now = at(25 * step);
            window.consume((window.size() / 4).min(12_500_000 / 4));
            if window.is_due() {
                window.grant(now, rtt);
            }
        }
        assert!(window.size() >= 4 * 12_500_000, "{}", window.size());
        assert!(window.size() <= 8 * 12_500_000, "{}", window.size());
    }

    #[test]
    fn window_of_slow_reader_does_not_grow() {
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

    /// A peer may jump: the final size of a reset stream is consumed at once.
    #[test]
    fn limit_never_exceeds_largest_offset() {
        let mut window = Window::new(1 << 40, 1 << 40, Instant::ZERO);
        window.consume(VARINT_MAX - (1 << 40));
        assert_eq!(window.grant(at(1), Duration::ZERO), VARINT_MAX);
        window.consume(1 << 40);
        assert_eq!(window.grant(at(2), Duration::ZERO), VARINT_MAX);
        assert!(!window.is_due());
    }

    #[test]
    fn window_growth_stops_at_budget() {
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
