//! What a peer may cost us: every bound has a name, every refusal is counted.

use core::time::Duration;

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
    /// Fields of one section: what stands for one on the wire may be a byte.
    pub max_fields: usize,
    /// Bytes held of field sections that have arrived in part, over all requests.
    /// Beyond it the request that needs more is rejected, safe to retry. Sections that
    /// wait for the dynamic table are bounded by `Config::qpack_blocked_streams`.
    pub max_gathered: usize,
    /// Interim responses to one request.
    pub max_informational: u8,
    /// Largest SETTINGS payload, bytes.
    pub max_settings: u64,
    /// Largest PRIORITY_UPDATE payload, bytes.
    pub max_priority_update: u64,
    /// Priorities remembered for requests that have not arrived.
    pub max_early_priorities: usize,
    /// Requests that may end before their answer has arrived, by the client's doing: it
    /// resets them (rapid reset, CVE-2023-44487), or they are malformed, too large, too
    /// slow or too many, so that we reset them (CVE-2025-8671). Beyond it the
    /// connection ends with `H3_EXCESSIVE_LOAD`. A request answered to its end makes up
    /// for one of them.
    pub abandoned_burst: u32,
    /// Of those, how many are forgiven per second.
    pub abandoned_per_second: u32,
    /// Frames, streams and instructions without use to us that may come at once: unknown
    /// ones, empty DATA, repeated control frames, cancellations of streams.
    pub idle_work_burst: u32,
    /// Those forgiven per second.
    pub idle_work_per_second: u32,
    /// Changes that the peer may make at once to the table that our decoder keeps for
    /// it; some bytes of the wire each, a field section decoded makes up for 16.
    pub table_updates_burst: u32,
    /// Those forgiven per second.
    pub table_updates_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_field_section: 64 << 10,
            max_requests: 1000,
            // Browsers send up to 180 cookies in fields of their own.
            max_fields: 512,
            max_gathered: 1 << 20,
            max_informational: 32,
            max_settings: 4 << 10,
            max_priority_update: 1 << 10,
            max_early_priorities: 100,
            abandoned_burst: 500,
            abandoned_per_second: 200,
            idle_work_burst: 10_000,
            idle_work_per_second: 2_000,
            table_updates_burst: 4_000,
            table_updates_per_second: 2_000,
        }
    }
}

/// What was refused or odd, since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests received (server) or sent (client).
    pub requests: u64,
    /// Requests rejected unprocessed: too many at once, too much of them unfinished, or
    /// after GOAWAY.
    pub rejected: u64,
    /// Messages found malformed.
    pub malformed: u64,
    /// Field sections larger than [`Limits::max_field_section`].
    pub too_large: u64,
    /// Requests the peer abandoned before it had their responses.
    pub abandoned: u64,
    /// Requests that missed one of the [`Timeouts`](crate::Timeouts).
    pub timed_out: u64,

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

/// One event, in what an allowance is kept in: what a nanosecond earns of it is whole.
const EVENT: u64 = 1_000_000_000;

/// An allowance that refills with time. How much there may be at most, and how fast it
/// refills, is the caller's to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket(u64);

impl Bucket {
    pub(crate) fn new(burst: u32) -> Self {
        Self(u64::from(burst).saturating_mul(EVENT))
    }

    /// Takes one; false if there is none.
    pub(crate) fn take(&mut self) -> bool {
        self.take_many(1)
    }

    /// Takes so many; false, and nothing is left, if there are fewer.
    pub(crate) fn take_many(&mut self, count: u64) -> bool {
        let left = self.0.checked_sub(count.saturating_mul(EVENT));
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// Gives back so many, up to `burst`.
    pub(crate) fn give(&mut self, count: u32, burst: u32) {
        self.add(u64::from(count).saturating_mul(EVENT), burst);
    }

    /// Adds what so much time has earned, up to `burst`.
    pub(crate) fn refill(&mut self, elapsed: Duration, burst: u32, per_second: u32) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.add(nanos.saturating_mul(per_second.into()), burst);
    }

    fn add(&mut self, more: u64, burst: u32) {
        self.0 = self.0.saturating_add(more).min(Self::new(burst).0);
    }
}

/// What the peer may do so often, and when that was last refilled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowances {
    /// [`Limits::abandoned_burst`].
    pub(crate) abandoned: Bucket,
    /// [`Limits::idle_work_burst`].
    pub(crate) idle_work: Bucket,
    /// [`Limits::table_updates_burst`].
    pub(crate) table_updates: Bucket,
    refilled: Instant,
}

/// Time whose earnings are added at once.
const AT_ONCE: Duration = Duration::from_millis(1);

impl Allowances {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            abandoned: Bucket::new(limits.abandoned_burst),
            idle_work: Bucket::new(limits.idle_work_burst),
            table_updates: Bucket::new(limits.table_updates_burst),
            refilled: Instant::ZERO,
        }
    }

    /// Adds what the time since it last did so has earned, once that is a millisecond:
    /// it is called for every request, several times.
    pub(crate) fn refill(&mut self, now: Instant, limits: &Limits) {
        let elapsed = now.saturating_since(self.refilled);
        if elapsed < AT_ONCE {
            return;
        }
        self.refilled = self.refilled.max(now);
        let (burst, rate) = (limits.abandoned_burst, limits.abandoned_per_second);
        self.abandoned.refill(elapsed, burst, rate);
        let (burst, rate) = (limits.idle_work_burst, limits.idle_work_per_second);
        self.idle_work.refill(elapsed, burst, rate);
        let (burst, rate) = (limits.table_updates_burst, limits.table_updates_per_second);
        self.table_updates.refill(elapsed, burst, rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_bucket_runs_dry_and_refills_with_time() {
        let mut bucket = Bucket::new(3);
        for expected in [true, true, true, false, false] {
            assert_eq!(bucket.take(), expected);
        }
        bucket.refill(ms(400), 3, 2);
        assert!(!bucket.take());
        bucket.refill(ms(499), 3, 2);
        assert!(!bucket.take(), "what was too little is gone");
        bucket.refill(ms(250), 3, 2);
        bucket.refill(ms(250), 3, 2);
        assert!(bucket.take() && !bucket.take());
        bucket.refill(ms(60_000), 3, 2);
        bucket.give(1, 3);
        for expected in [true, true, true, false] {
            assert_eq!(bucket.take(), expected);
        }
    }

    #[test]
    fn taking_more_than_there_is_leaves_nothing() {
        let mut bucket = Bucket::new(5);
        assert!(bucket.take_many(3));
        assert!(!bucket.take_many(3));
        assert!(!bucket.take());
        bucket.give(9, 5);
        assert!(bucket.take_many(5) && !bucket.take());
        let mut largest = Bucket::new(u32::MAX);
        assert!(largest.take_many(u32::MAX.into()) && !largest.take());
        assert!(!largest.take_many(u64::MAX));
    }

    #[test]
    fn a_full_bucket_saves_nothing_for_later() {
        let limits = Limits {
            abandoned_burst: 1,
            abandoned_per_second: 1,
            ..Limits::default()
        };
        let mut allowances = Allowances::new(&limits);
        allowances.refill(Instant::ZERO + ms(100_000), &limits);
        assert!(allowances.abandoned.take());
        allowances.refill(Instant::ZERO + ms(100_900), &limits);
        assert!(!allowances.abandoned.take());
        allowances.refill(Instant::ZERO, &limits);
        assert!(!allowances.abandoned.take(), "time went back");
    }
}
