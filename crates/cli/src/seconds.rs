//! Times on the command line of commands that people know from curl.

use core::time::Duration;

use clearway_links::Span;

/// Parses a time limit: a time with its unit, or seconds as curl takes them.
///
/// # Errors
/// What was expected.
pub(crate) fn limit(text: &str) -> Result<Span, String> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let span = match text.parse::<f64>() {
        Ok(seconds) if plain => Duration::try_from_secs_f64(seconds)
            .map(Span)
            .map_err(|error| error.to_string()),
        Ok(_) | Err(_) => text.parse::<Span>().map_err(|error| error.to_string()),
    };
    match span {
        Ok(Span::ZERO) => Err("must be greater than zero, such as 2 or 500ms".to_owned()),
        span => span,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_without_unit_is_seconds() {
        for (text, millis) in [
            ("2", 2_000),
            ("0.5", 500),
            (".25", 250),
            ("2s", 2_000),
            ("7ms", 7),
        ] {
            assert_eq!(limit(text), Ok(Span::from_millis(millis)), "{text}");
        }
        for text in [
            "", "0", "0.0", "0s", "-1", "1e3", "inf", "nan", "1.2.3", "5m", ".",
        ] {
            assert!(limit(text).is_err(), "{text:?}");
        }
    }
}
