//! The command line of `clearway view`.

use std::path::PathBuf;

use crate::failure::EXIT_CODES;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Show traces in the browser.

Serves the page of clearway report on a free port of this host's loopback address, prints its URL \
and opens it. Traces are read again whenever the page is loaded, and files dropped on the page are \
diagnosed too. Only this host can reach it. Ends with Ctrl-C.";

const EXAMPLES: &str = "\
Examples:
  # a directory that a server writes to
  clearway view traces

  # an empty page, for files dropped on it
  clearway view --no-open";

/// Options of `clearway view`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// Traces, and directories of traces.
    #[arg(value_name = "FILE|DIR")]
    pub(super) traces: Vec<PathBuf>,
    /// Print the URL, but do not open a browser.
    #[arg(long)]
    pub(super) no_open: bool,
}
