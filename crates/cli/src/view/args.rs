//! The command line of `clearway view`.

use std::path::PathBuf;

use crate::failure::EXIT_CODES;
use crate::traces::SecretsOption;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Show traces in the browser.

Serves the page of clearway report on a free port of this host's loopback address, prints its URL \
and opens it. The page follows traces that grow, traces that are added, and the connections of a \
server with --observe. Files dropped on it are diagnosed too. Only this host can reach it. Ends \
with Ctrl-C.";

const EXAMPLES: &str = "\
Examples:
  # a directory that a server writes to
  clearway view traces

  # the connections of a running server (clearway serve . --observe 127.0.0.1:9100)
  clearway view http://127.0.0.1:9100/

  # an empty page, for files dropped on it
  clearway view --no-open";

/// Options of `clearway view`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// Traces, directories of traces, or the URL that clearway serve --observe prints.
    #[arg(value_name = "FILE|DIR|URL")]
    pub(super) traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) secrets: SecretsOption,
    /// File with the token that the server's --observe-token expects.
    #[arg(long, value_name = "FILE")]
    pub(super) token: Option<PathBuf>,
    /// Print the URL, but do not open a browser.
    #[arg(long)]
    pub(super) no_open: bool,
}
