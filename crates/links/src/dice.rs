//! Seeded randomness, one stream per purpose.

use core::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::Probability;
use crate::time::nanos;

/// A seeded random generator.
///
/// Each purpose draws from its own stream, so that switching one impairment on leaves the decisions
/// of all others unchanged.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The generator of `seed` for the purpose with the number `stream`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// True with probability `p`. Probabilities of zero and one draw nothing.
    pub fn happens(&mut self, p: Probability) -> bool {
        if p == Probability::NEVER {
            return false;
        }
        if p == Probability::ALWAYS {
            return true;
        }
        let drawn = (u64::from(self.0.next_u32()) * u64::from(Probability::ALWAYS.parts())) >> 32;
        drawn < u64::from(p.parts())
    }

    /// Uniform in `0..bound`; zero for a zero bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.0.next_u64()) * u128::from(bound);
        // The high half is below `bound`, which is itself a u64.
        (product >> 64) as u64
    }

    /// Uniform in `0..=max`, to the nanosecond.
    pub fn up_to(&mut self, max: Duration) -> Duration {
        Duration::from_nanos(self.below(nanos(max).saturating_add(1)))
    }

    /// Exponentially distributed with this mean, to the nanosecond: the time to the next event of
    /// those that happen independently of each other.
    ///
    /// By comparisons alone, after von Neumann (Various techniques used in connection with random
    /// digits, 1951), so that it is the same on every machine. Of falling sequences of random
    /// fractions that begin with x, a share of exp(-x) has an odd length.
    pub(crate) fn exponential(&mut self, mean: Duration) -> Duration {
        let mean = nanos(mean);
        let mut whole = 0_u64;
        loop {
            let first = self.0.next_u64();
            let (mut last, mut odd) = (first, true);
            loop {
                let next = self.0.next_u64();
                if next >= last {
                    break;
                }
                (last, odd) = (next, !odd);
            }
            if odd {
                // The high half is below `mean`, which is itself a u64.
                let part = ((u128::from(first) * u128::from(mean)) >> 64) as u64;
                let all = whole.saturating_mul(mean).saturating_add(part);
                return Duration::from_nanos(all);
            }
            whole = whole.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_match_probabilities() {
        let mut dice = Dice::new(1, 0);
        let p = Probability::from_parts(300_000_000).unwrap();
        let hits = (0..100_000).filter(|_| dice.happens(p)).count();
        // Five standard deviations of a binomial(100 000, 0.3) are 725.
        assert!((29_275..=30_725).contains(&hits), "{hits}");
    }

    #[test]
    fn probabilities_zero_and_one_are_deterministic() {
        let mut dice = Dice::new(1, 0);
        assert!((0..1000).all(|_| dice.happens(Probability::ALWAYS)));
        assert!(!(0..1000).any(|_| dice.happens(Probability::NEVER)));
        assert_eq!(dice.below(0), 0);
        assert_eq!(dice.up_to(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn exponential_times_have_their_mean_and_their_tail() {
        let mut dice = Dice::new(1, 0);
        let mean = Duration::from_millis(10);
        let times: Vec<Duration> = (0..100_000).map(|_| dice.exponential(mean)).collect();
        // Five standard deviations: 158 µs of the mean, 538 of 13,534 beyond twice the mean.
        let micros = times.iter().sum::<Duration>().as_micros() / 100_000;
        assert!((9_842..=10_158).contains(&micros), "{micros}");
        let longer = times.iter().filter(|time| **time > 2 * mean).count();
        assert!((12_996..=14_072).contains(&longer), "{longer}");
        assert_eq!(dice.exponential(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn random_streams_differ_by_purpose_and_repeat_by_seed() {
        let draw = |seed, stream| {
            let mut dice = Dice::new(seed, stream);
            (0..4).map(|_| dice.below(u64::MAX)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }
}
