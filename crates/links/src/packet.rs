//! Packets on a link.

use core::net::SocketAddr;

/// The ECN field of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not ECN-capable: `00`.
    #[default]
    NotEct,
    /// ECN-capable, `01`; asks for L4S treatment (RFC 9331 §3).
    Ect1,
    /// ECN-capable, `10`.
    Ect0,
    /// Congestion experienced: `11`.
    Ce,
}

impl Ecn {
    /// The two bits of the IP header; higher bits of `bits` are ignored, so
    /// a whole traffic-class byte may be passed.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits of the IP header.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }

    /// Whether a queue may mark this packet instead of dropping it.
    #[must_use]
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

/// One UDP datagram with what its IP header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where it comes from.
    pub src: SocketAddr,
    /// Where it goes.
    pub dst: SocketAddr,
    /// The ECN field.
    pub ecn: Ecn,
    /// The UDP payload.
    pub data: Vec<u8>,
}

impl Packet {
    /// A packet that is not ECN-capable.
    #[must_use]
    pub const fn new(src: SocketAddr, dst: SocketAddr, data: Vec<u8>) -> Self {
        Self {
            src,
            dst,
            ecn: Ecn::NotEct,
            data,
        }
    }

    /// The same packet with the ECN field set.
    #[must_use]
    pub const fn with_ecn(mut self, ecn: Ecn) -> Self {
        self.ecn = ecn;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecn_bits_match_rfc_3168() {
        for bits in 0..4 {
            assert_eq!(Ecn::from_bits(bits).bits(), bits);
        }
        assert_eq!(Ecn::from_bits(0b1011_1010), Ecn::Ect0);
        assert!(!Ecn::NotEct.is_capable());
    }
}
