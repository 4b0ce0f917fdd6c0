//! The command line of `clearway trace`.

use std::path::PathBuf;

use clearway_trace::event::Role;
use clearway_trace::qlog::Dialect;

use crate::traces::SecretsOption;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Convert, check and count trace files.

Reads qlog of any stack, packet captures (pcapng, pcap) with their TLS secrets, and Chrome's \
netlog, also compressed with gzip or Zstandard.";

const CONVERT_EXAMPLES: &str = "\
Examples:
  # for qvis, which reads the names of qlog 0.3
  clearway trace convert trace.sqlog -o for-qvis.sqlog --dialect qvis

  # compressed
  clearway trace convert trace.qlog -o trace.sqlog.zst

  # what the server of the second connection in a packet capture did
  clearway trace convert capture.pcapng -o server.sqlog --secrets keys --connection 2 --role server";

/// Subcommands of `clearway trace`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Rewrite a trace: in another dialect, compressed or decompressed, or of a capture.
    Convert(Convert),
    /// Count the events of traces.
    Stat(Stat),
    /// Check whether traces can be read completely.
    Validate(Validate),
}

/// `clearway trace convert`.
#[derive(Debug, clap::Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub(crate) struct Convert {
    /// The trace to read.
    #[arg(value_name = "FILE")]
    pub(super) input: PathBuf,
    /// The file to write; compressed if its name ends with .gz or .zst.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Event names: those of the newest drafts (draft), or those of qlog 0.3 that qvis and older
    /// tools read (qvis).
    #[arg(long, value_name = "draft|qvis", default_value = "draft")]
    pub(super) dialect: Dialect,
    #[command(flatten)]
    pub(super) secrets: SecretsOption,
    /// Of a capture: which connection, counted from 1 in the order in which they begin.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) connection: u32,
    /// Of a capture: the end whose view is written [default: the one that sent more].
    #[arg(long, value_name = "client|server", value_parser = role)]
    pub(super) role: Option<Role>,
}

/// An end of a connection by its name.
fn role(name: &str) -> Result<Role, String> {
    match name {
        "client" => Ok(Role::Client),
        "server" => Ok(Role::Server),
        other => Err(format!(
            "unknown end {other:?}: expected \"client\" or \"server\""
        )),
    }
}

/// `clearway trace stat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Stat {
    /// Traces, and directories of traces.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(super) traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) secrets: SecretsOption,
    /// Print one JSON object per file to stdout.
    #[arg(long)]
    pub(super) json: bool,
}

/// `clearway trace validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Validate {
    /// Traces, and directories of traces.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(super) traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) secrets: SecretsOption,
}
