//! The command line of `clearway balance`.

use core::net::SocketAddr;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use clearway_balancer::config::Source;
use clearway_links::Span;

use crate::address::to_listen_on;
use crate::failure::EXIT_CODES;
use crate::samples::SampleOptions;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Balance QUIC connections over several servers.

Each datagram goes to the server that its connection ID names (QUIC-LB), so that a connection stays \
with its server when its client gets another address. For that, servers need the same --config file: \
`clearway serve --lb FILE --server-id ID`. Without it, connections are told apart by addresses and by \
the connection IDs of their handshakes, and end when their client's address changes.

Every datagram is forwarded or counted by the reason why it was dropped. Servers are probed; those that \
do not answer get nothing, and their clients are told by the others if all have the same --secret.

SIGINT or SIGTERM ends the balancer and prints its counts. SIGHUP, or a change of the file, reloads \
backends and QUIC-LB configurations from it.";

const EXAMPLES: &str = "\
Examples:
  # two servers, without a file
  clearway balance --listen 0.0.0.0:443 --to 10.0.0.2:443 --to 10.0.0.3:443

  # with connection IDs that name their server
  clearway balance keygen --to 10.0.0.2:443 --to 10.0.0.3:443 > lb.toml
  clearway balance check lb.toml
  clearway serve /srv --lb lb.toml --server-id 01 --secret key --listen 10.0.0.2:443
  clearway balance --config lb.toml --listen 0.0.0.0:443 --control /run/lb.sock

  # maintenance of a server: no new connections, then look whether the old ones are gone
  clearway balance drain 10.0.0.2:443 --control /run/lb.sock
  clearway balance status --control /run/lb.sock";

/// Options of `clearway balance`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) action: Option<Action>,
    /// Address to listen on for clients; port 0 picks a free port. It takes the place of the
    /// file's.
    #[arg(long, value_name = "ADDR:PORT", value_parser = to_listen_on)]
    pub(super) listen: Option<SocketAddr>,
    /// A server to forward to; once for each server.
    #[arg(long = "to", value_name = "ADDR:PORT", conflicts_with = "config")]
    pub(super) backends: Vec<SocketAddr>,
    /// Configuration file (TOML), watched for changes.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Number of threads, each with its own socket.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) shards: Option<u16>,
    /// An address of this host, or a network of such, to send to servers from. Each address has
    /// room for as many clients as there are upstream sockets.
    #[arg(long = "source", value_name = "ADDR|NETWORK")]
    pub(super) sources: Vec<Source>,
    /// Send to servers from the clients' own addresses, so that servers see them. What servers send
    /// to clients has to be routed to this host, and delivered here: see the guide. Needs root, or
    /// the capability CAP_NET_ADMIN, and the service's own address in --listen.
    #[arg(long, conflicts_with = "sources")]
    pub(super) transparent: bool,
    /// How datagrams are read and written.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Batched)]
    pub(super) mode: Mode,
    /// With --mode naive or decoupled, processor time to waste on each datagram.
    #[arg(long, value_name = "TIME")]
    pub(super) work: Option<Span>,
    /// Serve metrics for Prometheus at this address, or at this port of 127.0.0.1.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics_address)]
    pub(super) metrics: Option<SocketAddr>,
    /// Accept `status` and `drain` on a Unix socket at this path.
    #[arg(long, value_name = "PATH")]
    pub(super) control: Option<PathBuf>,
    /// Replace the balancer with this --control path: read from its sockets, which keep what
    /// waits in them, and have it end. --listen and --shards are those of the other.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["listen", "shards"])]
    pub(super) take_over: Option<PathBuf>,
    #[command(flatten)]
    pub(super) sample: SampleOptions,
    /// Print JSON lines to stdout: the listening address, and the counts at the end.
    #[arg(long)]
    pub(super) json: bool,
}

/// How datagrams are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Many a system call, trains in one piece.
    Batched,
    /// One a system call on one thread, received and forwarded in turn: for comparison.
    Naive,
    /// As batched, with a second thread for each shard that only receives, and a queue between
    /// the two: for comparison.
    Decoupled,
}

/// What else the command does.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Print a configuration file with a new key.
    Keygen {
        /// A server; once for each server.
        #[arg(long = "to", value_name = "ADDR:PORT", required = true)]
        backends: Vec<SocketAddr>,
    },
    /// Check a configuration file.
    Check {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print what a running balancer has forwarded and dropped.
    Status {
        #[command(flatten)]
        at: At,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Show it live in the terminal, until q is pressed.
        #[arg(long, conflicts_with = "json")]
        watch: bool,
    },
    /// Send a backend no new connections.
    Drain {
        /// The backend's name.
        #[arg(value_name = "BACKEND")]
        backend: String,
        #[command(flatten)]
        at: At,
    },
    /// Send a backend new connections again.
    Activate {
        /// The backend's name.
        #[arg(value_name = "BACKEND")]
        backend: String,
        #[command(flatten)]
        at: At,
    },
}

/// Which balancer is meant.
#[derive(Debug, clap::Args)]
pub(super) struct At {
    /// The --control path of the balancer.
    #[arg(long, value_name = "PATH")]
    pub(super) control: PathBuf,
}

/// Parses an address, or a port of the loopback interface.
fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse()
        .map_err(|_| "expected a port such as 9100, or an address such as 10.0.0.1:9100".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_on_loopback_unless_an_address_is_given() {
        for (text, expected) in [
            ("9100", Some("127.0.0.1:9100")),
            ("[::1]:9100", Some("[::1]:9100")),
            ("0.0.0.0:9100", Some("0.0.0.0:9100")),
            ("70000", None),
            ("localhost:9100", None),
        ] {
            let address = metrics_address(text).map(|address| address.to_string());
            assert_eq!(address.ok().as_deref(), expected, "{text}");
        }
    }
}
