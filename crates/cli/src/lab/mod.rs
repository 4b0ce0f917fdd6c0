//! `clearway lab`: controllers and whole stacks in networks in virtual time.

mod args;
mod batch;
mod cases;
mod choose;
mod files;
mod hunt;
mod league;
mod list;
mod merge;
mod run;
mod specimen;
mod sweep;
mod table;
mod verdict;
mod watch;

pub(crate) use args::{ABOUT, Command};
pub(crate) use choose::network;

use crate::diagnose;
use crate::failure::Failure;

/// Does what was asked.
///
/// # Errors
/// If the arguments make no sense, a file cannot be used, or a bar was not
/// reached.
pub(crate) fn command(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::list(args),
        Command::Show(args) => list::show(args),
        Command::Run(args) => run::command(args),
        Command::Sweep(args) => sweep::command(args),
        Command::Hunt(args) => hunt::command(args),
        Command::Merge(args) => merge::command(args),
        Command::League(args) => league::command(args),
        Command::Compare(args) => league::compare(args),
        Command::Diagnose(args) => diagnose::command(args),
    }
}
