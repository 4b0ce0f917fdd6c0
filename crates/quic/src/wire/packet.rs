//! The packets that carry frames (RFC 9000 §12.1).

/// Header form bit of the first byte: set in long headers (RFC 8999 §5.1).
pub const LONG: u8 = 0x80;
/// The QUIC bit of the first byte: set unless the peer agreed to have it greased
/// (RFC 9000 §17.2, RFC 9287).
pub const FIXED: u8 = 0x40;

/// A packet type that carries frames, and with it a set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketKind {
    /// The first flight, under keys anybody can derive.
    Initial,
    /// A client's early data.
    ZeroRtt,
    /// The rest of the TLS handshake.
    Handshake,
    /// Everything afterwards, under a short header.
    OneRtt,
}

impl PacketKind {
    /// All of them, in the order in which they may be coalesced.
    pub const ALL: [Self; 4] = [Self::Initial, Self::ZeroRtt, Self::Handshake, Self::OneRtt];
}
