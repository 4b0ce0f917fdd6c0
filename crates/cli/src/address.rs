//! Addresses on the command line.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::net::{ToSocketAddrs as _, UdpSocket};

/// Parses an address to listen on: an IP address and a port, or `:PORT` for all addresses of the
/// host.
///
/// # Errors
/// What was expected.
pub(crate) fn to_listen_on(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
    let every = port.map(|port| SocketAddr::new(any(), port));
    every.or_else(|| text.parse().ok()).ok_or_else(|| {
        "expected an IP address and port such as 127.0.0.1:4433 or [::1]:4433, or a port such as \
         :4433"
            .to_owned()
    })
}

/// The address for all addresses: a socket bound to it takes IPv6 and IPv4, on hosts with IPv6.
fn any() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// The addresses of a host to send to; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote(Vec<SocketAddr>);

impl Remote {
    /// Resolves a host and port.
    ///
    /// # Errors
    /// What was expected, or why the name cannot be resolved.
    pub(crate) fn resolve(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self(vec![address]));
        }
        let port = text
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        let Some((1.., Ok(_))) = port.map(|(host, port)| (host.len(), port)) else {
            return Err("expected a host and port such as 127.0.0.1:4433 or localhost:4433".into());
        };
        match text.to_socket_addrs() {
            Ok(found) if found.len() > 0 => Ok(Self(found.collect())),
            Ok(_) => Err("the host has no address".into()),
            Err(error) => Err(format!("cannot resolve the host: {error}")),
        }
    }

    /// The address to use beside a socket bound to `local`: the first of its family, if there is
    /// one and it is bound to one family.
    pub(crate) fn reachable_from(&self, local: SocketAddr) -> Option<SocketAddr> {
        let both = local.ip().is_unspecified();
        let same = |there: &&SocketAddr| both || there.is_ipv4() == local.is_ipv4();
        self.0.iter().find(same).or(self.0.first()).copied()
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(SocketAddr::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_means_all_addresses() {
        let all = to_listen_on(":5601").unwrap();
        assert!(all.ip().is_unspecified() && all.port() == 5601);
        assert_eq!(to_listen_on("127.0.0.1:1"), Ok(([127, 0, 0, 1], 1).into()));
        for text in [
            "",
            ":",
            ":65536",
            ":-1",
            "5601",
            "::1:",
            "localhost:1",
            "127.0.0.1",
        ] {
            let error = to_listen_on(text).unwrap_err();
            assert!(error.contains("such as :4433"), "{text:?}");
        }
    }

    #[test]
    fn remote_address_has_the_family_of_the_local_one() {
        let [v4, v6] = ["127.0.0.1:1", "[::1]:1"].map(|text| text.parse::<SocketAddr>().unwrap());
        let both = Remote(vec![v6, v4]);
        assert_eq!(both.reachable_from(v4), Some(v4));
        assert_eq!(both.reachable_from(v6), Some(v6));
        assert_eq!(Remote(vec![v6]).reachable_from(v4), Some(v6));
        for text in [
            "",
            "host",
            "host:",
            ":1",
            "host:65536",
            "no.such.host.invalid:1",
        ] {
            assert!(Remote::resolve(text).is_err(), "{text:?}");
        }
    }
}
