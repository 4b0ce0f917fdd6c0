//! Decimal numbers with a unit, exactly and without floating point.

use core::fmt;

/// The spellings of a unit, the first of which is printed, and its size.
pub(crate) struct Unit {
    pub(crate) names: &'static [&'static str],
    pub(crate) size: u64,
}

/// Parses `12.5ms`-like text into a whole number of base units.
///
/// The error is the problem in words; the caller adds which forms are accepted.
pub(crate) fn parse_with_unit(text: &str, units: &[Unit]) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, name) = text.split_at(split);
    if number.is_empty() {
        return Err(match name.chars().next() {
            None => "value is empty".to_owned(),
            Some('-') => "must not be negative".to_owned(),
            Some(_) => "does not start with a number".to_owned(),
        });
    }
    let name = name.trim();
    let unit = units
        .iter()
        .find(|unit| unit.names.contains(&name))
        .ok_or_else(|| match name {
            "" => "missing unit".to_owned(),
            _ => format!("unknown unit {name:?}"),
        })?;
    scale(number, unit.size)
}

/// `number` × `size`, if that is a whole number that fits.
fn scale(number: &str, size: u64) -> Result<u64, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err("more than one decimal point".to_owned());
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err("no digits".to_owned());
    }
    let too_large = || "value is too large".to_owned();
    let fraction = fraction.trim_end_matches('0');
    let tens = u32::try_from(fraction.len())
        .ok()
        .and_then(|places| 10u128.checked_pow(places));
    let part = digits(fraction)
        .zip(tens)
        .map(|(value, tens)| (u128::from(value) * u128::from(size), tens))
        .filter(|(scaled, tens)| scaled.is_multiple_of(*tens))
        .and_then(|(scaled, tens)| u64::try_from(scaled / tens).ok())
        .ok_or("too many decimal places")?;
    digits(whole)
        .and_then(|value| value.checked_mul(size)?.checked_add(part))
        .ok_or_else(too_large)
}

/// ASCII digits as a number; an empty text is zero.
fn digits(text: &str) -> Option<u64> {
    text.bytes().try_fold(0u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// Writes `value` as an exact decimal in the largest unit not above it. `units` are powers of ten,
/// largest first.
pub(crate) fn write_with_unit(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[Unit],
) -> fmt::Result {
    let Some(unit) = units
        .iter()
        .find(|unit| unit.size <= value)
        .or_else(|| units.last())
    else {
        return write!(f, "{value}");
    };
    write!(f, "{}", value / unit.size)?;
    let mut rest = value % unit.size;
    let mut size = unit.size;
    if rest > 0 {
        f.write_str(".")?;
    }
    while rest > 0 {
        size /= 10;
        write!(f, "{}", rest / size)?;
        rest %= size;
    }
    f.write_str(unit.names[0])
}
