//! Limits on the resources that a peer can use. Every limit has a name, and whatever exceeds one is
//! counted.

use core::time::Duration;

use clearway_quic::Instant;

/// Limits of one connection. The number of streams and the size of unread bodies are limited by the
/// transport: by flow control and its `stream::Config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a field section, in bytes as RFC 9114 §4.2.2 counts them; also the maximum
    /// length of its encoded form. Announced as SETTINGS_MAX_FIELD_SECTION_SIZE.
    ///
    /// 64 KiB, twice what nginx accepts by default (`large_client_header_buffers`, 4 × 8 KiB).
    pub max_field_section: u64,
    /// Maximum number of concurrent requests. Further requests are rejected, and are safe to retry.
    ///
    /// 1,000, which bounds the table of requests whatever stream limit the transport has.
    pub max_requests: usize,
    /// Maximum number of fields in a section. A field may take a single byte on the wire.
    ///
    /// 512: browsers send up to 180 cookies as separate fields.
    pub max_fields: usize,
    /// Maximum bytes buffered for field sections that have not arrived completely, over all
    /// requests. A request that would exceed it is rejected, and is safe to retry. Sections that
    /// are blocked on the dynamic table are limited by `Config::qpack_blocked_streams`.
    ///
    /// 1 MiB, 16 of the largest sections.
    pub max_incomplete_sections: usize,
    /// Maximum number of interim responses to one request. 32.
    pub max_informational: u8,
    /// Maximum length of the SETTINGS payload, in bytes. 4 KiB, more than 250 settings.
    pub max_settings: u64,
    /// Maximum length of a PRIORITY_UPDATE payload, in bytes. 1 KiB; usual ones have under 20
    /// bytes.
    pub max_priority_update: u64,
    /// Maximum number of PRIORITY_UPDATE frames remembered for requests that have not arrived. 100.
    pub max_early_priorities: usize,
    /// Maximum number of HTTP datagrams kept for requests that have not arrived (RFC 9297 §2.1). The
    /// oldest are dropped and counted.
    ///
    /// 32, what a few tunnels send within the time by which packets are reordered.
    pub max_early_datagrams: usize,
    /// Maximum bytes of those datagrams. 48 KiB, 32 of the usual size.
    pub max_early_datagram_bytes: usize,
    /// Maximum number of WebTransport streams kept for sessions that have not been accepted
    /// (draft-ietf-webtrans-http3 §4.6). Further ones are rejected and counted.
    ///
    /// 32: a client that does not wait for the response opens a few streams behind its request.
    pub max_early_session_streams: u16,
    /// Maximum number of requests that may end early at once because of the client: it resets them
    /// (rapid reset, CVE-2023-44487), or they are malformed, too large, too slow or too many, so
    /// that we reset them (CVE-2025-8671). Beyond it the connection is closed with
    /// `H3_EXCESSIVE_LOAD`. A request that is answered completely makes up for one of them.
    pub abandoned_burst: u32,
    /// How many of those are allowed per second in the long run.
    pub abandoned_per_second: u32,
    /// Maximum number of frames, streams and instructions without effect at once: unknown types,
    /// empty DATA frames, repeated control frames, stream cancellations. PRIORITY_UPDATE frames
    /// count too, but a request makes up for 8. Beyond it the connection is closed with
    /// `H3_EXCESSIVE_LOAD`.
    pub useless_frames_burst: u32,
    /// How many of those are allowed per second in the long run.
    pub useless_frames_per_second: u32,
    /// Maximum number of changes that the peer may make at once to the dynamic table of our
    /// decoder. Each takes a few bytes on the wire; a decoded field section makes up for 16. Beyond
    /// it the connection is closed with `H3_EXCESSIVE_LOAD`.
    pub table_updates_burst: u32,
    /// How many of those are allowed per second in the long run.
    pub table_updates_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_field_section: 64 << 10,
            max_requests: 1000,
            max_fields: 512,
            max_incomplete_sections: 1 << 20,
            max_informational: 32,
            max_settings: 4 << 10,
            max_priority_update: 1 << 10,
            max_early_priorities: 100,
            max_early_datagrams: 32,
            max_early_datagram_bytes: 48 << 10,
            max_early_session_streams: 32,
            abandoned_burst: 500,
            abandoned_per_second: 200,
            useless_frames_burst: 10_000,
            useless_frames_per_second: 2_000,
            table_updates_burst: 4_000,
            table_updates_per_second: 2_000,
        }
    }
}

/// Counters of a connection: its requests, and what was rejected or unusual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests received (server) or sent (client).
    pub requests: u64,
    /// Requests rejected without processing: too many at once, too many bytes of incomplete field
    /// sections, or after GOAWAY.
    pub rejected: u64,
    /// Malformed messages.
    pub malformed: u64,
    /// Field sections larger than [`Limits::max_field_section`].
    pub too_large: u64,
    /// Requests that the peer abandoned before it had received the responses.
    pub abandoned: u64,
    /// Requests that missed a deadline of [`Timeouts`](crate::Timeouts).
    pub timed_out: u64,

    /// Frames, streams and instructions without effect ([`Limits::useless_frames_burst`]).
    pub useless_frames: u64,
    /// Bytes of skipped frames of unknown types.
    pub skipped: u64,
    /// PRIORITY_UPDATE frames that were dropped ([`Limits::max_early_priorities`]).
    pub priorities_dropped: u64,
    /// HTTP datagrams that were dropped, because there is no such request or they were not
    /// negotiated.
    pub datagrams_dropped: u64,
    /// WebTransport streams that were rejected: their session has ended or never existed, or too many
    /// came before it ([`Limits::max_early_session_streams`]).
    pub session_streams_rejected: u64,
    /// Interim responses received.
    pub informational: u64,
    /// How often a field section was blocked on the dynamic table.
    pub blocked_sections: u64,
}

/// One token, in units that make the tokens earned in a nanosecond a whole number.
const TOKEN: u64 = 1_000_000_000;

/// A token bucket. Its size and its rate are passed to each call, because the caller has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket(u64);

impl TokenBucket {
    pub(crate) fn new(burst: u32) -> Self {
        Self(u64::from(burst).saturating_mul(TOKEN))
    }

    /// Takes a token. Returns false if there is none.
    pub(crate) fn take(&mut self) -> bool {
        self.take_many(1)
    }

    /// Takes `count` tokens. If there are fewer, takes what there is and returns false.
    pub(crate) fn take_many(&mut self, count: u64) -> bool {
        let left = self.0.checked_sub(count.saturating_mul(TOKEN));
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns `count` tokens to the bucket, which holds at most `burst`.
    pub(crate) fn refund(&mut self, count: u32, burst: u32) {
        self.add(u64::from(count).saturating_mul(TOKEN), burst);
    }

    /// Adds the tokens earned in `elapsed`, up to `burst`.
    pub(crate) fn refill(&mut self, elapsed: Duration, burst: u32, per_second: u32) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.add(nanos.saturating_mul(per_second.into()), burst);
    }

    fn add(&mut self, more: u64, burst: u32) {
        self.0 = self.0.saturating_add(more).min(Self::new(burst).0);
    }
}

/// The token buckets of a connection, and when they were last refilled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimits {
    /// [`Limits::abandoned_burst`].
    pub(crate) abandoned: TokenBucket,
    /// [`Limits::useless_frames_burst`].
    pub(crate) useless_frames: TokenBucket,
    /// [`Limits::table_updates_burst`].
    pub(crate) table_updates: TokenBucket,
    refilled: Instant,
}

/// The shortest time between two refills.
const REFILL_INTERVAL: Duration = Duration::from_millis(1);

impl RateLimits {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            abandoned: TokenBucket::new(limits.abandoned_burst),
            useless_frames: TokenBucket::new(limits.useless_frames_burst),
            table_updates: TokenBucket::new(limits.table_updates_burst),
            refilled: Instant::ZERO,
        }
    }

    /// Refills the buckets for the time since the last refill. Does nothing within a millisecond of
    /// that, because it is called several times per request.
    pub(crate) fn refill(&mut self, now: Instant, limits: &Limits) {
        let elapsed = now.saturating_since(self.refilled);
        if elapsed < REFILL_INTERVAL {
            return;
        }
        self.refilled = self.refilled.max(now);
        let (burst, rate) = (limits.abandoned_burst, limits.abandoned_per_second);
        self.abandoned.refill(elapsed, burst, rate);
        let (burst, rate) = (
            limits.useless_frames_burst,
            limits.useless_frames_per_second,
        );
        self.useless_frames.refill(elapsed, burst, rate);
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
    fn empty_bucket_refills_with_time() {
        let mut bucket = TokenBucket::new(3);
        for expected in [true, true, true, false, false] {
            assert_eq!(bucket.take(), expected);
        }
        bucket.refill(ms(400), 3, 2);
        assert!(!bucket.take());
        bucket.refill(ms(499), 3, 2);
        assert!(!bucket.take(), "a failed take empties the bucket");
        bucket.refill(ms(250), 3, 2);
        bucket.refill(ms(250), 3, 2);
        assert!(bucket.take() && !bucket.take());
        bucket.refill(ms(60_000), 3, 2);
        bucket.refund(1, 3);
        for expected in [true, true, true, false] {
            assert_eq!(bucket.take(), expected);
        }
    }

    #[test]
    fn taking_too_many_tokens_empties_the_bucket() {
        let mut bucket = TokenBucket::new(5);
        assert!(bucket.take_many(3));
        assert!(!bucket.take_many(3));
        assert!(!bucket.take());
        bucket.refund(9, 5);
        assert!(bucket.take_many(5) && !bucket.take());
        let mut largest = TokenBucket::new(u32::MAX);
        assert!(largest.take_many(u32::MAX.into()) && !largest.take());
        assert!(!largest.take_many(u64::MAX));
    }

    #[test]
    fn full_bucket_does_not_accumulate_more() {
        let limits = Limits {
            abandoned_burst: 1,
            abandoned_per_second: 1,
            ..Limits::default()
        };
        let mut rate_limits = RateLimits::new(&limits);
        rate_limits.refill(Instant::ZERO + ms(100_000), &limits);
        assert!(rate_limits.abandoned.take());
        rate_limits.refill(Instant::ZERO + ms(100_900), &limits);
        assert!(!rate_limits.abandoned.take());
        rate_limits.refill(Instant::ZERO, &limits);
        assert!(!rate_limits.abandoned.take(), "time went back");
    }
}
