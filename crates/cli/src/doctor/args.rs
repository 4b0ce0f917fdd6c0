//! The arguments of `clearway doctor`.

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
  clearway doctor --json | jq .verdict

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
    /// Print one JSON object on standard output instead of text.
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
        Err("must be between 200ms and 1h".to_owned())
    }
}
