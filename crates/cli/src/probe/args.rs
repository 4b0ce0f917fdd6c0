//! The command line of `clearway probe`.

use std::path::PathBuf;

use clap::ArgGroup;
use clearway_links::Span;

use crate::connect::{ConnectOptions, TrustOptions};
use crate::failure::EXIT_CODES;
use crate::seconds;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Test how a QUIC and HTTP/3 server answers malformed and forbidden input.

Each case makes connections of its own, sends something that the RFCs forbid or that a server has \
to ignore, and compares what comes with what is specified there. A case that finds something else \
is a deviation; where the source only says SHOULD it is reported, but does not count. A generic \
error code instead of the specific one is permitted (RFC 9000 §11, RFC 9114 §8).

Cases that flood a server or make it amplify run with --intrusive only. Probe only servers that \
you may test. Cases of your own are text files (--script); crates/prober/README.md has the format.";

const EXAMPLES: &str = "\
Examples:
  # everything, several cases at a time
  clearway probe https://localhost:4433/ --insecure

  # two kinds of cases, each with its outcome
  clearway probe https://localhost:4433/ -k --case 'qpack-*' --case 'tls-*' --all

  # a page with what was sent, expected and received; JSON for scripts
  clearway probe https://localhost:4433/ -k --report probe.html
  clearway probe https://localhost:4433/ -k --json

  # which cases there are
  clearway probe --list";

/// Options of `clearway probe`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(group(ArgGroup::new("target").required(true).args(["url", "list"])))]
#[command(mut_arg("resolve", |it| it.help("Use this address for a host and port instead of \
resolving the name; the certificate is still checked against HOST")))]
pub(crate) struct Args {
    /// The server; https:// may be omitted. The path is requested to see whether it still answers.
    #[arg(value_name = "URL")]
    pub(super) url: Option<String>,
    /// Run only cases with this name; * stands for any characters. Repeat it for more.
    #[arg(long, value_name = "NAME")]
    pub(super) case: Vec<String>,
    /// Print the names, sources and titles of the cases, and send nothing.
    #[arg(long)]
    pub(super) list: bool,
    /// Also run cases that flood the server or make it amplify.
    #[arg(long)]
    pub(super) intrusive: bool,
    /// Run the cases of this file instead of the built-in ones. Repeat it for more.
    #[arg(long, value_name = "FILE")]
    pub(super) script: Vec<PathBuf>,
    /// Replay this recording of Cloudflare's h3i (its qlog) instead of the built-in cases. Repeat
    /// it for more.
    #[arg(long, value_name = "FILE")]
    pub(super) h3i: Vec<PathBuf>,
    /// What recordings are expected to lead to, as scripts write it; repeat it for alternatives.
    /// By default the connection has to go on.
    #[arg(long, value_name = "OUTCOME", requires = "h3i")]
    pub(super) expect: Vec<String>,
    /// Print all cases, not only those that are not as expected.
    #[arg(long)]
    pub(super) all: bool,
    /// Print the results as a JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// Write the results as one HTML page that opens anywhere.
    #[arg(long, value_name = "FILE.html", conflicts_with = "list")]
    pub(super) report: Option<PathBuf>,
    /// Maximum number of parallel cases.
    #[arg(short = 'Z', long, value_name = "COUNT", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) parallel: u16,
    #[command(flatten)]
    pub(super) trust: TrustOptions,
    #[command(flatten)]
    pub(super) connect: ConnectOptions,
    /// Maximum time to wait for each answer: seconds, or a time with its unit. Raise it for a
    /// server that is farther away than a third of it.
    #[arg(long, value_name = "TIME", default_value = "1.5s", value_parser = seconds::limit)]
    pub(super) patience: Span,
}
