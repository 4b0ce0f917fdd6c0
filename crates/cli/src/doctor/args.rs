//! The arguments of `clearway doctor`.

use std::path::PathBuf;

use clearway_links::Span;

/// What `clearway doctor --help` says.
pub(crate) const ABOUT: &str = "\
Find where this host loses UDP datagrams, which program loses them, and what to do.

Watches the host for some seconds and walks the path of a datagram in order: network card, \
processor queues, IP, firewall, sockets. Names the first place that loses datagrams now, the \
process, socket and thread behind it, and how fast datagrams arrive and are read. Works for any \
program that uses UDP, changes nothing, and needs Linux. Without root it shows what it can and says \
what root would add.";

const AFTER: &str = "\
Examples:
  clearway doctor                       watch this host for 10 seconds
  clearway doctor --port 443            only the sockets on port 443
  clearway doctor --pid 1234            only this process, in its network namespace
  clearway doctor --netns blue          the network namespace of that name (see `ip netns list`)
  clearway doctor --watch               live, until q is pressed
  clearway doctor --report udp.html     with charts, for somebody else
  clearway doctor --json | jq .verdict
  clearway doctor tune                  what on this host limits QUIC

Exit codes:
  0  healthy: nothing was lost
  1  datagrams are being lost
  2  nothing can be seen: invalid arguments, no such socket, or no permission";

/// Options of `clearway doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Look only at the sockets of this process, in the network namespace of that process.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Look only at sockets bound to this port.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Look into this network namespace: a name (see `ip netns list`), or a path such as
    /// /proc/1234/ns/net. Needs root.
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    /// How long to watch before the verdict.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    pub(crate) interval: Span,
    /// Show the verdict live, in the terminal, until q is pressed. It is on the last --interval.
    #[arg(long, conflicts_with_all = ["json", "report"])]
    pub(crate) watch: bool,
    /// Also write a page with charts to this file, which must not exist.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print one JSON object on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) other: Option<Other>,
}

/// What else the doctor does.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Other {
    /// Compare what several hops saw of the same connections, and name the hop that loses.
    Path(PathArgs),
    /// List what on this host limits QUIC, with the command that changes it. Changes nothing.
    Tune(TuneArgs),
}

/// Options of `clearway doctor path`.
#[derive(Debug, clap::Args)]
pub(crate) struct PathArgs {
    /// Files of JSON lines, one line for each second, hop and connection: {"second":1763830800,
    /// "hop":"client","connection":"9f86d081","packets":120,"bytes":144000}. Optional: "direction",
    /// "up" (to the server) or "down".
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The hops from client to server. By default client, balancer, server, with others before the
    /// server.
    #[arg(long, value_delimiter = ',', value_name = "NAME,NAME…")]
    pub(crate) hops: Vec<String>,
    /// Print one JSON object on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `clearway doctor tune`.
#[derive(Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// Print one JSON array on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shortest and longest time to watch, in seconds: below, counters have hardly moved; above, samples
/// are too far apart to tell bursts.
const INTERVALS: core::ops::RangeInclusive<f64> = 0.2..=3_600.0;

fn interval(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    if INTERVALS.contains(&span.0.as_secs_f64()) {
        Ok(span)
    } else {
        Err("must be between 200ms and 3600s".to_owned())
    }
}
