//! Output on stdout.

use std::io::{self, StdoutLock, Write as _};

use serde::Serialize;

use crate::background;
use crate::failure::Failure;
use crate::printable::is_unsafe;

/// Writes to stdout with `write`, and flushes.
///
/// # Errors
/// If it cannot be written, or the reader has gone away.
pub(crate) fn print(
    write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::stdout(&error))
}

/// One JSON object on one line, as [`print_json`] prints it, without waiting for the reader if this
/// command writes in the background.
pub(crate) fn log_json(value: &impl Serialize) {
    let Some(output) = background::output() else {
        // If the reader has gone away, keep serving.
        let _ = print_json(value);
        return;
    };
    let mut line = Vec::with_capacity(256);
    if write_json(&mut line, value).is_ok() {
        line.push(b'\n');
        let _ = output.stdout.push(&line);
    }
}

/// One JSON object on one line, for scripts.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(|out| {
        write_json(&mut *out, value)?;
        writeln!(out)
    })
}

/// Writes JSON with everything escaped that a terminal might interpret.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_json(out: impl io::Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(out, EscapingFormatter);
    Ok(value.serialize(&mut serializer)?)
}

/// Writes strings with everything escaped that [`is_unsafe`].
struct EscapingFormatter;

impl serde_json::ser::Formatter for EscapingFormatter {
    fn write_string_fragment<W>(&mut self, out: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| is_unsafe(c)) {
            let (fine, tail) = rest.split_at(at);
            out.write_all(fine.as_bytes())?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = tail.get(c.len_utf8()..).unwrap_or_default();
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_terminal_controls_and_parses_to_the_same_value() {
        let text = "a\u{1b}[2J\u{9b}31m\u{202e}\u{7f}\u{e0041}é\"\\";
        let mut json = Vec::new();
        write_json(&mut json, &text).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert!(!json.chars().any(is_unsafe), "{json:?}");
        assert!(
            json.contains("\\u009b31m\\u202e\\u007f\\udb40\\udc41é"),
            "{json}"
        );
        let back: String = serde_json::from_str(&json).unwrap();
        assert_eq!(back, text);
    }
}
