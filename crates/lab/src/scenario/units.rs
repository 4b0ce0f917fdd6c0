//! Numbers with units, as written in scenarios.

use core::time::Duration;

use clearway_links::{ByteSize, Rate, Span};

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds; written `5s`, `20ms`.
    Time,
    /// Bits per second; written `10M`.
    Rate,
    /// A share of one; written `85%`.
    Share,
    /// A count or a ratio; written `3`, `1.3`.
    Number,
    /// Bytes; written `100kB`.
    Bytes,
}

/// A number of bytes such as `10MB` or `4096`, as [`ByteSize`] reads it.
///
/// # Errors
/// If it is not a size; the message gives the accepted forms.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>()
        .map(|size| size.0)
        .map_err(|error| error.to_string())
}

/// A time such as `5s` or `200us`.
///
/// # Errors
/// If the text is invalid; the message gives the accepted forms.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    text.parse::<Span>()
        .map(|span| span.0)
        .map_err(|error| error.to_string())
}

/// A share such as `85%`.
///
/// # Errors
/// If the text is invalid; the message gives the accepted forms.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let wrong = || format!("invalid share {text:?}; expected a percentage such as 85%");
    let number = text.trim().strip_suffix('%').ok_or_else(wrong)?;
    let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
    if (0.0..=1_000.0).contains(&percent) {
        Ok(percent / 100.0)
    } else {
        Err(wrong())
    }
}

impl Unit {
    /// Reads a number of this kind.
    ///
    /// # Errors
    /// If the text is invalid; the message gives the accepted forms.
    pub fn parse(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Time => time(text).map(|time| time.as_secs_f64()),
            Self::Rate => match text.parse::<Rate>() {
                Ok(rate) => Ok(rate.bits().map_or(f64::INFINITY, |bits| bits as f64)),
                Err(error) => Err(error.to_string()),
            },
            Self::Share => share(text),
            Self::Bytes => bytes(text).map(|bytes| bytes as f64),
            Self::Number => text
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|number| *number >= 0.0)
                .ok_or_else(|| {
                    format!("invalid number {text:?}; expected a number such as 3 or 1.3")
                }),
        }
    }

    /// Displays a number of this kind.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Time if value >= 1.0 => format!("{value:.2} s"),
            Self::Time if value >= 0.001 => format!("{:.1} ms", value * 1e3),
            Self::Time => format!("{:.0} µs", value * 1e6),
            Self::Rate if value >= 1e9 => format!("{:.2} Gbit/s", value / 1e9),
            Self::Rate if value >= 1e6 => format!("{:.2} Mbit/s", value / 1e6),
            Self::Rate => format!("{:.1} kbit/s", value / 1e3),
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Bytes if value >= 1e6 => format!("{:.2} MB", value / 1e6),
            Self::Bytes => format!("{:.1} kB", value / 1e3),
            Self::Number if (value - value.round()).abs() < 1e-9 => format!("{value:.0}"),
            Self::Number => format!("{value:.3}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shares_and_numbers_parse() {
        assert_eq!(bytes("10MB"), Ok(10_000_000));
        assert_eq!(bytes("1.5KiB"), Ok(1_536));
        assert_eq!(bytes("1_200"), Ok(1_200));
        assert_eq!(share("85%"), Ok(0.85));
        assert_eq!(Unit::Number.parse("1.3"), Ok(1.3));
        assert_eq!(Unit::Time.parse("20ms"), Ok(0.02));
        assert_eq!(Unit::Rate.parse("10M"), Ok(1e7));
    }

    #[test]
    fn invalid_value_error_gives_the_accepted_forms() {
        for (unit, text) in [
            (Unit::Bytes, "ten"),
            (Unit::Share, "0.85"),
            (Unit::Share, "-5%"),
            (Unit::Number, "-1"),
            (Unit::Time, "5"),
            (Unit::Rate, "-5M"),
        ] {
            let error = unit.parse(text).unwrap_err();
            assert!(error.contains("; expected "), "{text}: {error}");
        }
    }
}
