//! The command line of `clearway tunnel`.

use core::net::SocketAddr;
use std::path::PathBuf;

use clearway::http::connect_udp::Target;
use clearway_links::Span;
use http::Uri;

use crate::address;
use crate::connect::TrustOptions;
use crate::failure::EXIT_CODES;
use crate::qlog::QlogOptions;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Send UDP through an HTTP/3 proxy, from a local port.

Packets that programs of this host send to the local port leave from the proxy's address to the \
target, and what the target answers comes back (CONNECT-UDP, RFC 9298). Each local program has a \
tunnel of its own; the proxy resolves the target's name. Packets that do not fit into a datagram \
of the connection to the proxy are dropped, as UDP does, and so are those for which it has no \
room. `clearway serve --connect-udp` is such a proxy.";

const EXAMPLES: &str = "\
Examples:
  # DNS queries through the proxy
  clearway tunnel --proxy https://proxy.example --proxy-token token.txt \\
      --local 127.0.0.1:5353 --to 1.1.1.1:53

  # HTTP/3 through the proxy
  clearway tunnel --proxy https://proxy.example --proxy-token token.txt \\
      --local 127.0.0.1:4443 --to example.org:443
  clearway get https://example.org/ --connect-to example.org:443:127.0.0.1:4443";

/// Options of `clearway tunnel`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(mut_arg("insecure", |it| it.help("Do not verify the proxy's certificate: anyone on the \
path can impersonate the proxy")))]
pub(crate) struct Args {
    /// Proxy, as https://HOST[:PORT].
    #[arg(long, value_name = "URL")]
    pub(super) proxy: Uri,
    /// Local address to receive packets on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::to_listen_on)]
    pub(super) local: SocketAddr,
    /// Target of the packets.
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) to: Target,
    /// File whose first line is the token for the proxy.
    #[arg(long, value_name = "FILE")]
    pub(super) proxy_token: Option<PathBuf>,
    /// Send packets in capsules on a stream instead of datagrams: none is lost or too large, but
    /// each waits for those before it.
    #[arg(long)]
    pub(super) capsules: bool,
    /// End a program's tunnel when no packet has come for this long.
    #[arg(long, value_name = "TIME", default_value = "120s")]
    pub(super) idle: Span,
    #[command(flatten)]
    pub(super) trust: TrustOptions,
    #[command(flatten)]
    pub(super) qlog: QlogOptions,
    /// Print JSON lines to stdout: the local address, and when it ends what passed.
    #[arg(long)]
    pub(super) json: bool,
}
