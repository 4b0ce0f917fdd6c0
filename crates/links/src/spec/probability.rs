//! Probabilities, in parts per billion.

use core::fmt;
use core::str::FromStr;

use super::{SpecError, Unit, parse_with_unit, write_with_unit};

/// A probability in parts per billion, written in percent: `30%`, `0.1%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

const EXPECTED: &str = "a percentage from 0% to 100% such as 30% or 0.1%";
const UNITS: &[Unit] = &[Unit {
    names: &["%"],
    size: 10_000_000,
}];

impl Probability {
    /// 0 %.
    pub const NEVER: Self = Self(0);
    /// 100 %.
    pub const ALWAYS: Self = Self(1_000_000_000);

    /// From parts per billion; `None` above 10⁹.
    #[must_use]
    pub const fn from_parts(parts: u32) -> Option<Self> {
        if parts <= Self::ALWAYS.0 {
            Some(Self(parts))
        } else {
            None
        }
    }

    /// From whole percent; above 100 counts as 100.
    #[must_use]
    pub const fn from_percent(percent: u8) -> Self {
        // A u8 widens; `From` is not const.
        let percent = if percent > 100 { 100 } else { percent as u32 };
        Self(percent * 10_000_000)
    }

    /// Parts per billion.
    #[must_use]
    pub const fn parts(self) -> u32 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: String| SpecError::new("probability", text, problem, EXPECTED);
        let parts = match parse_with_unit(text, UNITS) {
            Ok(parts) => parts,
            Err(_) if text.trim() == "0" => 0,
            Err(problem) => return Err(error(problem)),
        };
        u32::try_from(parts)
            .ok()
            .and_then(Self::from_parts)
            .ok_or_else(|| error("must be at most 100%".to_owned()))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, u64::from(self.0), UNITS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn common_spellings_parse() {
        let parts = |text: &str| text.parse::<Probability>().unwrap().parts();
        assert_eq!(parts("30%"), 300_000_000);
        assert_eq!(parts("0.1%"), 1_000_000);
        assert_eq!(parts("0.0000001%"), 1);
        assert_eq!(parts("100%"), 1_000_000_000);
        assert_eq!(parts("0"), 0);
    }

    #[test]
    fn error_gives_the_reason() {
        let problem = |text: &str| text.parse::<Probability>().unwrap_err().problem;
        assert_eq!(problem("101%"), "must be at most 100%");
        assert_eq!(problem("30"), "missing unit");
        assert_eq!(problem("0.00000001%"), "too many decimal places");
    }

    proptest! {
        #[test]
        fn display_round_trips(parts in 0u32..=1_000_000_000) {
            let p = Probability::from_parts(parts).unwrap();
            prop_assert_eq!(p.to_string().parse::<Probability>().unwrap(), p);
        }
    }
}
