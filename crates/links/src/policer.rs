//! A token bucket that drops what exceeds it.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use crate::spec::{ByteSize, SpecError};
use crate::time::nanos;
use crate::{Rate, Time};

/// A policer: drops traffic that exceeds `rate` by more than `burst`, and never delays.
///
/// Written `10M:100KB`: the rate of tokens, and the size of the bucket. Bytes count as the
/// serialiser counts them, with headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policer {
    /// The rate of tokens, in bits per second.
    pub rate: NonZeroU64,
    /// The size of the bucket, in bytes.
    pub burst: NonZeroU64,
}

const EXPECTED: &str = "the rate of tokens and the size of the bucket such as 10M:100KB";

impl FromStr for Policer {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: &str| SpecError::new("policer", text, problem, EXPECTED);
        let (rate, burst) = text.split_once(':').ok_or_else(|| error("missing colon"))?;
        let Rate::Bits(rate) = rate.parse()? else {
            return Err(error("rate must be greater than zero"));
        };
        let ByteSize(burst) = ByteSize::parse_with_unit(burst)
            .map_err(|problem| error(&format!("bucket size: {problem}")))?;
        let burst = NonZeroU64::new(burst)
            .ok_or_else(|| error("bucket size is zero, so no packet could pass"))?;
        Ok(Self { rate, burst })
    }
}

impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", Rate::Bits(self.rate))?;
        ByteSize(self.burst.get()).fmt(f)
    }
}

/// A byte, in the unit in which tokens are counted without rounding: bits per
/// second times nanoseconds.
const BYTE: u128 = 8 * 1_000_000_000;

/// The token bucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    /// The number of tokens at a time; `None` if it was never used and is full.
    tokens: Option<u128>,
    at: Time,
}

impl Bucket {
    /// Takes tokens for `size` bytes; false, without taking any, if there are too few.
    pub(crate) fn admits(&mut self, policer: Policer, now: Time, size: u32) -> bool {
        let full = u128::from(policer.burst.get()) * BYTE;
        let fresh = u128::from(nanos(now - self.at)) * u128::from(policer.rate.get());
        let tokens = self
            .tokens
            .map_or(full, |tokens| (tokens + fresh).min(full));
        let left = tokens.checked_sub(u128::from(size) * BYTE);
        self.tokens = Some(left.unwrap_or(tokens));
        self.at = now;
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spec_round_trips_and_errors_give_the_reason() {
        let text = "10M:100KB";
        assert_eq!(text.parse::<Policer>().unwrap().to_string(), text);
        let problem = |text: &str| text.parse::<Policer>().unwrap_err().problem;
        assert_eq!(problem("10M"), "missing colon");
        assert_eq!(problem("0:1KB"), "rate must be greater than zero");
        assert_eq!(problem("unlimited:1KB"), "rate must be greater than zero");
        assert!(problem("10M:0B").contains("no packet could pass"));
        assert!(problem("10M:10").contains("bucket size: "));
        assert_eq!(problem("-1M:1KB"), "must not be negative");
    }

    #[test]
    fn full_bucket_passes_then_the_exact_rate() {
        let policer = "8M:10KB".parse().unwrap();
        let mut bucket = Bucket::default();
        let mut admitted = 0;
        // Ten times the rate for ten seconds: 1,000 bytes every 100 µs.
        for step in 0..=100_000 {
            let now = Time::from_micros(step * 100);
            admitted += u64::from(bucket.admits(policer, now, 1000)) * 1000;
        }
        assert_eq!(admitted, 10_000 + 10_000_000);
    }

    proptest! {
        /// Over any interval: at most the bucket and what flowed in; and no
        /// packet is refused for which there were tokens.
        #[test]
        fn policed_bytes_never_exceed_bucket_plus_rate(
            rate in 1u64..100_000_000,
            burst in 1u64..20_000,
            packets in prop::collection::vec((0u64..10_000_000, 1u32..3000), 1..100),
        ) {
            let policer = Policer {
                rate: NonZeroU64::new(rate).unwrap(),
                burst: NonZeroU64::new(burst).unwrap(),
            };
            let mut bucket = Bucket::default();
            let mut now = Time::ZERO;
            let mut admitted: Vec<(Time, u128)> = Vec::new();
            for (gap, size) in packets {
                now = Time(now.0 + gap);
                let allowed = |since: Time| {
                    u128::from(burst) * BYTE + u128::from((now - since).as_nanos() as u64) * u128::from(rate)
                };
                let would_fit = (0..=admitted.len()).rev().all(|first| {
                    let since = admitted.get(first).map_or(now, |&(at, _)| at);
                    let bytes: u128 = admitted[first..].iter().map(|&(_, size)| size).sum();
                    (bytes + u128::from(size)) * BYTE <= allowed(since)
                });
                let admits = bucket.admits(policer, now, size);
                prop_assert_eq!(admits, would_fit);
                if admits {
                    admitted.push((now, u128::from(size)));
                }
            }
        }
    }
}
