//! Which kind of queue marks: an L4S queue, or a classic one, which treats ECT(1) as ECT(0).
//!
//! A classic queue marks late, so that a flow which halves at a mark can still fill the path. It
//! gives the same marks to all flows, and one that reduces by the share of marks takes nearly
//! everything from those that halve (draft-briscoe-tsvwg-ecn-fallback). The two differ in the
//! delay at which they mark: about a millisecond (RFC 9332 §4), or five and more (RFC 8289
//! §4.3, RFC 8033 §4.1). The delay is the least of a round's, because jitter only adds to it.

use core::time::Duration;

/// Queueing delay above which a queue that marks is a classic one: between the millisecond of an
/// L4S queue, with a burst, and CoDel's five.
const CLASSIC_DELAY: Duration = Duration::from_millis(3);

/// Datagrams that an L4S queue may hold even where they take longer than that: two, as one ACK
/// lets two leave at once.
const CLASSIC_DATAGRAMS: u32 = 2;

/// Rounds with marks at a long queue, beyond those with marks at a short one, that make it a
/// classic queue. The end of slow start leaves a long queue for a few rounds.
const ROUNDS: u8 = 8;

/// Judges the queue by the rounds that had marks. Others say nothing: before its first mark, a
/// queue of any kind may hold what other flows have left there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueKind {
    /// The least RTT sample of this round.
    least: Option<Duration>,
    /// Rounds with a long queue less those with a short one, within 0 and `ROUNDS`.
    score: u8,
    classic: bool,
}

impl QueueKind {
    /// Adds an RTT sample of this round.
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
    }

    /// Ends a round. `datagram` returns the time between two datagrams at the flow's own rate.
    pub(super) fn end_round(
        &mut self,
        marked: bool,
        min_rtt: Duration,
        datagram: impl FnOnce() -> Duration,
    ) {
        let Some(least) = self.least.take().filter(|_| marked) else {
            return;
        };
        let longest = CLASSIC_DELAY.max(datagram().saturating_mul(CLASSIC_DATAGRAMS));
        if least.saturating_sub(min_rtt) > longest {
            self.score = (self.score + 1).min(ROUNDS);
            self.classic |= self.score == ROUNDS;
        } else {
            self.score = self.score.saturating_sub(1);
            self.classic &= self.score > 0;
        }
    }

    /// Returns whether the queue is a classic one.
    pub(super) fn is_classic(self) -> bool {
        self.classic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PATH: Duration = Duration::from_millis(40);

    fn rounds(kind: &mut QueueKind, count: u8, queue: Duration, marked: bool) {
        for _ in 0..count {
            // Jitter does not matter.
            kind.sample(PATH + queue + 30 * MS);
            kind.sample(PATH + queue);
            kind.sample(PATH + queue + 9 * MS);
            kind.end_round(marked, PATH, || MS / 2);
        }
    }

    #[test]
    fn queue_that_marks_late_is_classic_after_eight_rounds() {
        let mut kind = QueueKind::default();
        rounds(&mut kind, 7, 5 * MS, true);
        assert!(!kind.is_classic());
        rounds(&mut kind, 1, 5 * MS, true);
        assert!(kind.is_classic());
    }

    #[test]
    fn queue_that_marks_early_is_not_classic() {
        let mut kind = QueueKind::default();
        rounds(&mut kind, 200, 3 * MS, true);
        assert!(!kind.is_classic());
        // A long queue now and then.
        for _ in 0..100 {
            rounds(&mut kind, 1, 20 * MS, true);
            rounds(&mut kind, 1, MS, true);
        }
        assert!(!kind.is_classic());
    }

    #[test]
    fn rounds_without_marks_say_nothing() {
        let mut kind = QueueKind::default();
        rounds(&mut kind, 100, 50 * MS, false);
        assert!(!kind.is_classic());
        rounds(&mut kind, 8, 50 * MS, true);
        rounds(&mut kind, 100, Duration::ZERO, false);
        assert!(kind.is_classic());
    }

    #[test]
    fn queue_that_marks_early_again_is_l4s_after_eight_rounds() {
        let mut kind = QueueKind::default();
        rounds(&mut kind, 100, 5 * MS, true);
        rounds(&mut kind, 7, MS, true);
        assert!(kind.is_classic());
        rounds(&mut kind, 1, MS, true);
        assert!(!kind.is_classic());
    }

    /// At 10 Mbit/s a datagram takes 1.2 ms, and at 2 Mbit/s 6 ms.
    #[test]
    fn two_datagrams_are_a_short_queue_at_any_rate() {
        for (queue, classic) in [(12 * MS, false), (13 * MS, true)] {
            let mut kind = QueueKind::default();
            for _ in 0..8 {
                kind.sample(PATH + queue);
                kind.end_round(true, PATH, || 6 * MS);
            }
            assert_eq!(kind.is_classic(), classic);
        }
    }

    #[test]
    fn round_without_a_sample_says_nothing() {
        let mut kind = QueueKind::default();
        for _ in 0..100 {
            kind.end_round(true, PATH, || MS);
        }
        assert!(!kind.is_classic());
    }
}
