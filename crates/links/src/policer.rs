//! A token bucket that drops what exceeds it.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use crate::queue::{bytes, write_bytes};
use crate::spec::SpecError;
use crate::time::nanos;
use crate::{Rate, Time};

/// A policer: what comes faster than `rate` for longer than `burst` lasts is
/// dropped, and nothing ever waits.
///
/// Written `10M:100KB`: the rate of tokens, and how many there can be. Bytes
/// count as the serialiser counts them, with headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policer {
    /// Tokens come so fast, in bits per second.
    pub rate: NonZeroU64,
    /// The full bucket, in bytes.
    pub burst: NonZeroU64,
}

const RIGHT: &str = "the rate of tokens and the size of the bucket such as 10M:100KB";

impl FromStr for Policer {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: &str| SpecError::new("policer", text, problem, RIGHT);
        let (rate, burst) = text
            .split_once(':')
            .ok_or_else(|| error("it has no colon"))?;
        let Rate::Bits(rate) = rate.parse()? else {
            return Err(error("its rate is not a number above zero"));
        };
        let burst = bytes(burst).map_err(|problem| error(&format!("its bucket: {problem}")))?;
        let burst = NonZeroU64::new(burst)
            .ok_or_else(|| error("its bucket is empty, so nothing could pass"))?;
        Ok(Self { rate, burst })
    }
}

impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", Rate::Bits(self.rate))?;
        write_bytes(f, self.burst.get())
    }
}

/// A byte, in the unit in which tokens are counted without rounding: bits per
/// second times nanoseconds.
const BYTE: u128 = 8 * 1_000_000_000;

/// The tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    /// How many there were at `at`; `None`: it was never used and is full.
    tokens: Option<u128>,
    at: Time,
}

impl Bucket {
    /// Takes tokens for `size` bytes; false if there are too few, and then
    /// none are taken.
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
    fn texts_round_trip_and_errors_say_why() {
        let text = "10M:100KB";
        assert_eq!(text.parse::<Policer>().unwrap().to_string(), text);
        let problem = |text: &str| text.parse::<Policer>().unwrap_err().problem;
        assert_eq!(problem("10M"), "it has no colon");
        assert_eq!(problem("0:1KB"), "its rate is not a number above zero");
        assert_eq!(
            problem("unlimited:1KB"),
            "its rate is not a number above zero"
        );
        assert!(problem("10M:0B").contains("nothing could pass"));
        assert!(problem("10M:10").contains("its bucket: "));
        assert_eq!(problem("-1M:1KB"), "it is negative");
    }

    #[test]
    fn a_full_bucket_and_then_the_rate_to_the_byte() {
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
        fn never_more_than_bucket_and_rate(
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
