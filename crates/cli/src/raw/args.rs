//! The command line of `clearway raw`.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use clap::{ArgGroup, Subcommand};
use clearway::CongestionController;
use clearway_links::Span;

use crate::size::Size;

/// What the raw protocol is, for `--help`.
pub(crate) const ABOUT: &str = "\
Transfer bytes over QUIC with nothing above it.

The protocol (ALPN clearway-raw): the client opens a bidirectional stream, sends eight bytes, \
big-endian: how many bytes it wants, then an upload if it has one, and ends the stream. The server \
reads up to the end and answers with exactly so many bytes, byte i being \
(i ^ (i >> 8) ^ (i >> 16)) mod 256, and the end. So the client checks every byte.";

const SERVE_EXAMPLES: &str = "\
Examples:
  # with a certificate made on the spot
  clearway raw serve --listen 127.0.0.1:4433

  # with one of yours; clients have to prove their address, and may send early
  clearway raw serve --listen [::]:4433 --cert chain.pem --key key.pem --retry --zero-rtt

  # a qlog file of each connection
  QLOGDIR=/tmp clearway raw serve --listen 127.0.0.1:4433";

const GET_EXAMPLES: &str = "\
Examples:
  # a gigabyte, checked
  clearway raw get 127.0.0.1:4433 --insecure --bytes 1GB

  # a thousand small requests, eight at a time, on a resumed connection, the first in 0-RTT
  clearway raw get localhost:4433 --ca chain.pem --bytes 1kB --streams 1000 --parallel 8 --zero-rtt

  # bulk for ten seconds, with a key update and a new port on the way, as JSON
  clearway raw get 127.0.0.1:4433 --insecure --seconds 10 --key-update --rebind --json";

/// The two ends.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer raw requests until SIGINT or SIGTERM.
    Serve(Serve),
    /// Make raw requests and check the answers.
    Get(Get),
}

/// Options of `clearway raw serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    /// Where clients connect to; port 0 picks a free one.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub(super) listen: SocketAddr,
    /// Certificate chain, PEM, leaf first; otherwise one is made.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// Clients have to prove their address before anything else (Retry).
    #[arg(long)]
    pub(super) retry: bool,
    /// Accept requests in 0-RTT, which somebody on the path could repeat.
    #[arg(long)]
    pub(super) zero_rtt: bool,
    /// Congestion controller: newreno or cubic.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic)]
    pub(super) controller: CongestionController,
    /// Threads, each with a socket of its own.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) shards: u16,
    /// Print one JSON object to stdout at the end.
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `clearway raw get`.
#[derive(Debug, clap::Args)]
#[command(after_help = GET_EXAMPLES)]
#[command(group(ArgGroup::new("trust").required(true).args(["ca", "insecure"])))]
pub(crate) struct Get {
    /// The server: HOST:PORT.
    #[arg(value_name = "HOST:PORT")]
    pub(super) server: String,
    /// The name its certificate has to be for; HOST unless given.
    #[arg(long, value_name = "NAME")]
    pub(super) server_name: Option<String>,
    /// Certificates to trust, PEM.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Trust any certificate: whoever is on the path can be the server.
    #[arg(long)]
    pub(super) insecure: bool,
    /// Bytes to ask for in each request.
    #[arg(long, value_name = "SIZE", default_value = "1MB")]
    pub(super) bytes: Size,
    /// Requests, each on a stream of its own.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) streams: u64,
    /// Requests at once.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) parallel: u16,
    /// Bytes to upload with each request.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(super) upload: Size,
    /// Change packet keys once content arrives (RFC 9001 §6).
    #[arg(long)]
    pub(super) key_update: bool,
    /// Move to another local port once content arrives.
    #[arg(long)]
    pub(super) rebind: bool,
    /// Connect once for a ticket, then measure a connection that resumes.
    #[arg(long)]
    pub(super) resume: bool,
    /// As --resume, and send the first requests in 0-RTT.
    #[arg(long)]
    pub(super) zero_rtt: bool,
    /// Download on one stream for so many seconds, however much comes.
    #[arg(long, value_name = "SECONDS", value_parser = seconds,
          conflicts_with_all = ["bytes", "streams", "parallel"])]
    pub(super) seconds: Option<Duration>,
    /// Give up after so long.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(super) timeout: Span,
    /// Congestion controller for what is uploaded: newreno or cubic.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic)]
    pub(super) controller: CongestionController,
    /// Print one JSON object to stdout.
    #[arg(long)]
    pub(super) json: bool,
}

impl Get {
    /// Bytes to ask for in a request: with a duration, more than any network
    /// delivers in it, but what any stream may carry (RFC 9000 §4.5).
    pub(super) fn wanted(&self) -> u64 {
        /// A pebibyte.
        const ENDLESS: u64 = 1 << 50;
        if self.seconds.is_some() {
            ENDLESS
        } else {
            self.bytes.0
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "not an IP address with a port; write one such as 127.0.0.1:4433 or [::1]:4433".to_owned()
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "not a time; write seconds such as 10 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if seconds <= 0.0 {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}
