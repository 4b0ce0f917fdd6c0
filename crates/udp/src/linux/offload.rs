//! The number of datagrams per message, and how long a rejection is remembered.
//!
//! The kernel segments trains itself, so a rejection is about the route (IPsec, before 6.11 an
//! interface without checksums) or the socket, and routes change. It is believed only with proof:
//! the same train rejected twice, and a datagram of it sent at once. Then datagrams are sent one at
//! a time for a while, at first a second, before a train is tried again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::warning_interval::WarningInterval;

/// First wait before a train is tried again. It costs one train's worth of extra calls.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How often the wait doubles after further rejections: up to about a minute, so that a changed
/// route is used soon.
const DOUBLINGS: u32 = 6;

/// The current number of datagrams per message.
#[derive(Debug)]
pub(super) struct Offload {
    granted: usize,
    limit: AtomicUsize,
    refusals: Mutex<Refusals>,
    warning: WarningInterval,
}

#[derive(Debug, Default)]
struct Refusals {
    in_a_row: u32,
    /// When a train of the granted size may be tried again.
    retry_at: Option<Instant>,
}

impl Offload {
    /// For a kernel that accepts `granted` datagrams per message.
    pub(super) fn new(granted: usize) -> Self {
        Self {
            granted,
            limit: AtomicUsize::new(granted),
            refusals: Mutex::default(),
            warning: WarningInterval::default(),
        }
    }

    /// Datagrams that one message may carry; `now` is called only after a rejection.
    pub(super) fn segments(&self, now: impl FnOnce() -> Instant) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == self.granted {
            return limit;
        }
        let retry_at = self.lock().retry_at;
        if retry_at.is_some_and(|at| now() >= at) {
            self.granted
        } else {
            limit
        }
    }

    /// A train of `segments` was sent.
    pub(super) fn accepted(&self, segments: usize) {
        if segments > self.limit.load(Ordering::Relaxed) {
            self.limit.store(self.granted, Ordering::Relaxed);
            *self.lock() = Refusals::default();
        }
    }

    /// The kernel was proven to reject a train of `segments`; it may accept `limit`.
    pub(super) fn refused(
        &self,
        now: Instant,
        segments: usize,
        limit: usize,
        error: &std::io::Error,
    ) {
        let mut refusals = self.lock();
        let pause = FIRST_PAUSE.saturating_mul(1 << refusals.in_a_row.min(DOUBLINGS));
        refusals.in_a_row = refusals.in_a_row.saturating_add(1);
        refusals.retry_at = now.checked_add(pause);
        drop(refusals);
        self.limit.store(limit, Ordering::Relaxed);
        if self.warning.is_due(now) {
            tracing::warn!(
                "the kernel refused to segment a train of {segments} datagrams ({error}): \
                 sending {limit} at a time for the next {pause:?}, which costs more CPU time"
            );
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(offload: &Offload, now: Instant) {
        offload.refused(now, 10, 1, &std::io::Error::from_raw_os_error(libc::EIO));
    }

    #[test]
    fn refusal_counts_for_a_time_that_doubles_to_a_minute() {
        let offload = Offload::new(64);
        let mut now = Instant::now();
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            refuse(&offload, now);
            let pause = Duration::from_secs(seconds);
            assert_eq!(
                offload.segments(|| now + pause - Duration::from_millis(1)),
                1
            );
            now += pause;
            assert_eq!(offload.segments(|| now), 64, "after {seconds} s");
        }
    }

    #[test]
    fn accepted_train_ends_the_refusal() {
        let offload = Offload::new(64);
        let now = Instant::now();
        refuse(&offload, now);
        offload.accepted(1);
        assert_eq!(
            offload.segments(|| now),
            1,
            "a single datagram proves nothing"
        );
        offload.accepted(10);
        assert_eq!(
            offload.segments(|| unreachable!("no refusal, no clock")),
            64
        );
    }
}
