//! The command line of `clearway serve`.

use core::net::SocketAddr;
use std::path::PathBuf;

use clearway::CongestionController;
use clearway_links::Span;

use super::bounds::Bounds;
use crate::failure::EXIT_CODES;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Serve a directory over HTTP/3.

Files with their content types, single ranges, validators and conditional requests; index.html or \
a listing for directories; uploads by PUT if --writable. Nothing outside the directory can be \
reached, not by symbolic links either. Each request is a line on standard error. To clients that \
send `te: trailers`, what the connection waited for is told in the trailer clearway-breakdown.

SIGINT or SIGTERM ends it when what is under way is done; a second one ends it at once. SIGHUP, or \
a change of the files, makes it read the certificate again.";

const EXAMPLES: &str = "\
Examples:
  # the current directory, with a certificate made on the spot
  clearway serve .

  # with one of yours, uploads allowed, on two threads
  clearway serve /srv/files --listen [::]:443 --cert chain.pem --key key.pem --writable --shards 2

  # for scripts: where it listens and each request as JSON on stdout
  clearway serve . --listen 127.0.0.1:0 --json";

/// Options of `clearway serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// What to serve.
    #[arg(value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// Where clients connect to; port 0 picks a free one. By default port 4433
    /// of every address.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub(super) listen: Option<SocketAddr>,
    /// Certificate chain, PEM, leaf first; otherwise one is made and its
    /// SHA-256 fingerprint printed.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// Accept uploads (PUT): anybody who reaches the server may replace files.
    #[arg(long)]
    pub(super) writable: bool,
    /// Keep the key of Retry, address tokens and stateless resets in this file, so that
    /// clients of a server that was killed and restarted learn of it at once instead of
    /// waiting some 30 s. Made if it is not there: 32 random bytes that only its owner
    /// may read.
    #[arg(long, value_name = "FILE")]
    pub(super) secret: Option<PathBuf>,
    /// Answer downloads before a returning client's handshake is complete (0-RTT):
    /// an attacker on the path may have such a request happen again.
    #[arg(long)]
    pub(super) early_data: bool,
    /// Threads for the network, each with a socket of its own.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) shards: u16,
    /// Congestion controller.
    #[arg(long, value_name = "NAME", default_value_t = CongestionController::Cubic)]
    pub(super) controller: CongestionController,
    /// How long requests under way may take after a signal.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(super) drain: Span,
    #[command(flatten)]
    pub(super) bounds: Bounds,
    /// Print JSON lines to stdout: where it listens, then each request.
    #[arg(long)]
    pub(super) json: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "not an IP address with a port; write one such as 127.0.0.1:4433 or [::]:4433".to_owned()
    })
}
