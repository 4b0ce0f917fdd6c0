//! ICMP errors about datagrams this socket sent.

use std::net::{IpAddr, SocketAddr};

/// Bytes of the offending datagram kept for validation: a long header with two full-size
/// connection IDs takes 47.
const QUOTE: usize = 64;

/// Who raised an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpSource {
    /// This host's own stack, which can be trusted (an interface MTU, for one).
    Local,
    /// An ICMP or ICMPv6 message, which anyone may forge: check [`IcmpError::quoted`] first
    /// (RFC 9000 §14.2.1).
    Network,
}

/// What went wrong, in the terms both ICMP versions share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    /// The datagram outgrew a link. `mtu` is the IP packet size in bytes that would pass (UDP
    /// payload plus 28 on IPv4 or 48 on IPv6), 0 where the router did not say.
    TooBig {
        /// Largest IP packet, bytes.
        mtu: u32,
    },
    /// Nobody listens on the remote port.
    PortUnreachable,
    /// The remote host does not answer.
    HostUnreachable,
    /// There is no route.
    NetworkUnreachable,
    /// A filter said no.
    Prohibited,
    /// The hop limit ran out.
    TimeExceeded,
    /// Anything else, as the message's own type and code.
    Other {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
    },
}

/// One error about one datagram sent earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Where that datagram was going.
    pub remote: SocketAddr,
    /// What happened to it.
    pub kind: IcmpKind,
    /// Who says so.
    pub source: IcmpSource,
    /// The router or host that sent the message.
    pub reporter: Option<IpAddr>,
    pub(crate) quote: [u8; QUOTE],
    pub(crate) quote_len: usize,
}

impl IcmpError {
    /// The beginning of the UDP payload the message quotes, maybe empty: compare its connection
    /// ID with one in use before believing a message from the network.
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
