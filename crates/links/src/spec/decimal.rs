//! Decimal numbers with a unit, exactly and without floating point.

use core::fmt;

/// A unit's spellings, the first being the one to print, and its size.
pub(crate) struct Unit {
    pub(crate) names: &'static [&'static str],
    pub(crate) size: u64,
}

/// Parses `12.5ms`-like text into a whole number of base units.
///
/// The error is the problem in words; the caller adds what would be right.
pub(crate) fn parse_with_unit(text: &str, units: &[Unit]) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, name) = text.split_at(split);
    if number.is_empty() {
        return Err(match name.chars().next() {
            None => "it is empty".to_owned(),
            Some('-') => "it is negative".to_owned(),
            Some(_) => "it does not start with a number".to_owned(),
        });
    }
    let name = name.trim();
    let unit = units
        .iter()
        .find(|unit| unit.names.contains(&name))
        .ok_or_else(|| match name {
            "" => "its unit is missing".to_owned(),
            _ => format!("the unit {name:?} is unknown"),
        })?;
    scale(number, unit.size)
}

/// `number` × `size`, if that is whole and fits.
fn scale(number: &str, size: u64) -> Result<u64, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err("it has two decimal points".to_owned());
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err("it has no digits".to_owned());
    }
    let too_large = || "it is too large".to_owned();
    let mut total = digits(whole)
        .and_then(|value| value.checked_mul(size))
        .ok_or_else(too_large)?;
    let mut size = size;
    for digit in fraction.trim_end_matches('0').bytes() {
        if !size.is_multiple_of(10) {
            return Err("it has too many decimals".to_owned());
        }
        size /= 10;
        total = total
            .checked_add(u64::from(digit - b'0') * size)
            .ok_or_else(too_large)?;
    }
    Ok(total)
}

/// ASCII digits as a number; nothing at all is zero.
fn digits(text: &str) -> Option<u64> {
    text.bytes().try_fold(0u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// Writes `value` in the largest unit of which it holds at least one, as an
/// exact decimal. `units` are powers of ten, largest first.
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
