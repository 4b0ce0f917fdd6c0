//! What is known of received datagrams and packets besides their bytes.

use std::net::{IpAddr, SocketAddr};

use crate::Instant;
use crate::ack::ReceivedEcn;
use crate::path::Addresses;
use crate::wire::PacketKind;

/// Metadata of a received UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvMeta {
    /// The sender's address.
    pub remote: SocketAddr,
    /// The local address it was sent to, if the platform reports it.
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

/// When a datagram arrived, and its metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) from: RecvMeta,
}

/// A packet that authenticated.
pub(crate) struct AuthenticatedPacket<'a> {
    pub(crate) kind: PacketKind,
    pub(crate) number: u64,
    /// The key generation that opened it (1-RTT), to check the ACK frames in it.
    pub(crate) generation: u64,
    pub(crate) payload: &'a [u8],
    /// Size of the datagram it came in, in bytes.
    pub(crate) datagram_len: usize,
    /// When it arrived; earlier than now if it waited for its keys.
    pub(crate) arrived: Instant,
    pub(crate) from: RecvMeta,
}
