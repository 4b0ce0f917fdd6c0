//! The scope of addresses, and the addresses that a peer may not direct us to (RFC 9000
//! §21.5.6).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The scope of an address, from narrow to wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// Not the address of a single host: unspecified, multicast, broadcast, port 0.
    Invalid,
    /// This host.
    Host,
    /// This link.
    Link,
    /// Addresses for private use, and unique local ones.
    Private,
    /// Everything else.
    Global,
}

fn scope(address: SocketAddr) -> Scope {
    if address.port() == 0 {
        return Scope::Invalid;
    }
    match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() => {
            Scope::Invalid
        }
        IpAddr::V4(ip) if ip.is_loopback() => Scope::Host,
        IpAddr::V4(ip) if ip.is_link_local() => Scope::Link,
        IpAddr::V4(ip) if ip.is_private() => Scope::Private,
        IpAddr::V4(_) => Scope::Global,
        IpAddr::V6(ip) if ip.is_unspecified() || ip.is_multicast() => Scope::Invalid,
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Scope::Host,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Scope::Link,
        IpAddr::V6(ip) if ip.is_unique_local() => Scope::Private,
        IpAddr::V6(_) => Scope::Global,
    }
}

/// Returns whether a client at `from` may migrate to `to`. Not allowed are invalid
/// addresses, and loopback addresses unless the client was at one.
pub(crate) fn is_allowed_client_address(from: SocketAddr, to: SocketAddr) -> bool {
    match scope(to) {
        Scope::Invalid => false,
        Scope::Host => scope(from) == Scope::Host,
        Scope::Link | Scope::Private | Scope::Global => true,
    }
}

/// Returns whether a server at `from` may direct its clients to `to`. Not allowed are
/// addresses of a smaller scope than `from`, such as those in the client's own network.
pub(crate) fn is_allowed_preferred_address(from: SocketAddr, to: SocketAddr) -> bool {
    scope(to) != Scope::Invalid && scope(to) >= scope(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [&str; 9] = [
        "0.0.0.0:443",
        "203.0.113.1:0",
        "[ff02::1]:443",
        "127.0.0.1:443",
        "[::ffff:127.0.0.1]:443",
        "169.254.0.1:443",
        "192.168.0.1:443",
        "[fd00::1]:443",
        "[2001:db8::1]:443",
    ];

    fn table(may: fn(SocketAddr, SocketAddr) -> bool) -> Vec<String> {
        let parse = |text: &str| text.parse().unwrap();
        let row = |from: &str| {
            let marks = PLACES.map(|to| {
                if may(parse(from), parse(to)) {
                    'x'
                } else {
                    '-'
                }
            });
            marks.iter().collect()
        };
        ["127.0.0.1:1", "[fe80::1]:1", "10.0.0.1:1", "198.51.100.1:1"]
            .map(row)
            .to_vec()
    }

    #[test]
    fn client_address_on_the_servers_own_host_is_rejected() {
        let table = table(is_allowed_client_address);
        assert_eq!(table, ["---xxxxxx", "-----xxxx", "-----xxxx", "-----xxxx"]);
    }

    #[test]
    fn preferred_address_of_smaller_scope_is_rejected() {
        let table = table(is_allowed_preferred_address);
        assert_eq!(table, ["---xxxxxx", "-----xxxx", "------xxx", "--------x"]);
    }
}
