//! Lengths of time.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::{SpecError, Unit, parse_with_unit, write_with_unit};
use crate::time::nanos;

/// A duration with a text form: `10ms`, `200us`, `12.5ms`, `2s`, `0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

const EXPECTED: &str = "a time with its unit such as 10ms, 200us or 2s";
const UNITS: &[Unit] = &[
    Unit {
        names: &["s"],
        size: 1_000_000_000,
    },
    Unit {
        names: &["ms"],
        size: 1_000_000,
    },
    Unit {
        names: &["us", "µs"],
        size: 1_000,
    },
    Unit {
        names: &["ns"],
        size: 1,
    },
];

impl Span {
    /// Zero.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// From milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// From microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(Duration::from_micros(micros))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl FromStr for Span {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.trim() == "0" {
            return Ok(Self::ZERO);
        }
        parse_with_unit(text, UNITS)
            .map(|nanos| Self(Duration::from_nanos(nanos)))
            .map_err(|problem| SpecError::new("time", text, problem, EXPECTED))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        write_with_unit(f, nanos(self.0), UNITS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn common_spellings_parse() {
        let time = |text: &str| text.parse::<Span>().unwrap().0;
        assert_eq!(time("10ms"), Duration::from_millis(10));
        assert_eq!(time("200us"), Duration::from_micros(200));
        assert_eq!(time("200µs"), Duration::from_micros(200));
        assert_eq!(time("12.5ms"), Duration::from_micros(12_500));
        assert_eq!(time("2s"), Duration::from_secs(2));
        assert_eq!(time("0"), Duration::ZERO);
    }

    #[test]
    fn missing_unit_is_reported() {
        let message = "10".parse::<Span>().unwrap_err().to_string();
        assert_eq!(
            message,
            "invalid time \"10\": missing unit; expected a time with its unit such as 10ms, \
             200us or 2s"
        );
    }

    proptest! {
        #[test]
        fn display_round_trips(nanos: u64) {
            let span = Span(Duration::from_nanos(nanos));
            prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
    }
}
