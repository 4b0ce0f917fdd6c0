//! Access to fields of JSON objects, in their various spellings.

use serde_json::Value;

use crate::event::Name;

/// The first of these fields that exists.
pub(super) fn field<'v>(value: &'v Value, names: &[&str]) -> Option<&'v Value> {
    names.iter().find_map(|name| value.get(name))
}

/// Whether one of these fields, none of which can be negative, has a negative number: then the
/// event is invalid.
pub(super) fn negative(value: &Value, names: &[&str]) -> bool {
    let below = |value: &Value| match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number < 0.0),
        Value::String(text) => text
            .strip_prefix('-')
            .is_some_and(|rest| rest.parse::<f64>().is_ok()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    names.iter().any(|name| value.get(name).is_some_and(below))
}

/// An unsigned integer: as a number, or as a string (I-JSON), decimal or hex.
pub(super) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64()?;
            // Saturates; a negative number is not accepted.
            (float >= 0.0).then_some(float as u64)
        }),
        Value::String(text) => {
            let hex = text.strip_prefix("0x");
            hex.map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16))
                .ok()
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The first of these fields that is an integer.
pub(super) fn u64_of(value: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| integer(value.get(name)?))
}

/// A time in nanoseconds from the file's units, of which `unit` nanoseconds make one.
pub(super) fn time(value: &Value, unit: u64) -> Option<u64> {
    let float = match value {
        Value::Number(number) => match number.as_u64() {
            // Whole numbers stay exact, dates included.
            Some(whole) => return Some(whole.saturating_mul(unit)),
            None => number.as_f64()?,
        },
        Value::String(text) => text.parse().ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    // For calendar dates the product has no room for the fraction.
    let whole = (float as u64).saturating_mul(unit);
    let part = (float.fract() * unit as f64).round() as u64;
    (float >= 0.0).then(|| whole.saturating_add(part))
}

/// The first of these fields that is a time in milliseconds.
pub(super) fn ms(value: &Value, names: &[&str]) -> Option<u64> {
    names
        .iter()
        .find_map(|name| time(value.get(name)?, 1_000_000))
}

/// The first of these fields that is a string.
pub(super) fn text(value: &Value, names: &[&str]) -> Option<String> {
    let found = names.iter().find_map(|name| value.get(name)?.as_str());
    found.map(str::to_owned)
}

/// The first of these fields that is a string, in lower case.
pub(super) fn word(value: &Value, names: &[&str]) -> Option<Name> {
    let found = names.iter().find_map(|name| value.get(name)?.as_str())?;
    Some(Name::Owned(found.to_ascii_lowercase()))
}

/// The first of these fields that is a boolean.
pub(super) fn boolean(value: &Value, names: &[&str]) -> Option<bool> {
    names.iter().find_map(|name| value.get(name)?.as_bool())
}

/// The length: `raw.length`, or one of the older fields.
pub(super) fn length(value: &Value, names: &[&str]) -> Option<u64> {
    let raw = value.get("raw");
    raw.and_then(|raw| u64_of(raw, &["length"]))
        .or_else(|| u64_of(value, names))
        .or_else(|| raw.and_then(|raw| u64_of(raw, &["payload_length"])))
}
