//! Explicit congestion notification.

/// An ECN codepoint other than Not-ECT (RFC 3168 §5).
///
/// An `Option<Ecn>` is `None` for Not-ECT and where the platform does not report the field:
/// RFC 9000 §13.4.1 treats the two alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// ECT(1), which L4S senders use (RFC 9331 §4.1).
    Ect1 = 0b01,
    /// ECT(0), the classic codepoint.
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS or traffic class byte.
    #[must_use]
    pub fn from_bits(byte: u8) -> Option<Self> {
        match byte & 0b11 {
            0b01 => Some(Self::Ect1),
            0b10 => Some(Self::Ect0),
            0b11 => Some(Self::Ce),
            _ => None,
        }
    }

    /// The two bits as they stand in the IP header.
    #[must_use]
    pub fn bits(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecn_bits_round_trip_and_dscp_is_ignored() {
        for ecn in [Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            assert_eq!(Ecn::from_bits(0b1011_1000 | ecn.bits()), Some(ecn));
        }
        assert_eq!(Ecn::from_bits(0b1011_1000), None);
    }
}
