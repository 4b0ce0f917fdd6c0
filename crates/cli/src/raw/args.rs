//! The command line of `clearway raw`.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use clap::{ArgGroup, Subcommand};
use clearway::{CongestionController, VersionPreference};
use clearway_links::{ByteSize, Span};

use crate::address;
use crate::controller_help::controller_help;
use crate::qlog::QlogOptions;

/// What the raw protocol is, for `--help`.
pub(crate) const ABOUT: &str = "\
Transfer bytes directly over QUIC, without HTTP.

The protocol (ALPN clearway-raw): the client opens a bidirectional stream, sends the number of \
bytes it wants as eight bytes, big-endian, followed by an optional upload, and ends the stream. \
The server reads to the end, sends exactly that many bytes, of which byte i is \
(i ^ (i >> 8) ^ (i >> 16)) mod 256, and ends the stream. The client checks every byte.";

const SERVE_EXAMPLES: &str = "\
Examples:
  # with a generated certificate
  clearway raw serve --listen 127.0.0.1:4433

  # with your own certificate; clients must validate their address, and may use 0-RTT
  clearway raw serve --listen [::]:4433 --cert chain.pem --key key.pem --retry --zero-rtt

  # a qlog file of each connection
  clearway raw serve --listen 127.0.0.1:4433 --qlog traces";

const GET_EXAMPLES: &str = "\
Examples:
  # a gigabyte, checked
  clearway raw get 127.0.0.1:4433 --insecure --bytes 1GB

  # a thousand small requests, eight at a time, on a resumed connection, the first in 0-RTT
  clearway raw get localhost:4433 --ca chain.pem --bytes 1kB --streams 1000 --parallel 8 --zero-rtt

  # bulk for ten seconds, with a key update and a new port on the way, as JSON
  clearway raw get 127.0.0.1:4433 --insecure --seconds 10 --key-update --rebind --json";

/// Subcommands of `clearway raw`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve raw requests until SIGINT or SIGTERM.
    Serve(Serve),
    /// Make raw requests and check the responses.
    Get(Get),
}

/// Options of `clearway raw serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    /// Address to listen on, or :PORT for all addresses; port 0 picks a free port.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::to_listen_on)]
    pub(super) listen: SocketAddr,
    /// Certificate chain (PEM, leaf first); if omitted, one is generated.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// Require every client to validate its address first (Retry).
    #[arg(long)]
    pub(super) retry: bool,
    /// Accept requests in 0-RTT. An attacker on the path can replay them.
    #[arg(long)]
    pub(super) zero_rtt: bool,
    /// QUIC versions, most preferred first: 1, 2, or both separated by a comma.
    #[arg(long, value_name = "LIST", default_value = "1,2")]
    pub(super) versions: VersionPreference,
    /// Congestion controller.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic,
          help = controller_help("Congestion controller"))]
    pub(super) controller: CongestionController,
    /// Number of threads, each with its own socket.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) shards: u16,
    #[command(flatten)]
    pub(super) qlog: QlogOptions,
    /// Print one JSON object to stdout at the end.
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `clearway raw get`.
#[derive(Debug, clap::Args)]
#[command(after_help = GET_EXAMPLES)]
#[command(group(ArgGroup::new("trust").required(true).args(["ca", "insecure"])))]
pub(crate) struct Get {
    /// Server to connect to.
    #[arg(value_name = "HOST:PORT")]
    pub(super) server: String,
    /// Name to check the certificate against; HOST by default.
    #[arg(long, value_name = "NAME")]
    pub(super) server_name: Option<String>,
    /// Trust the certificates in this PEM file.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Do not verify the server's certificate: anyone on the path can impersonate the server.
    #[arg(long)]
    pub(super) insecure: bool,
    /// Bytes to request on each stream.
    #[arg(long, value_name = "SIZE", default_value = "1MB")]
    pub(super) bytes: ByteSize,
    /// Number of requests, each on its own stream.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) streams: u64,
    /// Maximum number of parallel requests.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) parallel: u16,
    /// Bytes to upload with each request.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(super) upload: ByteSize,
    /// Update the packet keys once content arrives (RFC 9001 §6).
    #[arg(long)]
    pub(super) key_update: bool,
    /// Move to another local port once content arrives.
    #[arg(long)]
    pub(super) rebind: bool,
    /// Connect once to obtain a ticket, then measure a resumed connection.
    #[arg(long)]
    pub(super) resume: bool,
    /// Like --resume, and send the first requests in 0-RTT.
    #[arg(long)]
    pub(super) zero_rtt: bool,
    /// Download on one stream for this many seconds, however many bytes arrive.
    #[arg(long, value_name = "SECONDS", value_parser = seconds,
          conflicts_with_all = ["bytes", "streams", "parallel"])]
    pub(super) seconds: Option<Duration>,
    /// Maximum time for the whole command.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(super) timeout: Span,
    /// QUIC versions, most preferred first: 1, 2, or both separated by a comma.
    #[arg(long, value_name = "LIST", default_value = "1,2")]
    pub(super) versions: VersionPreference,
    /// Congestion controller for uploads.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic,
          help = controller_help("Congestion controller for uploads"))]
    pub(super) controller: CongestionController,
    #[command(flatten)]
    pub(super) qlog: QlogOptions,
    /// Print one JSON object to stdout.
    #[arg(long)]
    pub(super) json: bool,
}

impl Get {
    /// Bytes to request on a stream: with a duration, more than any network delivers in that time,
    /// but no more than a stream may carry (RFC 9000 §4.5).
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

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "expected seconds such as 10 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if seconds <= 0.0 {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}
