//! Distributions of times, in buckets whose width grows with the time.

use core::time::Duration;

use crate::time::nanos;

/// Times below this shift are one bucket: 64 ns.
const UNIT_SHIFT: u32 = 6;
/// Buckets per doubling, as a power of two: eight, so that a percentile is at
/// most an eighth too high.
const SPLIT: u32 = 3;
/// Doublings above the linear start; longer times share the last bucket,
/// which starts at 15 × 2³⁶ ns ≈ 1,030 s.
const DOUBLINGS: usize = 31;
const BUCKETS: usize = (DOUBLINGS + 1) << SPLIT;

/// Counts of times in logarithmic buckets, with their exact sum and maximum.
///
/// Recording takes a few nanoseconds and no memory, so it is always on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    sum: Duration,
    max: Duration,
    buckets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
            buckets: [0; BUCKETS],
        }
    }
}

impl core::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

/// The bucket of a time.
fn bucket(time: Duration) -> usize {
    let units = nanos(time) >> UNIT_SHIFT;
    let doublings = (u64::BITS - units.leading_zeros()).saturating_sub(SPLIT + 1);
    // Below 2 << SPLIT the units number the buckets themselves.
    let index = ((doublings as usize) << SPLIT) + (units >> doublings) as usize;
    index.min(BUCKETS - 1)
}

/// The first time past bucket `index`.
fn end(index: usize) -> Duration {
    let doublings = (index >> SPLIT).saturating_sub(1);
    let units = (index - (doublings << SPLIT) + 1) as u64;
    Duration::from_nanos(units << doublings << UNIT_SHIFT)
}

impl Histogram {
    /// Counts a time.
    pub fn record(&mut self, time: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
        self.max = self.max.max(time);
        self.buckets[bucket(time)] += 1;
    }

    /// How many times were recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their exact sum.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest, exactly.
    #[must_use]
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// Their mean; zero if there are none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let mean = self.sum.as_nanos().checked_div(u128::from(self.count));
        Duration::from_nanos(u64::try_from(mean.unwrap_or(0)).unwrap_or(u64::MAX))
    }

    /// A time that at least `permille` thousandths did not exceed, at most an
    /// eighth (or 64 ns) above the smallest such time; zero if there are none.
    #[must_use]
    pub fn permille(&self, permille: u32) -> Duration {
        let wanted = (u128::from(self.count) * u128::from(permille.min(1000))).div_ceil(1000);
        let mut seen = 0u128;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += u128::from(count);
            if count > 0 && seen >= wanted {
                return if index + 1 == BUCKETS {
                    self.max
                } else {
                    end(index).min(self.max)
                };
            }
        }
        Duration::ZERO
    }

    /// As [`Histogram::permille`], in hundredths.
    #[must_use]
    pub fn percentile(&self, percent: u32) -> Duration {
        self.permille(percent.min(100) * 10)
    }

    /// Adds the counts of `other`.
    pub fn absorb(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_histogram_reports_zero() {
        let empty = Histogram::default();
        assert_eq!(empty.percentile(99), Duration::ZERO);
        assert_eq!(empty.mean(), Duration::ZERO);
    }

    #[test]
    fn histogram_buckets_are_contiguous() {
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(end(index)), index + 1);
            assert_eq!(bucket(end(index) - Duration::from_nanos(1)), index);
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn percentiles_are_within_one_eighth(
            mut times in prop::collection::vec(0u64..2_000_000_000_000, 1..100),
            permille in 0u32..=1000,
        ) {
            let mut all = Histogram::default();
            let mut halves = [Histogram::default(); 2];
            for (index, &time) in times.iter().enumerate() {
                all.record(Duration::from_nanos(time));
                halves[index % 2].record(Duration::from_nanos(time));
            }
            times.sort_unstable();
            let rank = (times.len() * permille as usize).div_ceil(1000).max(1);
            let exact = Duration::from_nanos(times[rank - 1]);
            let told = all.permille(permille);
            prop_assert!(told >= exact, "{told:?} < {exact:?}");
            if exact < Duration::from_secs(1000) {
                prop_assert!(told <= exact + exact / 8 + Duration::from_nanos(64));
            }
            let [mut sum, other] = halves;
            sum.absorb(&other);
            prop_assert_eq!(sum, all);
        }
    }
}
