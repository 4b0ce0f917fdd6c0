//! What scripts read: JSON on stdout.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// One JSON object on one line of stdout.
///
/// # Errors
/// If nobody reads it any more.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, value)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(stdout))
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::stdout(&error))
}
