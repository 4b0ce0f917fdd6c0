//! The command line of `clearway trace`.

use std::path::PathBuf;

use clearway_trace::qlog::Dialect;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Convert, check and count trace files.

Reads qlog of any stack, also compressed with gzip or Zstandard.";

const CONVERT_EXAMPLES: &str = "\
Examples:
  # for qvis, which reads the names of qlog 0.3
  clearway trace convert trace.sqlog -o for-qvis.sqlog --dialect qvis

  # compressed
  clearway trace convert trace.qlog -o trace.sqlog.zst";

/// Subcommands of `clearway trace`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Rewrite a trace: in another dialect, compressed or decompressed.
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
}

/// `clearway trace stat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Stat {
    /// Traces, and directories of traces.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(super) traces: Vec<PathBuf>,
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
}
