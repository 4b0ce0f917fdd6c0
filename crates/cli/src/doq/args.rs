//! The command line of `clearway doq`.

use core::net::SocketAddr;
use core::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;

use clearway::doq;
use clearway_links::Span;

use crate::address;
use crate::connect::TrustOptions;
use crate::failure::EXIT_CODES;
use crate::qlog::QlogOptions;

/// What it does, for `--help`.
pub(crate) const ABOUT: &str = "\
Forward plain DNS to DNS over QUIC (RFC 9250), or back.

With --listen, answers plain DNS queries (UDP and TCP) by a DNS-over-QUIC server, whose connection \
is kept and resumed; queries are padded, and sent in 0-RTT where that is safe. With --serve, is \
such a server, and asks a plain DNS server.";

const EXAMPLES: &str = "\
Examples:
  # a resolver for this host
  clearway doq --listen 127.0.0.1:5353 --server dns.example:853

  # DNS over QUIC for an existing resolver
  clearway doq --serve [::]:853 --upstream 127.0.0.1:53 --cert chain.pem --key key.pem";

/// Options of `clearway doq`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(group = clap::ArgGroup::new("direction").required(true).args(["listen", "serve"]))]
#[command(mut_group("TrustOptions", |it| it.requires("listen")))]
pub(crate) struct Args {
    /// Address to answer plain DNS queries on (UDP and TCP); port 0 picks a free port.
    #[arg(long, value_name = "ADDR:PORT", requires = "server",
          value_parser = address::to_listen_on)]
    pub(super) listen: Option<SocketAddr>,
    /// Server to ask by DNS over QUIC. The port is 853 unless given.
    #[arg(long, value_name = "HOST[:PORT]", requires = "listen")]
    pub(super) server: Option<ServerName>,
    /// Name that the server's certificate has to be valid for, instead of HOST.
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub(super) name: Option<String>,
    #[command(flatten)]
    pub(super) trust: TrustOptions,
    /// Address to serve DNS over QUIC on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR:PORT", requires = "upstream",
          value_parser = address::to_listen_on)]
    pub(super) serve: Option<SocketAddr>,
    /// Plain DNS server to ask.
    #[arg(long, value_name = "ADDR:PORT", requires = "serve")]
    pub(super) upstream: Option<SocketAddr>,
    /// Certificate chain (PEM, leaf first). If omitted, a self-signed certificate is generated
    /// and its SHA-256 fingerprint printed.
    #[arg(long, value_name = "FILE", requires = "key", requires = "serve")]
    pub(super) cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// How long an answer may take.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(super) timeout: Span,
    #[command(flatten)]
    pub(super) qlog: QlogOptions,
    /// Print the listening address as a JSON line.
    #[arg(long)]
    pub(super) json: bool,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerName {
    pub(super) host: String,
    pub(super) port: u16,
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.parse::<core::net::Ipv6Addr>().is_ok();
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !bare && !text.ends_with(']') => {
                let port = port.parse::<NonZeroU16>();
                let port = port.map_err(|_| {
                    format!("invalid port in {text:?}: must be between 1 and 65535")
                })?;
                (host, port.get())
            }
            Some(_) | None => (text, doq::PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(format!("missing host in {text:?} (expected HOST[:PORT])"));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_853_unless_given() {
        for (text, host, port) in [
            ("dns.example", "dns.example", 853),
            ("dns.example:8853", "dns.example", 8853),
            ("[::1]:8853", "::1", 8853),
            ("[::1]", "::1", 853),
            ("::1", "::1", 853),
        ] {
            let expected = ServerName {
                host: host.into(),
                port,
            };
            assert_eq!(text.parse(), Ok(expected));
        }
        for wrong in ["", ":853", "a:0", "a:65536", "a:x"] {
            assert!(wrong.parse::<ServerName>().is_err(), "{wrong}");
        }
    }
}
