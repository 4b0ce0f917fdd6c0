//! Detects peers that make no progress, or too little. Progress is sampled at intervals, so that it
//! costs nothing per packet.

use core::time::Duration;

/// How little progress a peer may make while we wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgressLimits {
    /// The longest time without a byte.
    pub(crate) timeout: Duration,
    /// The minimum average rate over [`Self::period`], in bytes per second.
    pub(crate) min_rate: u32,
}

/// The rate is measured over this many timeouts, so that data which arrives in bursts counts like
/// any other.
const TIMEOUTS_PER_PERIOD: u32 = 5;

impl ProgressLimits {
    /// The period over which the rate is measured.
    pub(crate) fn period(self) -> Duration {
        self.timeout.saturating_mul(TIMEOUTS_PER_PERIOD)
    }

    /// How many bytes have to arrive in a period.
    fn quota(self) -> u128 {
        let second = Duration::from_secs(1).as_nanos();
        self.period()
            .as_nanos()
            .saturating_mul(self.min_rate.into())
            .checked_div(second)
            .unwrap_or(0)
    }
}

/// The progress of one direction of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Total bytes at the last sample.
    bytes: u64,
    /// Total bytes when the current period began.
    base: u64,
    /// Whether we waited for the peer at the last sample.
    waiting: bool,
    /// How long we have waited since the last byte.
    quiet: Duration,
    /// How long we have waited in the current period.
    waited: Duration,
}

impl Progress {
    /// Takes a sample, `elapsed` after the last one: the total bytes so far, and whether we wait
    /// for the peer to send or accept more. Returns false once the peer has exceeded the limits.
    pub(crate) fn sample(
        &mut self,
        bytes: u64,
        waiting: bool,
        elapsed: Duration,
        limits: ProgressLimits,
    ) -> bool {
        // The time between two samples counts if we waited for the peer at both.
        let waited = waiting && core::mem::replace(&mut self.waiting, waiting);
        let elapsed = if waited { elapsed } else { Duration::ZERO };
        self.waiting = waiting;
        if bytes != self.bytes || !waiting {
            self.bytes = bytes;
            self.quiet = Duration::ZERO;
        } else {
            self.quiet = self.quiet.saturating_add(elapsed);
        }
        self.waited = self.waited.saturating_add(elapsed);
        if self.waited >= limits.period() {
            let fast = u128::from(bytes.saturating_sub(self.base)) >= limits.quota();
            if !fast {
                return false;
            }
            self.base = bytes;
            self.waited = Duration::ZERO;
        }
        self.quiet < limits.timeout
    }

    /// Takes a sample of something that has to be complete within `limit`, whatever arrives
    /// meanwhile. `begun` says whether it has begun. Returns false once it has taken too long.
    pub(crate) fn sample_total(&mut self, begun: bool, elapsed: Duration, limit: Duration) -> bool {
        if begun && core::mem::replace(&mut self.waiting, begun) {
            self.waited = self.waited.saturating_add(elapsed);
        }
        self.waited < limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: ProgressLimits = ProgressLimits {
        timeout: Duration::from_secs(10),
        min_rate: 3,
    };

    /// Returns after how many seconds the limits are exceeded, given the bytes of each second and
    /// whether the peer is waited for.
    fn seconds_until_exceeded(mut second: impl FnMut(u64) -> (u64, bool)) -> Option<u64> {
        let mut progress = Progress::default();
        let mut bytes = 0;
        (0..1_000).find(|&at| {
            let (more, waiting) = second(at);
            bytes += more;
            !progress.sample(bytes, waiting, SECOND, LIMITS)
        })
    }

    #[test]
    fn silent_peer_exceeds_the_limits_after_the_timeout() {
        assert_eq!(seconds_until_exceeded(|_| (0, true)), Some(10));
        assert_eq!(
            seconds_until_exceeded(|at| (u64::from(at == 7) * 500, true)),
            Some(17)
        );
        assert_eq!(seconds_until_exceeded(|_| (3, true)), None);
    }

    #[test]
    fn slow_peer_exceeds_the_limits_after_one_period() {
        assert_eq!(
            seconds_until_exceeded(|at| (u64::from(at % 9 == 0), true)),
            Some(50)
        );
        assert_eq!(seconds_until_exceeded(|_| (2, true)), Some(50));
    }

    #[test]
    fn bursts_are_averaged_over_the_period() {
        assert_eq!(
            seconds_until_exceeded(|at| (u64::from(at % 9 == 0) * 30, true)),
            None
        );
    }

    #[test]
    fn time_in_which_the_peer_is_not_waited_for_does_not_count() {
        assert_eq!(seconds_until_exceeded(|_| (0, false)), None);
        // In nine seconds, seven lie between two samples that both wait: 49 in 63.
        assert_eq!(seconds_until_exceeded(|at| (0, at % 9 != 0)), Some(63 + 2));
    }

    #[test]
    fn zero_rate_is_no_minimum() {
        let mut progress = Progress::default();
        let limits = ProgressLimits {
            min_rate: 0,
            ..LIMITS
        };
        for at in 0..1_000 {
            assert!(progress.sample(at / 9, true, SECOND, limits), "{at}");
        }
    }

    #[test]
    fn total_limit_counts_from_the_beginning() {
        let mut progress = Progress::default();
        let limit = Duration::from_secs(10);
        for at in 0..20 {
            assert!(progress.sample_total(false, SECOND, limit), "{at}");
        }
        let ended = (0..20).find(|_| !progress.sample_total(true, SECOND, limit));
        assert_eq!(ended, Some(10));
    }
}
