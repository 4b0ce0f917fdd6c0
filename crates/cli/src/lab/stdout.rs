//! What a command was asked for, on stdout.

use std::io::{self, StdoutLock, Write as _};

use crate::failure::Failure;

/// Writes to stdout by `write`, and all of it.
///
/// # Errors
/// If it cannot be written, or nobody reads it any more.
pub(super) fn print(
    write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::stdout(&error))
}
