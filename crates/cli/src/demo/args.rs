//! The command line of `clearway demo`.

use clearway::CongestionController;
use clearway_links::ByteSize;

use crate::controller_help::controller_help;
use crate::qlog::QlogOptions;

/// What the demo does, for `--help`.
pub(crate) const ABOUT: &str = "\
Download 10 MB through a network that is known to stall congestion controllers.

The demo runs an HTTP/3 server, a client and a relay between them in this process, on loopback \
sockets. The network has 100 Mbit/s, 10 ms round trip, a queue of 250 packets, and 30 % of the \
packets to the client are lost during the first 2 seconds, none afterwards. Those two seconds \
reduce the congestion window to its minimum of two packets. A healthy controller recovers within a few \
round trips; one that mistakes its own full window for idleness stays at the minimum although \
nothing is lost any more.

The output shows how long the download took, what the sender waited for, and its window and \
bytes in flight over time.";

const EXAMPLES: &str = "\
Examples:
  # one download, with a chart
  clearway demo

  # a hundred with NewReno; one JSON object per download on stdout
  clearway demo --controller newreno --runs 100 --json > runs.json

A download that has not completed after 30 seconds counts as failed. The exit code is 0 only if
every download completed.";

/// Options of `clearway demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The server's congestion controller.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic,
          help = controller_help("The server's congestion controller"))]
    pub(super) controller: CongestionController,
    /// Number of downloads, one after the other, each on a new connection.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: u32,
    /// Seed that decides which packets are lost; each run adds one.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Size of the download.
    #[arg(long, default_value = "10MB")]
    pub(super) size: ByteSize,
    #[command(flatten)]
    pub(super) qlog: QlogOptions,
    /// Print one JSON object per run to stdout.
    #[arg(long)]
    pub(super) json: bool,
}
