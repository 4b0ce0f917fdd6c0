//! QUIC versions (RFC 9000 §15).

use core::fmt;

/// A QUIC version number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    /// Marks a Version Negotiation packet (RFC 8999 §6).
    pub const NEGOTIATION: Self = Self(0);
    /// QUIC version 1 (RFC 9000).
    pub const V1: Self = Self(1);
    /// QUIC version 2 (RFC 9369), which is not supported.
    pub const V2: Self = Self(0x6b33_43cf);

    /// Returns whether this crate supports the version.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.0 == Self::V1.0
    }

    /// Returns whether the version is one of `0x?a?a?a?a`, which are reserved to exercise version
    /// negotiation (RFC 9000 §6.3).
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        self.0 & 0x0f0f_0f0f == 0x0a0a_0a0a
    }

    /// Returns a reserved version made of `random`.
    #[must_use]
    pub const fn reserved(random: u32) -> Self {
        Self(random & 0xf0f0_f0f0 | 0x0a0a_0a0a)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEGOTIATION => f.write_str("version negotiation"),
            Self::V1 => f.write_str("QUIC v1"),
            Self::V2 => f.write_str("QUIC v2"),
            Self(other) => write!(f, "version {other:#010x}"),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_versions_are_recognised_and_never_supported() {
        for random in [0, 1, 0x1234_5678, u32::MAX] {
            let version = Version::reserved(random);
            assert!(version.is_reserved(), "{version}");
            assert!(!version.is_supported(), "{version}");
        }
        assert_eq!(Version::reserved(0xffff_ffff), Version(0xfafa_fafa));
        for known in [Version::V1, Version::V2, Version::NEGOTIATION] {
            assert!(!known.is_reserved(), "{known}");
        }
        assert!(Version::V1.is_supported());
        assert!(!Version::V2.is_supported());
    }
}
