//! Access to fields of JSON objects, in their various spellings.

use std::borrow::Cow;

use super::value::Value;
use crate::event::Name;

/// The first of these fields that exists.
pub(super) fn field<'v>(value: Value<'v>, names: &[&str]) -> Option<Value<'v>> {
    names.iter().find_map(|name| value.get(name))
}

/// Whether one of these fields, none of which can be negative, has a negative number: then the
/// event is invalid.
pub(super) fn negative(value: Value<'_>, names: &[&str]) -> bool {
    let named = |name: &&str| value.get(name).is_some_and(is_negative);
    names.iter().any(named)
}

/// Whether this is a negative number, or one as text.
pub(super) fn is_negative(value: Value<'_>) -> bool {
    if let Some(text) = value.as_str() {
        let rest = text.strip_prefix('-');
        return rest.is_some_and(|rest| rest.parse::<f64>().is_ok());
    }
    value.as_f64().is_some_and(|number| number < 0.0)
}

/// An unsigned integer: as a number, or as a string (I-JSON), decimal or hex.
pub(super) fn integer(value: Value<'_>) -> Option<u64> {
    if let Some(text) = value.as_str() {
        let hex = text.strip_prefix("0x");
        let parsed = hex.map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
        return parsed.ok();
    }
    value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        // Saturates; a negative number is not accepted.
        (float >= 0.0).then_some(float as u64)
    })
}

/// The first of these fields that is an integer.
pub(super) fn u64_of(value: Value<'_>, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| integer(value.get(name)?))
}

/// A time in nanoseconds from the file's units, of which `unit` nanoseconds make one.
pub(super) fn time(value: Value<'_>, unit: u64) -> Option<u64> {
    if let Some(whole) = value.as_u64() {
        // Whole numbers stay exact, dates included.
        return Some(whole.saturating_mul(unit));
    }
    let float = match value.as_str() {
        Some(text) => text.parse().ok()?,
        None => value.as_f64()?,
    };
    // For calendar dates the product has no room for the fraction.
    let whole = (float as u64).saturating_mul(unit);
    let part = (float.fract() * unit as f64).round() as u64;
    (float >= 0.0).then(|| whole.saturating_add(part))
}

/// The first of these fields that is a time in milliseconds.
pub(super) fn ms(value: Value<'_>, names: &[&str]) -> Option<u64> {
    names
        .iter()
        .find_map(|name| time(value.get(name)?, 1_000_000))
}

/// The first of these fields that is a string.
pub(super) fn text<'v>(value: Value<'v>, names: &[&str]) -> Option<&'v str> {
    names.iter().find_map(|name| value.get(name)?.as_str())
}

/// The first of these fields that is a string, in lower case.
pub(super) fn word(value: Value<'_>, names: &[&str]) -> Option<Name> {
    Some(Name::Owned(text(value, names)?.to_ascii_lowercase()))
}

/// The text in lower case.
pub(super) fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// The first of these fields that is a boolean.
pub(super) fn boolean(value: Value<'_>, names: &[&str]) -> Option<bool> {
    names.iter().find_map(|name| value.get(name)?.as_bool())
}

/// The length: `raw.length`, or one of the older fields.
pub(super) fn length(value: Value<'_>, names: &[&str]) -> Option<u64> {
    let raw = value.get("raw");
    raw.and_then(|raw| u64_of(raw, &["length"]))
        .or_else(|| u64_of(value, names))
        .or_else(|| raw.and_then(|raw| u64_of(raw, &["payload_length"])))
}
