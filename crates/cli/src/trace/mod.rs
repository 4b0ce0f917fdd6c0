//! `clearway trace`: trace files themselves, rather than the connections in them.

mod args;
mod convert;
mod stat;
mod validate;

pub(crate) use self::args::{ABOUT, Command};

use crate::failure::Failure;

/// Runs one of the commands.
///
/// # Errors
/// If a file cannot be read or written, or is not valid.
pub(crate) fn command(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Convert(args) => convert::command(args),
        Command::Stat(args) => stat::command(args),
        Command::Validate(args) => validate::command(args),
    }
}
