//! The command line of `clearway serve`.

use core::net::SocketAddr;
use std::path::PathBuf;

use clearway::connection_id::quic_lb::ServerId;
use clearway::{CongestionController, VersionPreference};
use clearway_links::Span;

use super::limit_options::LimitOptions;
use super::observe::ObserveOptions;
use super::proxy_options::ProxyOptions;
use crate::address;
use crate::controller_help::controller_help;
use crate::failure::EXIT_CODES;
use crate::qlog::QlogOptions;
use crate::samples::SampleOptions;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Serve a directory over HTTP/3.

Serves files with content types, single ranges, validators and conditional requests; index.html \
or a listing for directories; and accepts uploads by PUT with --writable. Nothing outside the \
directory is reachable, not even through symbolic links; names that begin with a dot are not \
either, except .well-known at its root. An upload is answered when it is on the disk. With \
--writable, HTML, SVG and other XML are served for browsers to show without running scripts. Each request is logged as a line on \
standard error. Clients that send `te: trailers` receive the trailer clearway-breakdown, which \
says what limited the connection.

SIGINT or SIGTERM shuts the server down after the requests in progress; a second signal ends it \
at once. SIGHUP, or a change of the files, reloads the certificate.";

const EXAMPLES: &str = "\
Examples:
  # the current directory, with a generated certificate
  clearway serve .

  # with your own certificate, uploads allowed, on two threads
  clearway serve /srv/files --listen [::]:443 --cert chain.pem --key key.pem --writable --shards 2

  # a proxy for UDP too, for those who have a token of the file
  clearway serve . --connect-udp --proxy-token tokens.txt

  # connections in the browser (clearway view URL) and metrics for Prometheus
  clearway serve . --observe 127.0.0.1:9100

  # for a web page that uses WebTransport: an echo, with a certificate that browsers accept
  clearway serve . --webtransport

  # for scripts: the listening address and each request as JSON on stdout
  clearway serve . --listen 127.0.0.1:0 --json";

/// Options of `clearway serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// Directory to serve.
    #[arg(value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// Address to listen on, or :PORT for all addresses; port 0 picks a free port. The default is
    /// :4433.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::to_listen_on)]
    pub(super) listen: Option<SocketAddr>,
    /// Certificate chain (PEM, leaf first). If omitted, a self-signed certificate is generated
    /// and its SHA-256 fingerprint printed.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// Accept uploads (PUT). Anyone who can reach the server can replace files.
    #[arg(long)]
    pub(super) writable: bool,
    /// Serve and list files whose names begin with a dot too. By default only .well-known at the
    /// root of DIR is, because others, such as .git and .env, often are secrets.
    #[arg(long)]
    pub(super) hidden: bool,
    /// Keep the secret for Retry, address tokens and stateless resets in this file, so that
    /// clients of a server that was killed and restarted notice at once instead of after
    /// about 30 s. Created if it does not exist, with 32 random bytes and access for its
    /// owner only.
    #[arg(long, value_name = "FILE")]
    pub(super) secret: Option<PathBuf>,
    /// Make connection IDs that `clearway balance` with this --config file routes to this
    /// server. SIGHUP, or a change of the file, has open connections replace theirs.
    #[arg(long, value_name = "FILE", requires = "server_id")]
    pub(super) lb: Option<PathBuf>,
    /// This server's ID in the file of --lb, in hexadecimal digits; or the server's IP address, if
    /// balancers find it by DNS or Kubernetes: IPv4 addresses are IDs of 4 bytes, IPv6 addresses of 8.
    #[arg(long, value_name = "HEX", requires = "lb", value_parser = server_id)]
    pub(super) server_id: Option<ServerId>,
    /// Answer downloads in 0-RTT, before a returning client's handshake is complete. An
    /// attacker on the path can replay such requests.
    #[arg(long)]
    pub(super) early_data: bool,
    /// Number of network threads, each with its own socket.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) shards: u16,
    /// QUIC versions, most preferred first: 1, 2, or both separated by a comma.
    #[arg(long, value_name = "LIST", default_value = "1,2")]
    pub(super) versions: VersionPreference,
    /// Congestion controller.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic,
          help = controller_help("Congestion controller"))]
    pub(super) controller: CongestionController,
    /// How long requests in progress may take after a signal.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(super) drain: Span,
    /// Answer WebTransport sessions at every path with an echo, to try out web pages: streams come
    /// back on the same stream or one of the server's, datagrams as datagrams, and resets with their
    /// code. The text `close CODE REASON` on a bidirectional stream closes the session, `reset CODE`
    /// resets the stream, `open` makes the server open one. A generated certificate is then valid
    /// for 13 days, so that browsers accept it by its fingerprint (serverCertificateHashes).
    #[arg(long)]
    pub(super) webtransport: bool,
    #[command(flatten)]
    pub(super) proxy: ProxyOptions,
    #[command(flatten)]
    pub(super) bounds: LimitOptions,
    #[command(flatten)]
    pub(super) qlog: QlogOptions,
    #[command(flatten)]
    pub(super) observe: ObserveOptions,
    #[command(flatten)]
    pub(super) sample: SampleOptions,
    /// Print JSON lines to stdout: the listening address, then each request.
    #[arg(long)]
    pub(super) json: bool,
}

fn server_id(text: &str) -> Result<ServerId, String> {
    clearway_balancer::config::parse_server_id(text)
}
