//! Socket addresses as the kernel lays them out (`sockaddr_in`, `sockaddr_in6`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const V4_LEN: usize = 16;
const V6_LEN: usize = 28;

/// One address in the kernel's layout, with its length.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4))]
pub(super) struct SockAddr {
    bytes: [u8; V6_LEN],
    len: usize,
}

impl SockAddr {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; V6_LEN],
        len: 0,
    };

    /// Encodes `addr` for a socket of the given family; `None` if that socket cannot reach it.
    pub(super) fn encode(addr: SocketAddr, socket_is_v6: bool) -> Option<Self> {
        let mut name = Self::EMPTY;
        name.bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        if socket_is_v6 {
            let (ip, scope) = match addr {
                SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
                SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
            };
            name.len = V6_LEN;
            name.bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            name.bytes[8..24].copy_from_slice(&ip.octets());
            name.bytes[24..].copy_from_slice(&scope.to_ne_bytes());
        } else {
            let IpAddr::V4(ip) = addr.ip().to_canonical() else {
                return None;
            };
            name.len = V4_LEN;
            name.bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name.bytes[4..8].copy_from_slice(&ip.octets());
        }
        Some(name)
    }

    /// Decodes what the kernel wrote; an IPv4-mapped IPv6 address is returned as IPv4.
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        decode(self.as_bytes())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The whole buffer, for the kernel to write to; call [`SockAddr::set_len`] afterwards.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(V6_LEN);
    }
}

/// A socket address at the front of `bytes`.
pub(super) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some(SocketAddrV4::new(ip.into(), port).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            let ip = Ipv6Addr::from(ip);
            let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
            Some(match ip.to_ipv4_mapped() {
                Some(v4) => SocketAddrV4::new(v4, port).into(),
                None => SocketAddrV6::new(ip, port, 0, scope).into(),
            })
        }
        _ => None,
    }
}

/// `struct in_pktinfo` that asks for a source address.
pub(super) fn packet_info_v4(source: Ipv4Addr) -> [u8; 12] {
    let mut info = [0; 12];
    info[4..8].copy_from_slice(&source.octets());
    info
}

/// `struct in6_pktinfo` that asks for a source address.
pub(super) fn packet_info_v6(source: Ipv6Addr) -> [u8; 20] {
    let mut info = [0; 20];
    info[..16].copy_from_slice(&source.octets());
    info
}

/// The address a datagram came to, from `struct in_pktinfo`.
pub(super) fn destination_v4(info: &[u8]) -> Option<IpAddr> {
    let ip: [u8; 4] = *info.get(8..)?.first_chunk()?;
    Some(IpAddr::from(ip))
}

/// The address a datagram came to, from `struct in6_pktinfo`.
pub(super) fn destination_v6(info: &[u8]) -> Option<IpAddr> {
    let ip: [u8; 16] = *info.first_chunk()?;
    Some(IpAddr::from(ip).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_round_trip() {
        let v4: SocketAddr = "192.0.2.7:4433".parse().unwrap();
        let v6: SocketAddr = "[fe80::1%3]:4433".parse().unwrap();
        assert_eq!(SockAddr::encode(v4, false).unwrap().decode(), Some(v4));
        assert_eq!(SockAddr::encode(v4, true).unwrap().decode(), Some(v4));
        assert_eq!(SockAddr::encode(v6, true).unwrap().decode(), Some(v6));
        assert!(SockAddr::encode(v6, false).is_none());
        let mapped: SocketAddr = "[::ffff:192.0.2.7]:4433".parse().unwrap();
        assert_eq!(SockAddr::encode(mapped, false).unwrap().decode(), Some(v4));
    }

    #[test]
    fn truncated_sockaddr_is_rejected() {
        let mut name = SockAddr::encode("[2001:db8::1]:1".parse().unwrap(), true).unwrap();
        for len in 0..V6_LEN {
            name.set_len(len);
            assert_eq!(name.decode(), None, "{len} bytes");
        }
    }
}
