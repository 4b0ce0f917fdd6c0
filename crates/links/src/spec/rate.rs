//! Rates in bits per second.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use super::{SpecError, Unit, parse_with_unit, write_with_unit};

/// How fast a serialiser puts bits on the wire.
///
/// Written `100M`, `1G`, `64k`, `1.5Mbit/s`, `unlimited`, or `0` for a link
/// that holds packets back and sends nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rate {
    /// Serialisation takes no time and nothing ever waits.
    #[default]
    Unlimited,
    /// Nothing leaves; packets wait until the rate changes.
    Stopped,
    /// Bits per second.
    Bits(NonZeroU64),
}

const EXPECTED: &str = "bits per second such as 100M, 1G, 64k or 1.5M, 0 to stop, or unlimited";
const UNITS: &[Unit] = &[
    Unit {
        names: &["G", "Gbit/s", "Gbit", "Gbps"],
        size: 1_000_000_000,
    },
    Unit {
        names: &["M", "Mbit/s", "Mbit", "Mbps"],
        size: 1_000_000,
    },
    Unit {
        names: &["k", "K", "kbit/s", "kbit", "kbps"],
        size: 1_000,
    },
    Unit {
        names: &["", "bit/s", "bit", "bps"],
        size: 1,
    },
];

impl Rate {
    /// From bits per second; zero is [`Rate::Stopped`].
    #[must_use]
    pub const fn from_bits(bits_per_second: u64) -> Self {
        match NonZeroU64::new(bits_per_second) {
            None => Self::Stopped,
            Some(bits) => Self::Bits(bits),
        }
    }

    /// From megabits (10⁶ bits) per second.
    #[must_use]
    pub const fn from_mbit(mbit: u64) -> Self {
        Self::from_bits(mbit.saturating_mul(1_000_000))
    }

    /// Bits per second; `None` if unlimited.
    #[must_use]
    pub const fn bits(self) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Stopped => Some(0),
            Self::Bits(bits) => Some(bits.get()),
        }
    }
}

impl FromStr for Rate {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.trim() == "unlimited" {
            return Ok(Self::Unlimited);
        }
        parse_with_unit(text, UNITS)
            .map(Self::from_bits)
            .map_err(|problem| SpecError::new("rate", text, problem, EXPECTED))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Stopped => f.write_str("0"),
            Self::Bits(bits) => write_with_unit(f, bits.get(), UNITS),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn common_spellings_parse() {
        let bits = |text: &str| text.parse::<Rate>().unwrap().bits();
        assert_eq!(bits("100M"), Some(100_000_000));
        assert_eq!(bits("1G"), Some(1_000_000_000));
        assert_eq!(bits("64k"), Some(64_000));
        assert_eq!(bits("1.5 Mbit/s"), Some(1_500_000));
        assert_eq!(bits("9600"), Some(9600));
        assert_eq!(bits("0"), Some(0));
        assert_eq!(bits("unlimited"), None);
    }

    #[test]
    fn error_gives_the_reason_and_accepted_forms() {
        let message = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        assert_eq!(
            message("100X"),
            "invalid rate \"100X\": unknown unit \"X\"; expected bits per second such as \
             100M, 1G, 64k or 1.5M, 0 to stop, or unlimited"
        );
        assert!(message("-1M").contains("negative"));
        assert!(message("").contains("empty"));
        assert!(message("fast").contains("does not start with a number"));
        assert!(message("1.2.3M").contains("more than one decimal point"));
        assert!(message(".M").contains("no digits"));
        assert!(message("0.5").contains("too many decimal places"));
        assert!(message("99999999999999G").contains("too large"));
    }

    proptest! {
        #[test]
        fn display_round_trips(bits: u64) {
            let rate = Rate::from_bits(bits);
            prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        }
    }
}
