//! QUIC versions (RFC 9000 §15), and what differs between those that are supported.

use core::fmt;
use core::str::FromStr;

/// A QUIC version number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

/// What differs between QUIC versions (RFC 9369 §3).
#[derive(Debug)]
pub(crate) struct VersionProperties {
    /// The number in long headers.
    pub(crate) version: Version,
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// The type bits of long headers.
    pub(crate) long_types: LongTypes,
    /// The salt of Initial secrets (RFC 9001 §5.2).
    pub(crate) initial_salt: [u8; 20],
    /// The labels that packet keys are derived with (RFC 9001 §5.1, §5.4, §6.1).
    pub(crate) labels: KeyLabels,
    /// The key of the Retry integrity tag (RFC 9001 §5.8).
    pub(crate) retry_key: [u8; 16],
    /// The nonce of the Retry integrity tag.
    pub(crate) retry_nonce: [u8; 12],
}

/// The type bits in the first byte of each long header (RFC 9000 §17.2, RFC 9369 §3.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongTypes {
    pub(crate) initial: u8,
    pub(crate) zero_rtt: u8,
    pub(crate) handshake: u8,
    pub(crate) retry: u8,
}

impl LongTypes {
    /// The bits of the first byte that hold the type.
    pub(crate) const MASK: u8 = 0x30;
}

/// The labels of HKDF-Expand-Label, without the prefix of TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLabels {
    /// The packet key.
    pub(crate) key: &'static [u8],
    /// Its initialization vector.
    pub(crate) iv: &'static [u8],
    /// The header protection key.
    pub(crate) header: &'static [u8],
    /// The secret after a key update.
    pub(crate) update: &'static [u8],
}

/// QUIC version 1 (RFC 9000, RFC 9001).
static V1: VersionProperties = VersionProperties {
    version: Version::V1,
    name: "QUIC v1",
    long_types: LongTypes {
        initial: 0x00,
        zero_rtt: 0x10,
        handshake: 0x20,
        retry: 0x30,
    },
    initial_salt: [
        0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c,
        0xad, 0xcc, 0xbb, 0x7f, 0x0a,
    ],
    labels: KeyLabels {
        key: b"quic key",
        iv: b"quic iv",
        header: b"quic hp",
        update: b"quic ku",
    },
    retry_key: [
        0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8,
        0x4e,
    ],
    retry_nonce: [
        0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
    ],
};

/// QUIC version 2 (RFC 9369).
static V2: VersionProperties = VersionProperties {
    version: Version::V2,
    name: "QUIC v2",
    long_types: LongTypes {
        retry: 0x00,
        initial: 0x10,
        zero_rtt: 0x20,
        handshake: 0x30,
    },
    initial_salt: [
        0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d,
        0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
    ],
    labels: KeyLabels {
        key: b"quicv2 key",
        iv: b"quicv2 iv",
        header: b"quicv2 hp",
        update: b"quicv2 ku",
    },
    retry_key: [
        0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c, 0xcc,
        0x92,
    ],
    retry_nonce: [
        0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a,
    ],
};

impl Version {
    /// Marks a Version Negotiation packet (RFC 8999 §6).
    pub const NEGOTIATION: Self = Self(0);
    /// QUIC version 1 (RFC 9000).
    pub const V1: Self = Self(1);
    /// QUIC version 2 (RFC 9369).
    pub const V2: Self = Self(0x6b33_43cf);

    /// Returns whether this crate supports the version.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.properties().is_some()
    }

    /// Returns what distinguishes the version from others; `None` if it is not supported.
    #[inline]
    pub(crate) const fn properties(self) -> Option<&'static VersionProperties> {
        if self.0 == V1.version.0 {
            Some(&V1)
        } else if self.0 == V2.version.0 {
            Some(&V2)
        } else {
            None
        }
    }

    /// Returns what distinguishes the version of a connection, which is always supported, from
    /// others.
    #[inline]
    pub(crate) const fn of_connection(self) -> &'static VersionProperties {
        debug_assert!(self.is_supported(), "connections have a supported version");
        match self.properties() {
            Some(properties) => properties,
            None => &V1,
        }
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
        match (*self, self.properties()) {
            (_, Some(properties)) => f.write_str(properties.name),
            (Self::NEGOTIATION, None) => f.write_str("version negotiation"),
            (Self(other), None) => write!(f, "version {other:#010x}"),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Version {
    type Err = VersionPreferenceError;

    /// Parses `1` or `v1`, `2` or `v2`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().trim_start_matches('v') {
            "1" => Ok(Self::V1),
            "2" => Ok(Self::V2),
            _ => Err(VersionPreferenceError::Unknown(text.trim().to_owned())),
        }
    }
}

/// The QUIC versions that an end speaks, most preferred first. There is at least one, and each is
/// supported and listed once.
///
/// The default is version 1, then version 2: version 1 is what every peer speaks and every
/// middlebox knows, and version 2 has the same features, so that switching to it has a cost (a
/// few more key derivations in each handshake) and no gain on most networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionPreference(Order);

/// The possible orders of the supported versions, in one byte: every connection has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Order {
    V1,
    V2,
    V1ThenV2,
    V2ThenV1,
}

/// A supported version, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supported {
    V1,
    V2,
}

impl Supported {
    /// Returns its number.
    #[inline]
    pub(crate) const fn number(self) -> Version {
        match self {
            Self::V1 => Version::V1,
            Self::V2 => Version::V2,
        }
    }

    /// Returns the version of a connection, which is always supported.
    #[inline]
    pub(crate) const fn of_connection(version: Version) -> Self {
        debug_assert!(
            version.is_supported(),
            "connections have a supported version"
        );
        match version {
            Version::V2 => Self::V2,
            _ => Self::V1,
        }
    }
}

/// Why a list of versions cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionPreferenceError {
    /// The list is empty.
    #[error("missing QUIC version: expected 1, 2, or both separated by a comma, such as 1,2")]
    Empty,
    /// A version is listed twice.
    #[error("QUIC version listed twice: {0}")]
    Repeated(Version),
    /// A version is not supported.
    #[error("unsupported {0}: supported are QUIC v1 and QUIC v2")]
    Unsupported(Version),
    /// A text does not name a version.
    #[error("invalid QUIC version {0:?}: expected 1 or 2")]
    Unknown(String),
}

impl VersionPreference {
    /// Version 1 only: no other version is offered or accepted.
    pub const V1_ONLY: Self = Self(Order::V1);

    /// Creates a list, most preferred first.
    ///
    /// # Errors
    /// If it is empty, or contains a version twice or one that is not supported.
    pub fn new(versions: &[Version]) -> Result<Self, VersionPreferenceError> {
        if let Some(unsupported) = versions.iter().find(|version| !version.is_supported()) {
            return Err(VersionPreferenceError::Unsupported(*unsupported));
        }
        match *versions {
            [] => Err(VersionPreferenceError::Empty),
            [Version::V1] => Ok(Self(Order::V1)),
            [_] => Ok(Self(Order::V2)),
            [Version::V1, Version::V2] => Ok(Self(Order::V1ThenV2)),
            [Version::V2, Version::V1] => Ok(Self(Order::V2ThenV1)),
            // Two versions are supported, so any other list repeats one.
            [first, second, ..] if first == second => Err(VersionPreferenceError::Repeated(first)),
            [.., last] => Err(VersionPreferenceError::Repeated(last)),
        }
    }

    /// Returns the most preferred version.
    #[must_use]
    pub const fn first(self) -> Version {
        match self.0 {
            Order::V1 | Order::V1ThenV2 => Version::V1,
            Order::V2 | Order::V2ThenV1 => Version::V2,
        }
    }

    const fn second(self) -> Option<Version> {
        match self.0 {
            Order::V1 | Order::V2 => None,
            Order::V1ThenV2 => Some(Version::V2),
            Order::V2ThenV1 => Some(Version::V1),
        }
    }

    /// Returns the version that a client's first flight should have without further knowledge of
    /// the server: version 1 if it is in the list, because most servers understand that and can
    /// switch to another one without a round trip (RFC 9368 §2.5).
    #[must_use]
    pub fn first_flight(self) -> Version {
        if self.contains(Version::V1) {
            Version::V1
        } else {
            self.first()
        }
    }

    /// Returns whether the version is in the list.
    #[must_use]
    pub fn contains(self, version: Version) -> bool {
        self.iter().any(|ours| ours == version)
    }

    /// Returns whether there is more than one version.
    #[must_use]
    pub const fn has_choice(self) -> bool {
        self.second().is_some()
    }

    /// Returns the versions, most preferred first.
    pub fn iter(self) -> impl Iterator<Item = Version> {
        core::iter::once(self.first()).chain(self.second())
    }
}

impl Default for VersionPreference {
    fn default() -> Self {
        Self(Order::V1ThenV2)
    }
}

impl FromStr for VersionPreference {
    type Err = VersionPreferenceError;

    /// Parses versions separated by commas, most preferred first, such as `2,1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err(VersionPreferenceError::Empty);
        }
        let versions: Result<Vec<Version>, _> = text.split(',').map(str::parse).collect();
        Self::new(&versions?)
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
        assert!(Version::V2.is_supported());
        assert!(!Version::NEGOTIATION.is_supported());
        assert!(!Version(2).is_supported());
    }

    #[test]
    fn every_version_has_a_row_of_its_own() {
        for row in [&V1, &V2] {
            let found = row.version.properties().expect("a row");
            assert_eq!(found.version, row.version);
            let types = row.long_types;
            let mut bits = [types.initial, types.zero_rtt, types.handshake, types.retry];
            bits.sort_unstable();
            assert_eq!(bits, [0x00, 0x10, 0x20, 0x30], "{}", row.name);
        }
        assert_ne!(V1.initial_salt, V2.initial_salt);
        assert_ne!(V1.retry_key, V2.retry_key);
    }

    #[test]
    fn version_preference_is_parsed_in_order() {
        let parse = str::parse::<VersionPreference>;
        assert_eq!(parse("1,2"), Ok(VersionPreference::default()));
        assert_eq!(parse("v1"), Ok(VersionPreference::V1_ONLY));
        let reversed = parse("2, v1").expect("a list");
        let listed: Vec<_> = reversed.iter().collect();
        assert_eq!(listed, [Version::V2, Version::V1]);
        assert_eq!(reversed.first_flight(), Version::V1);
        assert_eq!(parse("2").expect("a list").first_flight(), Version::V2);
        assert_eq!(parse(""), Err(VersionPreferenceError::Empty));
        let repeated = VersionPreferenceError::Repeated(Version::V2);
        assert_eq!(parse("2,2"), Err(repeated));
        assert_eq!(
            parse("3").expect_err("unknown").to_string(),
            "invalid QUIC version \"3\": expected 1 or 2"
        );
        assert_eq!(
            VersionPreference::new(&[Version(7)]),
            Err(VersionPreferenceError::Unsupported(Version(7)))
        );
    }

    #[test]
    fn version_is_debugged_as_it_is_displayed() {
        for version in [Version::V1, Version::V2, Version(0x1a2a_3a4a)] {
            assert_eq!(format!("{version:?}"), version.to_string());
            assert_ne!(version.to_string(), "");
        }
    }
}
