//! Whether a peer that is waited for gets on: sampled at intervals, so that it costs
//! nothing per packet.

use core::time::Duration;

/// How long, and how slowly, a peer may keep us waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Without a byte.
    pub(crate) silence: Duration,
    /// Bytes a second that it has to reach over [`Self::period`].
    pub(crate) min_rate: u32,
}

/// The rate is that over so many times the silence that is allowed: bytes that come
/// in bursts are no slower than others.
const PERIODS: u32 = 5;

impl Patience {
    /// Over how long the rate is measured.
    pub(crate) fn period(self) -> Duration {
        self.silence.saturating_mul(PERIODS)
    }

    /// Bytes to come in one period.
    fn quota(self) -> u128 {
        let second = Duration::from_secs(1).as_nanos();
        self.period()
            .as_nanos()
            .saturating_mul(self.min_rate.into())
            .checked_div(second)
            .unwrap_or(0)
    }
}

/// What was seen of one stream in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Bytes so far, at the last sample.
    bytes: u64,
    /// Bytes when the current period began.
    base: u64,
    /// The peer was waited for at the last sample.
    waiting: bool,
    /// Time waited since the last byte.
    quiet: Duration,
    /// Time waited in the current period.
    waited: Duration,
}

impl Progress {
    /// Takes a sample, `elapsed` after the last one: bytes so far, and whether more of
    /// them is up to the peer now. False once the peer has used up our patience.
    pub(crate) fn sample(
        &mut self,
        bytes: u64,
        waiting: bool,
        elapsed: Duration,
        patience: Patience,
    ) -> bool {
        // What lies between two samples counts if the peer was waited for at both.
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
        if self.waited >= patience.period() {
            let fast = u128::from(bytes.saturating_sub(self.base)) >= patience.quota();
            if !fast {
                return false;
            }
            self.base = bytes;
            self.waited = Duration::ZERO;
        }
        self.quiet < patience.silence
    }

    /// Takes a sample of something that has to be done within `limit`, whatever comes
    /// meanwhile; `begun`: it is under way. False once it took too long.
    pub(crate) fn sample_whole(&mut self, begun: bool, elapsed: Duration, limit: Duration) -> bool {
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
    const PATIENCE: Patience = Patience {
        silence: Duration::from_secs(10),
        min_rate: 3,
    };

    /// Seconds after which patience ends, given what one second brings.
    fn ends(mut second: impl FnMut(u64) -> (u64, bool)) -> Option<u64> {
        let mut progress = Progress::default();
        let mut bytes = 0;
        (0..1_000).find(|&at| {
            let (more, waiting) = second(at);
            bytes += more;
            !progress.sample(bytes, waiting, SECOND, PATIENCE)
        })
    }

    #[test]
    fn silence_ends_it_after_its_time_and_not_before() {
        assert_eq!(ends(|_| (0, true)), Some(10));
        assert_eq!(ends(|at| (u64::from(at == 7) * 500, true)), Some(17));
        assert_eq!(ends(|_| (3, true)), None);
    }

    #[test]
    fn dribble_ends_it_after_one_period() {
        assert_eq!(ends(|at| (u64::from(at % 9 == 0), true)), Some(50));
        assert_eq!(ends(|_| (2, true)), Some(50));
    }

    #[test]
    fn bursts_are_measured_over_the_period() {
        assert_eq!(ends(|at| (u64::from(at % 9 == 0) * 30, true)), None);
    }

    #[test]
    fn time_in_which_nothing_is_up_to_the_peer_does_not_count() {
        assert_eq!(ends(|_| (0, false)), None);
        // Of nine seconds seven lie between two samples that wait: 49 in 63.
        assert_eq!(ends(|at| (0, at % 9 != 0)), Some(63 + 2));
    }

    #[test]
    fn zero_rate_asks_for_no_rate() {
        let mut progress = Progress::default();
        let patience = Patience {
            min_rate: 0,
            ..PATIENCE
        };
        for at in 0..1_000 {
            assert!(progress.sample(at / 9, true, SECOND, patience), "{at}");
        }
    }

    #[test]
    fn whole_thing_has_one_limit_from_its_beginning() {
        let mut progress = Progress::default();
        let limit = Duration::from_secs(10);
        for at in 0..20 {
            assert!(progress.sample_whole(false, SECOND, limit), "{at}");
        }
        let ended = (0..20).find(|_| !progress.sample_whole(true, SECOND, limit));
        assert_eq!(ended, Some(10));
    }
}
