//! ICMP errors about datagrams this socket sent.

use std::net::{IpAddr, SocketAddr};

/// Bytes of the quoted datagram kept for validation: a long header with two full-size connection
/// IDs takes 47.
const QUOTE: usize = 64;

/// The origin of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpSource {
    /// This host's own stack, which can be trusted (for example about an interface's MTU).
    Local,
    /// An ICMP or ICMPv6 message, which anyone can forge: check [`IcmpError::quoted`] first (RFC
    /// 9000 §14.2.1).
    Network,
}

/// The kind of error, in terms common to both ICMP versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    /// The datagram was larger than a link's MTU. `mtu` is the largest IP packet in bytes that
    /// would pass (UDP payload plus 28 on IPv4 or 48 on IPv6), 0 if the router did not report it.
    TooBig {
        /// Largest IP packet, in bytes.
        mtu: u32,
    },
    /// The remote port is closed.
    PortUnreachable,
    /// The remote host does not answer.
    HostUnreachable,
    /// There is no route.
    NetworkUnreachable,
    /// A packet filter rejected the datagram.
    Prohibited,
    /// The hop limit was exceeded.
    TimeExceeded,
    /// Any other error, with the message's type and code.
    Other {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
    },
}

/// An error about a datagram sent earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The destination of that datagram.
    pub remote: SocketAddr,
    /// The kind of error.
    pub kind: IcmpKind,
    /// The origin of the error.
    pub source: IcmpSource,
    /// The router or host that sent the message.
    pub reporter: Option<IpAddr>,
    pub(crate) quote: [u8; QUOTE],
    pub(crate) quote_len: usize,
}

impl IcmpError {
    /// The beginning of the UDP payload that the message quotes, possibly empty. Compare its
    /// connection ID with one in use before acting on a message from the network.
    #[must_use]
    pub fn quoted(&self) -> &[u8] {
        self.quote.get(..self.quote_len).unwrap_or_default()
    }
}

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux reports ICMP")
)]
impl IcmpError {
    pub(crate) const fn empty_quote() -> [u8; QUOTE] {
        [0; QUOTE]
    }
}

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux reports ICMP")
)]
impl IcmpKind {
    /// ICMP for IPv4 (RFC 792, RFC 1812 §5.2.7.1); `info` holds the next hop's MTU.
    pub(crate) fn from_v4(kind: u8, code: u8, info: u32) -> Self {
        match (kind, code) {
            (3, 4) => Self::TooBig { mtu: info },
            (3, 3) => Self::PortUnreachable,
            (3, 0 | 6 | 11) => Self::NetworkUnreachable,
            (3, 1 | 7 | 12) => Self::HostUnreachable,
            (3, 9 | 10 | 13) => Self::Prohibited,
            (11, _) => Self::TimeExceeded,
            _ => Self::Other { kind, code },
        }
    }

    /// ICMPv6 (RFC 4443 §3); `info` holds the next hop's MTU.
    pub(crate) fn from_v6(kind: u8, code: u8, info: u32) -> Self {
        match (kind, code) {
            (2, _) => Self::TooBig { mtu: info },
            (1, 4) => Self::PortUnreachable,
            (1, 0) => Self::NetworkUnreachable,
            (1, 3) => Self::HostUnreachable,
            (1, 1 | 5 | 6) => Self::Prohibited,
            (3, _) => Self::TimeExceeded,
            _ => Self::Other { kind, code },
        }
    }
}
