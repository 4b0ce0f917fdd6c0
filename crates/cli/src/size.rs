//! Sizes in bytes, as people write them.

use core::fmt;
use core::str::FromStr;

/// A number of bytes, written `10MB`, `64KiB`, `1.5G` or `1200`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// Spellings and factors; the first spelling of a factor is the one to print.
const UNITS: &[(&str, u64)] = &[
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
    ("", 1),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
    ("K", 1_000),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size; write bytes such as 10MB, 64KiB or 1200");
        let text = text.trim();
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let &(_, factor) = UNITS
            .iter()
            .find(|(name, _)| *name == unit.trim())
            .ok_or_else(wrong)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let bytes = decimal(whole, fraction, factor).ok_or_else(wrong)?;
        Ok(Self(bytes))
    }
}

/// `whole.fraction` × `factor`, if that is a whole number that fits.
fn decimal(whole: &str, fraction: &str, factor: u64) -> Option<u64> {
    let tens = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits.checked_mul(u128::from(factor))?;
    (scaled % tens == 0).then_some(())?;
    u64::try_from(scaled / tens).ok()
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS
            .iter()
            .find(|&&(_, factor)| self.0 > 0 && self.0.is_multiple_of(factor));
        match whole {
            Some((name, factor)) => write!(f, "{}{name}", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly() {
        for (text, bytes) in [
            ("0", 0),
            ("1200", 1_200),
            ("10MB", 10_000_000),
            ("64KiB", 65_536),
            ("1.5G", 1_500_000_000),
            (" 2 kB ", 2_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in [
            "",
            "MB",
            "-1",
            "1.0005kB",
            "1.2.3",
            "10 apples",
            "20000000000GB",
        ] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains("such as 10MB"), "{text}: {error}");
        }
    }

    #[test]
    fn printing_and_reading_agree() {
        for bytes in [0, 1, 999, 1_000, 1_500, 10_000_000, 65_536, u64::MAX] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        assert_eq!(Size(10_000_000).to_string(), "10MB");
    }
}
