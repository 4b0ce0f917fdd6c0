//! Datagrams and packets on their way in.

use std::net::{IpAddr, SocketAddr};

use crate::Instant;
use crate::ack::ReceivedEcn;
use crate::path::Addresses;
use crate::wire::PacketKind;

/// Where a received datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvMeta {
    /// The sender's address.
    pub remote: SocketAddr,
    /// The local address it was sent to, where the platform tells.
    pub local_ip: Option<IpAddr>,
    /// Its ECN mark.
    pub ecn: ReceivedEcn,
}

impl From<&RecvMeta> for Addresses {
    fn from(from: &RecvMeta) -> Self {
        Self {
            remote: from.remote,
            local_ip: from.local_ip,
        }
    }
}

/// When and from where a datagram came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) from: RecvMeta,
}

/// A packet that authenticated.
pub(crate) struct AuthenticatedPacket<'a> {
    pub(crate) kind: PacketKind,
    pub(crate) number: u64,
    /// Key generation that opened it (1-RTT), for ACKs in it.
    pub(crate) generation: u64,
    pub(crate) payload: &'a [u8],
    /// Size of the datagram it came in, in bytes.
    pub(crate) datagram_len: usize,
    /// When it arrived: before now if it waited for its keys.
    pub(crate) arrived: Instant,
    pub(crate) from: RecvMeta,
}
