//! The key log (`--keylog`).

use std::env;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;

use crate::failure::{Failure, Kind};

/// Checks the key log in advance, because its own errors are ignored: they must not end a
/// connection.
pub(super) fn key_log_is_writable() -> Result<(), Failure> {
    let named = env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty());
    let Some(file) = named else {
        let message = "--keylog: the environment variable SSLKEYLOGFILE is not set";
        return Err(Failure::new(Kind::Arguments, message));
    };
    // Whoever reads it can decrypt what was sent.
    let mut how = OpenOptions::new();
    how.append(true).create(true).mode(0o600);
    let opened = how.open(&file);
    opened.map(drop).map_err(|error| {
        let what = format!("--keylog: cannot write {}", file.display());
        Failure::caused(Kind::Output, what, &error)
    })
}
