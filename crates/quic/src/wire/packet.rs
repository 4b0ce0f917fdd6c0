//! The types of packets that carry frames (RFC 9000 §12.1).

/// Header form bit of the first byte: set in long headers (RFC 8999 §5.1).
pub(crate) const LONG: u8 = 0x80;
/// The QUIC bit of the first byte: set unless the peer agreed to have it greased
/// (RFC 9000 §17.2, RFC 9287).
pub(crate) const FIXED: u8 = 0x40;

/// The type of a packet that carries frames. Each type has its own keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketKind {
    /// Initial packets, under keys that anyone can derive.
    Initial,
    /// 0-RTT packets with the early data of a client.
    ZeroRtt,
    /// Handshake packets.
    Handshake,
    /// 1-RTT packets, with a short header.
    OneRtt,
}

impl PacketKind {
    /// All types, in the order in which they are coalesced.
    pub const ALL: [Self; 4] = [Self::Initial, Self::ZeroRtt, Self::Handshake, Self::OneRtt];
}
