//! `HyStart++`: leaving slow start when the RTT rises, before the queue
//! overflows (RFC 9406).

use core::time::Duration;

use crate::controller::SendIndex;

use super::slow_start::SlowStartDecision;

/// `MIN_RTT_THRESH` (RFC 9406 §4.3).
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
/// `MAX_RTT_THRESH` (RFC 9406 §4.3).
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
/// `MIN_RTT_DIVISOR` (RFC 9406 §4.3).
const MIN_RTT_DIVISOR: u32 = 8;
/// `N_RTT_SAMPLE`: samples a round needs before it is judged (RFC 9406 §4.3).
const N_RTT_SAMPLE: u32 = 8;
/// `CSS_GROWTH_DIVISOR` (RFC 9406 §4.3).
const CSS_GROWTH_DIVISOR: u64 = 4;
/// `CSS_ROUNDS` (RFC 9406 §4.3).
const CSS_ROUNDS: u32 = 5;

/// The initial slow start of a path, round by round.
///
/// `L`, the bound on the growth of one ACK, is infinite: packets are paced here
/// (RFC 9406 §4.3).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyStart {
    /// The round ends when a packet at or after this position is acknowledged.
    round_end: SendIndex,
    /// Smallest RTT of the round before; `None` if it had no sample.
    last_min: Option<Duration>,
    /// Smallest RTT of this round.
    current_min: Option<Duration>,
    /// RTT samples of this round.
    samples: u32,
    /// Set while in conservative slow start.
    conservative: Option<Conservative>,
}

/// Conservative slow start, which finds out whether the rise of the RTT was real.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// RTT at which it was entered.
    baseline: Duration,
    /// Rounds ended in it; the one it began in counts.
    rounds: u32,
}

impl HyStart {
    /// Returns whether it is in conservative slow start.
    pub(super) fn is_conservative(&self) -> bool {
        self.conservative.is_some()
    }

    /// Handles an ACK in slow start.
    pub(super) fn on_ack(
        &mut self,
        largest: SendIndex,
        next: SendIndex,
        rtt: Option<Duration>,
    ) -> SlowStartDecision {
        // The packet that ends a round was sent in the one that now begins, so
        // its sample belongs there.
        if largest >= self.round_end && self.end_round(next) {
            return SlowStartDecision::Leave;
        }
        if let Some(rtt) = rtt {
            self.sample(rtt);
        }
        let divisor = match self.conservative {
            Some(_) => CSS_GROWTH_DIVISOR,
            None => 1,
        };
        SlowStartDecision::Grow { divisor }
    }

    /// Ends a round and starts the next. Returns whether it was the last one of
    /// conservative slow start.
    fn end_round(&mut self, next: SendIndex) -> bool {
        self.round_end = next;
        self.last_min = self.current_min;
        self.forget_samples();
        let Some(conservative) = &mut self.conservative else {
            return false;
        };
        conservative.rounds += 1;
        conservative.rounds >= CSS_ROUNDS
    }

    fn forget_samples(&mut self) {
        self.current_min = None;
        self.samples = 0;
    }

    fn sample(&mut self, rtt: Duration) {
        let current = self.current_min.map_or(rtt, |min| min.min(rtt));
        self.current_min = Some(current);
        self.samples = self.samples.saturating_add(1);
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match (self.conservative, self.last_min) {
            (Some(Conservative { baseline, .. }), _) => {
                if current < baseline {
                    self.conservative = None;
                }
            }
            (None, Some(last)) => {
                if current >= last + threshold(last) {
                    self.conservative = Some(Conservative {
                        baseline: current,
                        rounds: 0,
                    });
                    // The samples that led here must not be used again for the decision to
                    // go back.
                    self.forget_samples();
                }
            }
            (None, None) => {}
        }
    }
}

/// Returns the rise of the RTT that counts: an eighth of it, between 4 and 16 ms.
fn threshold(last_min: Duration) -> Duration {
    (last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROW: SlowStartDecision = SlowStartDecision::Grow { divisor: 1 };
    const SLOW: SlowStartDecision = SlowStartDecision::Grow { divisor: 4 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Runs whole rounds of `samples` ACKs each at one RTT.
    struct Rounds {
        hystart: HyStart,
        next: SendIndex,
    }

    impl Rounds {
        fn new() -> Self {
            Self {
                hystart: HyStart::default(),
                next: 100,
            }
        }

        /// The ACK that starts a round, then the rest of them.
        fn round(&mut self, samples: u32, rtt: Duration) -> SlowStartDecision {
            let first = self.next;
            self.next += 100;
            let mut decision = self.hystart.on_ack(first, self.next, Some(rtt));
            for _ in 1..samples {
                decision = self.hystart.on_ack(first, self.next, Some(rtt));
            }
            decision
        }
    }

    #[test]
    fn conservative_slow_start_begins_when_rtt_rises_by_an_eighth_within_4_and_16_ms() {
        for (last, rise) in [(8, 4), (32, 4), (80, 10), (128, 16), (500, 16)] {
            let mut below = Rounds::new();
            below.round(8, ms(last));
            assert_eq!(below.round(8, ms(last + rise - 1)), GROW, "from {last} ms");
            let mut at = Rounds::new();
            at.round(8, ms(last));
            assert_eq!(at.round(8, ms(last + rise)), SLOW, "from {last} ms");
        }
    }

    #[test]
    fn round_with_fewer_than_eight_samples_is_not_judged() {
        let mut rounds = Rounds::new();
        rounds.round(8, ms(20));
        assert_eq!(rounds.round(7, ms(90)), GROW);
        assert_eq!(
            rounds.round(8, ms(90)),
            GROW,
            "compared with the round before"
        );
    }

    #[test]
    fn one_low_sample_among_many_keeps_slow_start() {
        let mut rounds = Rounds::new();
        rounds.round(8, ms(20));
        rounds.round(1, ms(20));
        let (first, next) = (rounds.next - 100, rounds.next);
        for _ in 0..20 {
            assert_eq!(rounds.hystart.on_ack(first, next, Some(ms(90))), GROW);
        }
    }

    #[test]
    fn conservative_slow_start_ends_after_five_rounds_counting_the_partial_one() {
        let mut rounds = Rounds::new();
        rounds.round(8, ms(20));
        assert_eq!(rounds.round(8, ms(40)), SLOW);
        for _ in 0..4 {
            assert_eq!(rounds.round(8, ms(40)), SLOW);
        }
        assert_eq!(rounds.round(1, ms(40)), SlowStartDecision::Leave);
    }

    #[test]
    fn rtt_below_baseline_resumes_slow_start() {
        let mut rounds = Rounds::new();
        rounds.round(8, ms(20));
        rounds.round(8, ms(40));
        assert_eq!(rounds.round(8, ms(39)), GROW);
        assert!(!rounds.hystart.is_conservative());
    }

    #[test]
    fn samples_are_reset_on_entering_conservative_slow_start() {
        let mut rounds = Rounds::new();
        rounds.round(8, ms(20));
        rounds.round(8, ms(40));
        let (first, next) = (rounds.next - 100, rounds.next);
        for _ in 0..7 {
            let decision = rounds.hystart.on_ack(first, next, Some(ms(21)));
            assert_eq!(decision, SLOW, "seven new samples do not judge it yet");
        }
        assert_eq!(rounds.hystart.on_ack(first, next, Some(ms(21))), GROW);
    }

    #[test]
    fn round_ends_when_a_packet_sent_in_it_is_acknowledged() {
        let mut hystart = HyStart::default();
        hystart.on_ack(0, 10, Some(ms(20)));
        for index in 1..10 {
            hystart.on_ack(index, 10 + index, Some(ms(20)));
        }
        assert_eq!((hystart.samples, hystart.round_end), (10, 10));
        hystart.on_ack(10, 20, Some(ms(20)));
        assert_eq!((hystart.samples, hystart.round_end), (1, 20));
        assert_eq!(hystart.last_min, Some(ms(20)));
    }

    #[test]
    fn acks_without_rtt_sample_are_not_counted() {
        let mut hystart = HyStart::default();
        for _ in 0..20 {
            assert_eq!(hystart.on_ack(0, 10, None), GROW);
        }
        assert_eq!(hystart.samples, 0);
    }
}
