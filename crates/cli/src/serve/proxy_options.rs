//! The options of `clearway serve` as a proxy for UDP.

use core::net::SocketAddr;
use std::path::PathBuf;

use clearway::http::connect_udp::{AddressPolicy, UdpProxy};
use ipnet::IpNet;

use crate::failure::Failure;
use crate::tokens;

/// Tunnels at once, over all clients. Each needs a descriptor.
pub(super) const MAX_TUNNELS: usize = 500;

/// Options of the proxy.
#[derive(Debug, clap::Args)]
pub(super) struct ProxyOptions {
    /// Be a proxy for UDP too (CONNECT-UDP, RFC 9298): `clearway tunnel` is its client. Clients
    /// need a token, and reach global addresses only, on ports 443 and 53.
    #[arg(long, requires = "proxy_token")]
    connect_udp: bool,
    /// File with the tokens of the proxy's clients, one a line, of at least 16 characters.
    #[arg(long, value_name = "FILE", requires = "connect_udp")]
    proxy_token: Option<PathBuf>,
    /// Network that the proxy's clients may reach besides, such as 10.1.0.0/16; may be repeated.
    /// The addresses on which this server listens stay forbidden.
    #[arg(long, value_name = "NET", requires = "connect_udp")]
    proxy_allow: Vec<IpNet>,
    /// Port that the proxy's clients may reach, instead of 443 and 53; may be repeated.
    #[arg(long, value_name = "PORT", requires = "connect_udp",
          value_parser = clap::value_parser!(u16).range(1..))]
    proxy_port: Vec<u16>,
}

impl ProxyOptions {
    /// Whether there is a proxy.
    pub(super) fn is_on(&self) -> bool {
        self.connect_udp
    }

    /// Reads the tokens of the proxy's clients; none if there is no proxy.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub(super) fn tokens(&self) -> Result<Vec<String>, Failure> {
        match &self.proxy_token {
            Some(file) if self.connect_udp => tokens::read("--proxy-token", file),
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// The proxy of a server that listens on this address.
    pub(super) fn proxy(&self, own: SocketAddr, tokens: &[String]) -> Option<UdpProxy> {
        if !self.connect_udp {
            return None;
        }
        let mut policy = AddressPolicy::default().own_listener(own);
        if !self.proxy_port.is_empty() {
            policy = policy.ports(self.proxy_port.clone());
        }
        for network in &self.proxy_allow {
            policy = policy.allow(*network);
        }
        let mut proxy = UdpProxy::builder().policy(policy);
        for token in tokens {
            proxy = proxy.token(token);
        }
        Some(proxy.build())
    }
}
