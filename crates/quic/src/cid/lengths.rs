//! The lengths of an endpoint's connection IDs.

/// The lengths of an endpoint's connection IDs, by the three most significant bits of their first
/// octet.
///
/// A short header does not contain the length of its connection ID (RFC 9000 §17.3.1). An
/// endpoint whose connection IDs change their length, as they may when a load balancer's
/// configuration is replaced, tells them apart by these bits, which are the config rotation bits
/// of QUIC-LB (draft-ietf-quic-load-balancers §3.1). Elsewhere all eight lengths are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CidLengths([u8; CODEPOINTS]);

/// The number of values that three bits have.
const CODEPOINTS: usize = 8;

impl CidLengths {
    /// All connection IDs have `len` bytes, at most 255.
    #[must_use]
    pub const fn uniform(len: usize) -> Self {
        let len = if len > 0xff { 0xff } else { len as u8 };
        Self([len; CODEPOINTS])
    }

    /// Connection IDs whose first octet begins with the bits `codepoint` have `len` bytes. Only
    /// the lowest three bits of `codepoint` count.
    #[must_use]
    pub fn with(mut self, codepoint: u8, len: usize) -> Self {
        if let Some(own) = self.0.get_mut(usize::from(codepoint & 7)) {
            *own = u8::try_from(len).unwrap_or(u8::MAX);
        }
        self
    }

    /// Returns the length in bytes of a connection ID with this first octet.
    #[must_use]
    #[inline]
    pub fn of(self, first_octet: u8) -> usize {
        self.0
            .get(usize::from(first_octet >> 5))
            .map_or(0, |&len| usize::from(len))
    }

    /// Returns the length of the connection ID at the start of `bytes`; of an empty slice, the
    /// length of those whose first octet is zero.
    #[must_use]
    #[inline]
    pub fn at(self, bytes: &[u8]) -> usize {
        self.of(bytes.first().copied().unwrap_or(0))
    }

    /// Returns the smallest of the lengths.
    #[must_use]
    pub fn shortest(self) -> usize {
        self.0.iter().min().map_or(0, |&len| usize::from(len))
    }

    /// Returns the greatest of the lengths.
    #[must_use]
    pub fn longest(self) -> usize {
        self.0.iter().max().map_or(0, |&len| usize::from(len))
    }

    /// Returns the eight lengths in one word, for an atomic variable.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from_be_bytes(self.0)
    }

    /// Returns the lengths from a word of [`to_bits`](Self::to_bits).
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits.to_be_bytes())
    }
}

impl From<usize> for CidLengths {
    fn from(len: usize) -> Self {
        Self::uniform(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_depends_on_three_high_bits_only() {
        let lengths = CidLengths::uniform(8).with(2, 13).with(7, 20);
        for low in 0..32 {
            assert_eq!(lengths.of(low), 8);
            assert_eq!(lengths.of(0b0100_0000 | low), 13);
            assert_eq!(lengths.of(0b1110_0000 | low), 20);
        }
        assert_eq!((lengths.shortest(), lengths.longest()), (8, 20));
        assert_eq!(CidLengths::from_bits(lengths.to_bits()), lengths);
        assert_eq!(lengths.at(&[]), 8);
    }
}
