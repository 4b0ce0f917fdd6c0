//! The version_information parameter, which authenticates the versions of an end (RFC 9368 §3).

use crate::Role;
use crate::wire::Version;

/// The `version_information` parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionInformation {
    /// The version of the connection, as the sender sees it. The connection has to compare it with
    /// that of the packets (VERSION_NEGOTIATION_ERROR).
    pub chosen: Version,
    /// All versions that the sender supports, the preferred one first. They may include reserved
    /// ones.
    pub available: Vec<Version>,
}

impl VersionInformation {
    /// Reads the value. Returns `None` if it is not a list of versions, contains version 0, or if a
    /// client has chosen a version that it does not support (RFC 9368 §4).
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

    /// Returns the chosen and the available versions in wire order.
    pub(super) fn words(&self) -> impl Iterator<Item = Version> + '_ {
        core::iter::once(self.chosen).chain(self.available.iter().copied())
    }
}
