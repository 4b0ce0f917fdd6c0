//! The command line of `clearway demo`.

use clearway::CongestionController;

use crate::size::Size;

/// What the demo does, for `--help`.
pub(crate) const ABOUT: &str = "\
Download 10 MB through a network in which congestion controllers have died.

An HTTP/3 server, a client and a relay between them run in this process, on sockets of the \
loopback interface. The network: 100 Mbit/s, 10 ms round trip, a queue of 250 packets, and 30 % of the \
packets to the client are lost during the first 2 seconds, none after. Those two seconds push the \
congestion window to its floor of two packets. A healthy controller is back at full speed within \
a few round trips; one that mistakes its own full window for idleness stays at the floor, without \
any loss.

The demo shows how long the download took, what the sender waited for meanwhile, and its window \
and bytes in flight over time.";

const EXAMPLES: &str = "\
Examples:
  # one download, as people see it
  clearway demo

  # a hundred with NewReno; one JSON object per download on stdout
  clearway demo --controller newreno --runs 100 --json > runs.json

A download that has not completed after 30 seconds counts as failed. The exit code is 0 only if
every download completed.";

/// Options of `clearway demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The server's congestion controller: newreno or cubic.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic)]
    pub(super) controller: CongestionController,
    /// Downloads, one after the other, each with a new connection.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: u32,
    /// Which packets are lost follows from this; each run adds one.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Bytes to download.
    #[arg(long, default_value = "10MB")]
    pub(super) size: Size,
    /// Print one JSON object per run to stdout.
    #[arg(long)]
    pub(super) json: bool,
}
