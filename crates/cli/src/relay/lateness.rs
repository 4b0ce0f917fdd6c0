//! The lateness of the relay.

use core::time::Duration;

/// Powers of two of microseconds: 1 µs to over 8 s.
const BUCKETS: usize = 24;

/// How late datagrams were released.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lateness {
    /// `buckets[n]`: later than 2ⁿ⁻¹ µs, at most 2ⁿ µs.
    buckets: [u64; BUCKETS],
    count: u64,
    total: Duration,
    max: Duration,
}

impl Lateness {
    /// Counts one datagram.
    pub(crate) fn record(&mut self, late: Duration) {
        let micros = u64::try_from(late.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        let bucket = micros
            .checked_next_power_of_two()
            .map_or(BUCKETS - 1, |power| power.trailing_zeros() as usize);
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.total = self.total.saturating_add(late);
        self.max = self.max.max(late);
    }

    /// The mean; zero before the first datagram.
    pub(crate) fn mean(&self) -> Duration {
        u32::try_from(self.count)
            .ok()
            .filter(|&count| count > 0)
            .map_or_else(|| self.long_mean(), |count| self.total / count)
    }

    /// The mean, for counts beyond what `Duration` divides by.
    fn long_mean(&self) -> Duration {
        let nanos = self.total.as_nanos() / u128::from(self.count.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The maximum.
    pub(crate) const fn max(&self) -> Duration {
        self.max
    }

    /// An upper bound for `percent` of the datagrams; a power of two of microseconds, or the
    /// maximum if that is less.
    pub(crate) fn percentile(&self, percent: u8) -> Duration {
        let wanted = (u128::from(self.count) * u128::from(percent)).div_ceil(100);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|&count| {
            seen += u128::from(count);
            seen >= wanted
        });
        bucket.map_or(self.max, |bucket| {
            Duration::from_micros(1 << bucket).min(self.max)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_upper_bounds_of_recorded_values() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.mean(), Duration::ZERO);
        assert_eq!(lateness.percentile(99), Duration::ZERO);
        for micros in 1..=100 {
            lateness.record(Duration::from_micros(micros));
        }
        assert_eq!(lateness.mean(), Duration::from_nanos(50_500));
        assert_eq!(lateness.percentile(50), Duration::from_micros(64));
        assert_eq!(lateness.percentile(99), Duration::from_micros(100));
        lateness.record(Duration::from_secs(100));
        assert_eq!(lateness.max(), Duration::from_secs(100));
    }
}
