//! Receive windows that size themselves: nobody has to set one to get full speed.

use core::time::Duration;

use crate::time::{Instant, nanos};
use crate::wire::cursor::VARINT_MAX;

/// The least time a window should cover, whatever the round trip: an application is
/// not scheduled sooner than this on a busy host, and loopback has no RTT to speak of.
const MIN_COVER: Duration = Duration::from_millis(4);

/// Round trips of reading that a window covers at least. One is in flight, one
/// passes between a grant and the first byte sent on it, and a sender in slow start
/// needs twice as much by then. The fourth pays for an update that was lost.
const ROUND_TRIPS: u128 = 4;

/// Updates per window on a path that loses none.
const UPDATES: u64 = 8;

/// A peer short of credit is told of this part of a window at least.
const LEAST_NEWS: u64 = 16;

/// Credit granted to the peer: what was consumed plus one window (RFC 9000 §4.1).
///
/// The window doubles when the application consumed at a rate of at least a window
/// per four round trips, so a fast reader is never the bottleneck, and a slow reader
/// keeps the window it started with.
///
/// Updates get lost like any packet, and a receiver sends too little to notice soon.
/// So the window knows which limit the peer is sure to have, and says when that is
/// [short](Self::is_short): then what leaves anyway carries the newest limit.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    max: u64,
    granted: u64,
    /// The highest limit the peer is sure to have.
    confirmed: u64,
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
            confirmed: size,
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

    /// The largest it may become.
    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    pub(super) const fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(super) fn consume(&mut self, bytes: u64) {
        self.consumed = self.consumed.saturating_add(bytes);
    }

    /// Whether at least an eighth of the window could be granted anew.
    pub(super) fn is_due(&self) -> bool {
        self.newest().saturating_sub(self.granted) >= (self.size / UPDATES).max(1)
    }

    /// The peer acknowledged this limit.
    pub(super) fn confirm(&mut self, limit: u64) {
        self.confirmed = self.confirmed.max(limit);
    }

    /// Whether the peer, having sent `received` bytes at least, is sure of less than
    /// half a window more, and it would help to tell it the newest limit, be it again.
    ///
    /// On a path that loses nothing a window of four round trips never gets there:
    /// an eighth waits to be granted, a quarter is granted and not yet acknowledged.
    pub(super) fn is_short(&self, received: u64) -> bool {
        self.confirmed.saturating_sub(received) < self.size / 2 && self.has_news(self.confirmed)
    }

    /// Whether a peer that stands still at limit `at` should hear the newest. It
    /// cannot stand below what it confirmed: such a report is old, or a lie.
    pub(super) fn answers(&self, at: u64) -> bool {
        at >= self.confirmed && (self.granted > at || self.has_news(at))
    }

    fn has_news(&self, since: u64) -> bool {
        self.newest().saturating_sub(since) >= (self.size / LEAST_NEWS).max(1)
    }

    /// The limit that [`Self::grant`] would answer now.
    fn newest(&self) -> u64 {
        let newest = self.consumed.saturating_add(self.size);
        self.granted.max(newest.min(VARINT_MAX))
    }

    /// Grants all there is to grant and answers the new limit.
    pub(super) fn grant(&mut self, now: Instant, rtt: Duration) -> u64 {
        self.measure(now, rtt);
        self.granted = self.newest();
        self.granted
    }

    /// Bounds the window by `max`, and lets it have `initial` within that. Credit
    /// that was granted stays granted (RFC 9000 §4.1): a window that shrinks grants
    /// nothing more until as much has been consumed.
    pub(super) fn limit(&mut self, initial: u64, max: u64) {
        self.max = max;
        self.size = self.size.max(initial).min(max);
    }

    /// Makes the window at least `size` as far as its maximum allows.
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
        window.confirm(384 * KIB);
        window.confirm(300 * KIB);
        assert!(!window.is_short(256 * KIB));
        window.consume(16 * KIB - 1);
        assert!(!window.is_short(384 * KIB), "crumbs wait");
        window.consume(1);
        assert!(window.is_short(384 * KIB));
    }

    #[test]
    fn blocked_peer_is_answered_if_limit_was_raised() {
        let mut window = Window::new(256 * KIB, 256 * KIB, Instant::ZERO);
        assert!(!window.answers(256 * KIB));
        window.consume(16 * KIB - 1);
        assert!(!window.answers(256 * KIB), "crumbs wait");
        window.consume(1);
        assert!(window.answers(256 * KIB));
        window.grant(at(1_000), Duration::ZERO);
        assert!(window.answers(256 * KIB), "the update was lost");
        assert!(window.answers(272 * KIB - 1));
        assert!(!window.answers(272 * KIB));
        assert!(!window.answers(256 * KIB - 1), "it has had more");
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
