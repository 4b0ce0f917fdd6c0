//! What a command was asked for, on stdout.

use std::io::{self, StdoutLock, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Writes to stdout by `write`, and all of it.
///
/// # Errors
/// If it cannot be written, or nobody reads it any more.
pub(crate) fn print(
    write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::stdout(&error))
}

/// One JSON object on one line, for scripts.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(|out| {
        serde_json::to_writer(&mut *out, value)?;
        writeln!(out)
    })
}
