//! The command line of `clearway diagnose`.

use std::path::PathBuf;

use crate::failure::EXIT_CODES;
use crate::traces::SecretsOption;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Find out why a connection was slow, from its trace.

Reads qlog of any stack (JSON text sequences, JSON lines or one JSON document), packet captures \
(pcapng, pcap) with their TLS secrets, and Chrome's netlog, also compressed with gzip or \
Zstandard. Prints what happened in one sentence, then each problem, the most \
important first: how it comes about, its cause, the events that show it, and what to try. Of a \
damaged file, what can be read is diagnosed, and what cannot is counted with its offset.";

const EXAMPLES: &str = "\
Examples:
  # record a download, then ask why it was slow
  clearway get -O https://localhost:4433/large.bin --insecure --qlog traces
  clearway diagnose traces

  # what differs from a good run, and since when
  clearway diagnose slow.sqlog --against fast.sqlog

  # of a packet capture; for Chrome, --log-net-log=netlog.json needs no secrets
  SSLKEYLOGFILE=keys clearway get -O https://localhost:4433/large.bin --insecure --keylog
  clearway diagnose capture.pcapng --secrets keys

  # with pictures
  clearway report slow.sqlog -o slow.html";

/// Options of `clearway diagnose`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// Traces, and directories of traces.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(super) traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) secrets: SecretsOption,
    /// Say what differs from this trace, and since when.
    #[arg(long, value_name = "FILE")]
    pub(super) against: Option<PathBuf>,
    /// Print one JSON object per trace file to stdout.
    #[arg(long)]
    pub(super) json: bool,
    /// Write an HTML report of the traces too.
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
}
