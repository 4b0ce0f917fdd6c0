//! Which versions an end speaks, told where nobody can change it (RFC 9368 §3).

use crate::Role;
use crate::wire::Version;

/// The `version_information` parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionInformation {
    /// The version of the connection, as the sender sees it. That it is the one
    /// of the packets is for the connection to check (VERSION_NEGOTIATION_ERROR).
    pub chosen: Version,
    /// Every version that the sender speaks, the preferred one first; may hold
    /// reserved ones.
    pub available: Vec<Version>,
}

impl VersionInformation {
    /// `None` if it is not a list of versions, names version 0, or is a client's
    /// that does not speak the version it chose (RFC 9368 §4).
    pub(super) fn decode(value: &[u8], sender: Role) -> Option<Self> {
        let (words, []) = value.as_chunks::<4>() else {
            return None;
        };
        let mut versions = words.iter().map(|word| Version(u32::from_be_bytes(*word)));
        let chosen = versions.next()?;
        let available: Vec<_> = versions.collect();
        if chosen == Version::NEGOTIATION || available.contains(&Version::NEGOTIATION) {
            return None;
        }
        match sender {
            Role::Client if !available.contains(&chosen) => None,
            Role::Client | Role::Server => Some(Self { chosen, available }),
        }
    }

    /// The versions in the order of the wire.
    pub(super) fn words(&self) -> impl Iterator<Item = Version> + '_ {
        core::iter::once(self.chosen).chain(self.available.iter().copied())
    }
}
