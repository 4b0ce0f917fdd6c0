//! Which addresses a proxy sends to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The ports that a proxy sends to unless configured: HTTP/3 and DNS.
const PORTS: [u16; 2] = [443, 53];

/// Which addresses and ports a proxy sends to. By default global unicast addresses and the ports
/// 443 and 53; everything else that an address may mean is denied ([`DeniedAddress`]).
#[derive(Clone, Debug)]
pub struct AddressPolicy {
    ports: Vec<u16>,
    allowed: Vec<IpNet>,
    own: Vec<SocketAddr>,
}

/// Why a proxy does not send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeniedAddress {
    /// The port is not allowed.
    Port,
    /// It is an address on which the proxy itself listens.
    OwnListener,
    /// `0.0.0.0/8` or `::`, which reach the host itself.
    Unspecified,
    /// Loopback.
    Loopback,
    /// Private networks (RFC 1918).
    Private,
    /// Link-local: routers, and the metadata services of clouds.
    LinkLocal,
    /// The shared address space of carriers' NATs (RFC 6598).
    CarrierNat,
    /// Unique local (RFC 4193), and site-local before it.
    UniqueLocal,
    /// Multicast and broadcast.
    Multicast,
    /// IPv6 addresses that stand for an IPv4 address behind a translator (RFC 6052, RFC 8215).
    Nat64,
    /// IPv6 addresses that are IPv4 addresses: mapped and compatible ones.
    Ipv4Mapped,
    /// IPv6 addresses of tunnels that contain an IPv4 address: 6to4 and Teredo.
    Tunneled,
    /// Addresses for documentation, benchmarks, protocols and future use.
    Reserved,
}

impl fmt::Display for DeniedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Port => "the port is not allowed",
            Self::OwnListener => "the proxy listens there itself",
            Self::Unspecified => "unspecified address",
            Self::Loopback => "loopback address",
            Self::Private => "address of a private network",
            Self::LinkLocal => "link-local address",
            Self::CarrierNat => "address of a carrier's NAT",
            Self::UniqueLocal => "unique local address",
            Self::Multicast => "multicast or broadcast address",
            Self::Nat64 => "address of a NAT64",
            Self::Ipv4Mapped => "IPv4-mapped address",
            Self::Tunneled => "6to4 or Teredo address",
            Self::Reserved => "reserved address",
        })
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), len)
}

const fn v6(a: u16, b: u16, c: u16, len: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), len)
}

/// What IPv4 addresses mean (IANA's registry of special-purpose addresses).
const DENIED_V4: [(Ipv4Net, DeniedAddress); 16] = [
    (v4(0, 0, 0, 0, 8), DeniedAddress::Unspecified),
    (v4(10, 0, 0, 0, 8), DeniedAddress::Private),
    (v4(100, 64, 0, 0, 10), DeniedAddress::CarrierNat),
    (v4(127, 0, 0, 0, 8), DeniedAddress::Loopback),
    (v4(169, 254, 0, 0, 16), DeniedAddress::LinkLocal),
    (v4(172, 16, 0, 0, 12), DeniedAddress::Private),
    (v4(192, 0, 0, 0, 24), DeniedAddress::Reserved),
    (v4(192, 0, 2, 0, 24), DeniedAddress::Reserved),
    (v4(192, 88, 99, 0, 24), DeniedAddress::Tunneled),
    (v4(192, 168, 0, 0, 16), DeniedAddress::Private),
    (v4(198, 18, 0, 0, 15), DeniedAddress::Reserved),
    (v4(198, 51, 100, 0, 24), DeniedAddress::Reserved),
    (v4(203, 0, 113, 0, 24), DeniedAddress::Reserved),
    (v4(224, 0, 0, 0, 4), DeniedAddress::Multicast),
    (v4(255, 255, 255, 255, 32), DeniedAddress::Multicast),
    (v4(240, 0, 0, 0, 4), DeniedAddress::Reserved),
];

/// What IPv6 addresses mean, the first that fits. Only 2000::/3 is global unicast.
const DENIED_V6: [(Ipv6Net, DeniedAddress); 16] = [
    (
        Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128),
        DeniedAddress::Unspecified,
    ),
    (
        Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128),
        DeniedAddress::Loopback,
    ),
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
        DeniedAddress::Ipv4Mapped,
    ),
    (
        Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 96),
        DeniedAddress::Ipv4Mapped,
    ),
    (v6(0x64, 0xff9b, 0, 96), DeniedAddress::Nat64),
    (v6(0x64, 0xff9b, 1, 48), DeniedAddress::Nat64),
    (v6(0x2001, 0, 0, 32), DeniedAddress::Tunneled),
    (v6(0x2001, 0, 0, 23), DeniedAddress::Reserved),
    (v6(0x2001, 0xdb8, 0, 32), DeniedAddress::Reserved),
    (v6(0x2002, 0, 0, 16), DeniedAddress::Tunneled),
    (v6(0x3fff, 0, 0, 20), DeniedAddress::Reserved),
    (v6(0xfc00, 0, 0, 7), DeniedAddress::UniqueLocal),
    (v6(0xfe80, 0, 0, 10), DeniedAddress::LinkLocal),
    (v6(0xfec0, 0, 0, 10), DeniedAddress::UniqueLocal),
    (v6(0xff00, 0, 0, 8), DeniedAddress::Multicast),
    (v6(0x5f00, 0, 0, 16), DeniedAddress::Reserved),
];

const GLOBAL_UNICAST: Ipv6Net = v6(0x2000, 0, 0, 3);

impl Default for AddressPolicy {
    fn default() -> Self {
        Self {
            ports: PORTS.to_vec(),
            allowed: Vec::new(),
            own: Vec::new(),
        }
    }
}

impl AddressPolicy {
    /// Sets the allowed ports, instead of 443 and 53. Without any, all are allowed.
    #[must_use]
    pub fn ports(mut self, ports: impl Into<Vec<u16>>) -> Self {
        self.ports = ports.into();
        self
    }

    /// Allows the addresses of a network, whatever they mean. The proxy's own addresses stay
    /// denied.
    #[must_use]
    pub fn allow(mut self, network: IpNet) -> Self {
        self.allowed.push(network);
        self
    }

    /// Denies an address on which the proxy listens; with an unspecified address, all of the host.
    #[must_use]
    pub fn own_listener(mut self, address: SocketAddr) -> Self {
        self.own.push(address);
        self
    }

    /// Checks an address before a socket is connected to it.
    ///
    /// # Errors
    /// Why it is denied.
    pub fn check(&self, address: SocketAddr) -> Result<(), DeniedAddress> {
        if !self.ports.is_empty() && !self.ports.contains(&address.port()) {
            return Err(DeniedAddress::Port);
        }
        self.check_own(address, None)?;
        if self.allowed.iter().any(|net| net.contains(&address.ip())) {
            return Ok(());
        }
        class(address.ip()).map_or(Ok(()), Err)
    }

    /// Checks that the proxy does not listen at an address. `source` is the address from which
    /// the host sends there, which is the same if the address is the host's own.
    ///
    /// # Errors
    /// If it does.
    pub(super) fn check_own(
        &self,
        address: SocketAddr,
        source: Option<IpAddr>,
    ) -> Result<(), DeniedAddress> {
        let ip = address.ip().to_canonical();
        let is_local = ip.is_loopback()
            || ip.is_unspecified()
            || source.is_some_and(|source| source.to_canonical() == ip);
        let listens = self.own.iter().any(|own| {
            let own_ip = own.ip().to_canonical();
            own.port() == address.port() && (own_ip == ip || own_ip.is_unspecified() && is_local)
        });
        if listens {
            return Err(DeniedAddress::OwnListener);
        }
        Ok(())
    }
}

/// Returns what an address means, unless it is global unicast.
fn class(ip: IpAddr) -> Option<DeniedAddress> {
    match ip {
        IpAddr::V4(ip) => {
            let found = DENIED_V4.iter().find(|(net, _)| net.contains(&ip));
            found.map(|(_, class)| *class)
        }
        IpAddr::V6(ip) => {
            let found = DENIED_V6.iter().find(|(net, _)| net.contains(&ip));
            let other = (!GLOBAL_UNICAST.contains(&ip)).then_some(DeniedAddress::Reserved);
            found.map(|(_, class)| *class).or(other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str) -> Result<(), DeniedAddress> {
        let ip: IpAddr = address.parse().unwrap();
        AddressPolicy::default().check(SocketAddr::new(ip, 443))
    }

    #[test]
    fn every_special_address_is_denied() {
        for (class, addresses) in [
            (
                DeniedAddress::Unspecified,
                &["0.0.0.0", "0.1.2.3", "::"][..],
            ),
            (
                DeniedAddress::Loopback,
                &["127.0.0.1", "127.255.255.254", "::1"],
            ),
            (
                DeniedAddress::Private,
                &["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"],
            ),
            (
                DeniedAddress::LinkLocal,
                &["169.254.169.254", "fe80::1", "febf::1"],
            ),
            (
                DeniedAddress::CarrierNat,
                &["100.64.0.1", "100.127.255.255"],
            ),
            (
                DeniedAddress::UniqueLocal,
                &["fc00::1", "fdff::1", "fd00:ec2::254", "fec0::1"],
            ),
            (
                DeniedAddress::Multicast,
                &["224.0.0.1", "239.255.255.255", "255.255.255.255", "ff02::1"],
            ),
            (
                DeniedAddress::Nat64,
                &["64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"],
            ),
            (
                DeniedAddress::Ipv4Mapped,
                &["::ffff:127.0.0.1", "::ffff:8.8.8.8", "::8.8.8.8", "::2"],
            ),
            (
                DeniedAddress::Tunneled,
                &["2002:7f00:1::", "2001:0:1::1", "192.88.99.1"],
            ),
            (
                DeniedAddress::Reserved,
                &[
                    "192.0.0.8",
                    "192.0.2.1",
                    "198.18.0.1",
                    "198.51.100.1",
                    "203.0.113.1",
                    "240.0.0.1",
                    "2001:db8::1",
                    "2001:10::1",
                    "3fff::1",
                    "5f00::1",
                    "100::1",
                    "4000::1",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(check(address), Err(class), "{address}");
            }
        }
    }

    #[test]
    fn global_addresses_are_allowed() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
        ] {
            assert_eq!(check(address), Ok(()), "{address}");
        }
    }

    #[test]
    fn only_listed_ports_are_allowed() {
        let policy = AddressPolicy::default();
        for (port, allowed) in [
            (443, true),
            (53, true),
            (22, false),
            (25, false),
            (8443, false),
        ] {
            let address = SocketAddr::from(([1, 1, 1, 1], port));
            assert_eq!(policy.check(address).is_ok(), allowed, "{port}");
            assert!(policy.clone().ports([]).check(address).is_ok());
        }
    }

    #[test]
    fn allowed_network_does_not_include_own_listeners() {
        let any = "0.0.0.0:443".parse().unwrap();
        let one = "10.0.0.5:53".parse().unwrap();
        let policy = AddressPolicy::default()
            .allow("127.0.0.0/8".parse().unwrap())
            .allow("10.0.0.0/8".parse().unwrap())
            .own_listener(any)
            .own_listener(one);
        let check = |address: &str| policy.check(address.parse().unwrap());
        assert_eq!(check("127.0.0.1:53"), Ok(()));
        assert_eq!(check("127.0.0.1:443"), Err(DeniedAddress::OwnListener));
        assert_eq!(
            check("[::ffff:127.0.0.1]:443"),
            Err(DeniedAddress::OwnListener)
        );
        assert_eq!(check("10.0.0.5:53"), Err(DeniedAddress::OwnListener));
        assert_eq!(check("10.0.0.6:53"), Ok(()));
        assert_eq!(check("192.168.0.1:53"), Err(DeniedAddress::Private));
        // An address of this host, which only its route tells.
        let own: SocketAddr = "10.0.0.7:443".parse().unwrap();
        assert_eq!(policy.check(own), Ok(()));
        let source = Some(own.ip());
        assert_eq!(
            policy.check_own(own, source),
            Err(DeniedAddress::OwnListener)
        );
    }
}
