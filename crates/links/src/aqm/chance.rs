//! Probabilities for AQM controllers, finer than those that can be written in a spec.

use core::time::Duration;

use crate::Dice;
use crate::time::nanos;

/// A probability in units of 2⁻⁴⁸. PIE's smallest step, a 2,048th of an
/// eighth per second of error, is still 4 units for each microsecond of error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FineProbability(u64);

const SCALE: u64 = 1 << 48;

impl FineProbability {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const ONE: Self = Self(SCALE);

    /// `parts` of `whole`; `whole` must not be zero.
    pub(crate) fn ratio(parts: u64, whole: u64) -> Self {
        let units = u128::from(SCALE) * u128::from(parts) / u128::from(whole.max(1));
        Self(units.min(u128::from(SCALE)) as u64)
    }

    /// Changed by `step` units, within 0 and 1.
    pub(crate) fn nudged(self, step: i128) -> Self {
        Self((i128::from(self.0) + step).clamp(0, i128::from(SCALE)) as u64)
    }

    pub(crate) fn squared(self) -> Self {
        Self(((u128::from(self.0) * u128::from(self.0)) >> 48) as u64)
    }

    pub(crate) fn times(self, factor: u32) -> Self {
        Self(self.0.saturating_mul(u64::from(factor)).min(SCALE))
    }

    /// Less one part in `parts`.
    pub(crate) fn decayed(self, parts: u64) -> Self {
        Self(self.0 - self.0.div_ceil(parts))
    }

    /// Rounded to millionths.
    pub(crate) fn per_million(self) -> u64 {
        ((u128::from(self.0) * 1_000_000 + (1 << 47)) >> 48) as u64
    }

    /// True with this probability.
    pub(crate) fn happens(self, dice: &mut Dice) -> bool {
        match self {
            Self::ZERO => false,
            Self::ONE => true,
            Self(units) => dice.below(SCALE) < units,
        }
    }
}

/// `numerator / denominator` of a probability, in units of [`FineProbability`].
pub(crate) fn step(numerator: i128, denominator: i128) -> i128 {
    numerator.saturating_mul(i128::from(SCALE)) / denominator.max(1)
}

/// `a − b` in nanoseconds. Differences beyond 100 s count as 100 s, so that
/// the controllers' products stay far from overflow.
pub(crate) fn signed_difference(a: Duration, b: Duration) -> i128 {
    const MOST: i128 = 100_000_000_000;
    (i128::from(nanos(a)) - i128::from(nanos(b))).clamp(-MOST, MOST)
}

/// Spreads hits evenly instead of drawing them: sums up probabilities and hits whenever the sum
/// passes another whole number (RFC 9332 Appendix A.1, `recur`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recurrence(u64);

impl Recurrence {
    pub(crate) fn hits(&mut self, chance: FineProbability) -> bool {
        self.0 += chance.0;
        let hit = self.0 >= SCALE;
        self.0 -= if hit { SCALE } else { 0 };
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurrence_hits_at_the_given_rate_and_evenly() {
        let mut recurrence = Recurrence::default();
        let chance = FineProbability::ratio(3, 10);
        let hits: Vec<_> = (1..=1000).filter(|_| recurrence.hits(chance)).collect();
        assert!((299..=300).contains(&hits.len()), "{}", hits.len());
        assert!(hits.windows(2).all(|pair| pair[1] - pair[0] <= 4));
    }

    #[test]
    fn probability_arithmetic_saturates() {
        let half = FineProbability::ratio(1, 2);
        assert_eq!(half.squared(), FineProbability::ratio(1, 4));
        assert_eq!(half.times(2), FineProbability::ONE);
        assert_eq!(half.times(u32::MAX), FineProbability::ONE);
        assert_eq!(half.nudged(i128::MIN / 2), FineProbability::ZERO);
        assert_eq!(half.nudged(step(3, 4)), FineProbability::ONE);
        assert_eq!(FineProbability::ratio(7, 3), FineProbability::ONE);
        assert_eq!(FineProbability(1).decayed(64), FineProbability::ZERO);
    }

    #[test]
    fn draws_match_the_probability() {
        let mut dice = Dice::new(3, 1);
        let chance = FineProbability::ratio(1, 5);
        let hits = (0..100_000).filter(|_| chance.happens(&mut dice)).count();
        // Five standard deviations of a binomial(100 000, 0.2) are 632.
        assert!((19_368..=20_632).contains(&hits), "{hits}");
    }
}
