//! Bytes on the wire beside the UDP payload.

use core::fmt;
use core::str::FromStr;

use crate::spec::SpecError;

/// Header bytes that the serialiser counts with each UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overhead(pub u32);

impl Overhead {
    /// IPv4 (20) and UDP (8).
    pub const V4: Self = Self(28);
    /// IPv6 (40) and UDP (8).
    pub const V6: Self = Self(48);
}

impl Default for Overhead {
    fn default() -> Self {
        Self::V4
    }
}

impl FromStr for Overhead {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        text.trim().parse().map(Self).map_err(|_| {
            SpecError::new(
                "overhead",
                text,
                "not a number",
                "header bytes per datagram such as 28 (IPv4) or 48 (IPv6)",
            )
        })
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
