//! What a peer may cost us: every bound has a name, every refusal is counted.

use clearway_quic::Instant;

/// Bounds on one connection. Those on streams and on unread bodies are the
/// transport's: flow control and the limits of its `stream::Config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest field section taken, bytes as RFC 9114 §4.2.2 counts them; also the
    /// most encoded bytes buffered of one. Announced in SETTINGS.
    pub max_field_section: u64,
    /// Requests served at once; further ones are rejected, safe to retry.
    pub max_requests: usize,
    /// Interim responses to one request.
    pub max_informational: u8,
    /// Largest SETTINGS payload, bytes.
    pub max_settings: u64,
    /// Largest PRIORITY_UPDATE payload, bytes.
    pub max_priority_update: u64,
    /// Priorities remembered for requests that have not arrived.
    pub max_early_priorities: usize,
    /// Requests the peer may begin and abandon at once (rapid reset).
    pub abandoned_burst: u32,
    /// Abandoned requests forgiven per second.
    pub abandoned_per_second: u32,
    /// Frames and streams without use to us that may come at once: unknown ones,
    /// empty DATA, repeated control frames.
    pub idle_work_burst: u32,
    /// Those forgiven per second.
    pub idle_work_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_field_section: 64 << 10,
            max_requests: 1000,
            max_informational: 32,
            max_settings: 4 << 10,
            max_priority_update: 1 << 10,
            max_early_priorities: 100,
            abandoned_burst: 500,
            abandoned_per_second: 200,
            idle_work_burst: 10_000,
            idle_work_per_second: 2_000,
        }
    }
}

/// What was refused or odd, since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests received (server) or sent (client).
    pub requests: u64,
    /// Requests rejected unprocessed: too many at once, or after GOAWAY.
    pub rejected: u64,
    /// Messages found malformed.
    pub malformed: u64,
    /// Field sections larger than [`Limits::max_field_section`].
    pub too_large: u64,
    /// Requests the peer abandoned before their responses were complete.
    pub abandoned: u64,
    /// Frames and streams without use ([`Limits::idle_work_burst`]).
    pub idle_work: u64,
    /// Bytes of unknown frames that were skipped.
    pub skipped: u64,
    /// Priorities not remembered ([`Limits::max_early_priorities`]).
    pub priorities_dropped: u64,
    /// Datagrams for no stream of ours, or cut off.
    pub datagrams_dropped: u64,
    /// Interim responses received.
    pub informational: u64,
    /// Times that a field section waited for the dynamic table.
    pub blocked_sections: u64,
}

/// An allowance that refills with time, in whole events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    left: u32,
    burst: u32,
    per_second: u32,
    refilled: Instant,
}

impl Bucket {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        Self {
            left: burst,
            burst,
            per_second,
            refilled: Instant::ZERO,
        }
    }

    /// Takes one; false if there is none.
    pub(crate) fn take(&mut self) -> bool {
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }

    /// Gives back one.
    pub(crate) fn give(&mut self) {
        self.left = (self.left + 1).min(self.burst);
    }

    /// Adds what time has earned.
    pub(crate) fn refill(&mut self, now: Instant) {
        const SECOND: u128 = 1_000_000_000;
        if self.left == self.burst {
            self.refilled = self.refilled.max(now);
            return;
        }
        let nanos = now.saturating_since(self.refilled).as_nanos();
        let earned = nanos * u128::from(self.per_second) / SECOND;
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(self.burst);
            self.refilled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_bucket_runs_dry_and_refills_with_time() {
        let mut bucket = Bucket::new(3, 2);
        for expected in [true, true, true, false, false] {
            assert_eq!(bucket.take(), expected);
        }
        let later = |ms| Instant::ZERO + Duration::from_millis(ms);
        bucket.refill(later(400));
        assert!(!bucket.take());
        bucket.refill(later(500));
        assert!(bucket.take() && !bucket.take());
        bucket.refill(later(60_000));
        bucket.give();
        for expected in [true, true, true, false] {
            assert_eq!(bucket.take(), expected);
        }
    }

    #[test]
    fn a_full_bucket_saves_nothing_for_later() {
        let mut bucket = Bucket::new(1, 1);
        bucket.refill(Instant::ZERO + Duration::from_secs(100));
        assert!(bucket.take());
        bucket.refill(Instant::ZERO + Duration::from_millis(100_900));
        assert!(!bucket.take());
    }
}
