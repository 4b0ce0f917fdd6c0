//! Which QUIC version a connection uses, and the proof that nobody on the path has interfered with
//! the choice (RFC 9368).
//!
//! | term of RFC 9368 | here |
//! |---|---|
//! | Original Version of this attempt, the client's Chosen Version | [`VersionChoice::original`] |
//! | Negotiated Version | [`VersionChoice::current`], once [decided](VersionChoice::decide) |
//! | Available Versions, Acceptable, Offered and Fully Deployed Versions | the [`VersionPreference`] of the configuration |
//!
//! Versions 1 and 2 are compatible with each other (RFC 9369 §4), so that a server may switch from
//! either to the other without a round trip.

use crate::Role;
use crate::error::{Code, TransportError};
use crate::wire::version::Supported;
use crate::wire::{PacketKind, Version, VersionInformation, VersionPreference};

/// The version of a connection, and how it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionChoice {
    preference: VersionPreference,
    original: Supported,
    /// The version once it cannot change any more.
    negotiated: Option<Supported>,
    /// Whether this attempt follows from a Version Negotiation packet (client).
    restarted: bool,
}

impl VersionChoice {
    /// Creates the choice for an attempt whose first flight has the version `original`.
    pub(super) const fn new(preference: VersionPreference, original: Version) -> Self {
        Self {
            preference,
            original: Supported::of_connection(original),
            negotiated: None,
            restarted: false,
        }
    }

    /// Returns the choice for the attempt that follows a Version Negotiation packet, with the most
    /// preferred version that the server `offered`; `None` if there is none, or if this attempt
    /// followed one itself (RFC 9368 §4).
    pub(super) fn after_negotiation(self, offered: &[Version]) -> Option<Self> {
        if self.restarted {
            return None;
        }
        let original = self.select(|version| offered.contains(&version))?;
        Some(Self {
            restarted: true,
            ..Self::new(self.preference, original)
        })
    }

    /// Returns the most preferred version that `is_offered`.
    fn select(self, is_offered: impl Fn(Version) -> bool) -> Option<Version> {
        self.preference.iter().find(|version| is_offered(*version))
    }

    /// Returns the version of the client's first flight. 0-RTT and Retry packets have no other
    /// (RFC 9369 §4.1).
    #[inline]
    pub(crate) const fn original(self) -> Version {
        self.original.number()
    }

    /// Returns the version of long headers that are sent now.
    #[inline]
    pub(crate) const fn current(self) -> Version {
        match self.negotiated {
            Some(negotiated) => negotiated.number(),
            None => self.original.number(),
        }
    }

    /// Returns whether this attempt follows from a Version Negotiation packet.
    pub(super) const fn is_restarted(self) -> bool {
        self.restarted
    }

    /// Returns whether the other end may still switch, or be switched, to another version.
    pub(super) const fn may_change(self) -> bool {
        self.negotiated.is_none() && self.preference.has_choice()
    }

    /// Settles the version, because the server has sent CRYPTO data with it (RFC 9369 §4.1).
    pub(super) fn decide(&mut self, version: Version) {
        self.negotiated = Some(Supported::of_connection(version));
    }

    /// Returns the version that a server prefers among those that the client of this attempt has
    /// available; that of its first flight if `client` is missing or contradicts it.
    pub(super) fn preferred_with(self, client: Option<&VersionInformation>) -> Version {
        client
            .filter(|client| client.chosen == self.original())
            .and_then(|client| self.select(|version| client.available.contains(&version)))
            .unwrap_or(self.original())
    }

    /// Returns whether a server has to know the client's versions before it can answer, because it
    /// prefers another one to that of the first flight.
    pub(super) fn needs_client_versions(self) -> bool {
        self.preference.first() != self.original() && self.may_change()
    }

    /// Returns whether a packet with a long header of `version` may be for this connection.
    ///
    /// | packet | accepted |
    /// |---|---|
    /// | Initial | with the current version; by a server also with the original one, until it has a Handshake packet; by a client also with another available one, until the version is decided |
    /// | Handshake | with the current version; by a client also with another available one until the version is decided, to be kept until there are keys |
    /// | 0-RTT | with the original version |
    pub(super) fn accepts(self, role: Role, kind: PacketKind, version: Version) -> bool {
        let other_available =
            || role == Role::Client && self.may_change() && self.preference.contains(version);
        match kind {
            PacketKind::Initial => {
                version == self.current()
                    || (role == Role::Server && version == self.original())
                    || other_available()
            }
            PacketKind::Handshake => version == self.current() || other_available(),
            PacketKind::ZeroRtt => version == self.original(),
            PacketKind::OneRtt => true,
        }
    }

    /// Returns the transport parameter of the end in the role of `sender`; `None` for a client that
    /// speaks only version 1, which does not require it. A server sends it in any case, because a
    /// client that it answered with Version Negotiation gives up without it. With `grease`, which
    /// is random, a reserved version is added (RFC 9368 §3).
    pub(super) fn information(
        self,
        sender: Role,
        grease: Option<u32>,
    ) -> Option<VersionInformation> {
        if sender == Role::Client && self.preference == VersionPreference::V1_ONLY {
            return None;
        }
        let chosen = match sender {
            Role::Client => self.original(),
            Role::Server => self.current(),
        };
        let available = self.preference.iter().chain(grease.map(Version::reserved));
        Some(VersionInformation {
            chosen,
            available: available.collect(),
        })
    }

    /// Checks the peer's transport parameter against the versions of the packets and our own.
    /// `role` is that of this end.
    ///
    /// # Errors
    /// VERSION_NEGOTIATION_ERROR (RFC 9368 §4).
    pub(super) fn check(
        self,
        role: Role,
        peer: Option<&VersionInformation>,
    ) -> Result<(), TransportError> {
        match role {
            Role::Server => self.check_client(peer),
            Role::Client => self.check_server(peer),
        }
    }

    fn check_client(self, client: Option<&VersionInformation>) -> Result<(), TransportError> {
        match client {
            Some(client) if client.chosen != self.original() => Err(mismatch(format!(
                "the client's version_information has chosen {}, but its first packets have {}",
                client.chosen,
                self.original()
            ))),
            Some(_) | None => Ok(()),
        }
    }

    fn check_server(self, server: Option<&VersionInformation>) -> Result<(), TransportError> {
        let Some(server) = server else {
            if self.restarted {
                return Err(mismatch(
                    "the server sent no version_information after Version Negotiation".to_owned(),
                ));
            }
            if self.current() != self.original() {
                return Err(mismatch(format!(
                    "the server changed the version to {} without version_information",
                    self.current()
                )));
            }
            return Ok(());
        };
        if server.chosen != self.current() {
            return Err(mismatch(format!(
                "the server's version_information has chosen {}, but its packets have {}",
                server.chosen,
                self.current()
            )));
        }
        if !self.preference.contains(server.chosen) {
            return Err(mismatch(format!(
                "the server has chosen {}, which was not offered",
                server.chosen
            )));
        }
        if !self.restarted {
            return Ok(());
        }
        // What would have been selected if the Version Negotiation packet had been the server's.
        let honest =
            self.select(|version| version == self.current() || server.available.contains(&version));
        if server.available.is_empty() || honest != Some(self.original()) {
            return Err(mismatch(format!(
                "a Version Negotiation packet led to {}, but the server speaks {:?}",
                self.original(),
                server.available
            )));
        }
        Ok(())
    }
}

fn mismatch(reason: String) -> TransportError {
    TransportError::new(Code::VERSION_NEGOTIATION_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVED: Version = Version(0x1a2a_3a4a);

    fn preference(versions: &[Version]) -> VersionPreference {
        VersionPreference::new(versions).expect("supported versions")
    }

    fn both() -> [VersionPreference; 2] {
        let (one, two) = (Version::V1, Version::V2);
        [preference(&[one, two]), preference(&[two, one])]
    }

    fn information(chosen: Version, available: &[Version]) -> VersionInformation {
        VersionInformation {
            chosen,
            available: available.to_vec(),
        }
    }

    #[test]
    fn server_chooses_by_its_own_order_among_available_versions() {
        let (one, two) = (Version::V1, Version::V2);
        let choose = |order: VersionPreference, original, available: &[Version]| {
            VersionChoice::new(order, original)
                .preferred_with(Some(&information(original, available)))
        };
        let [one_first, two_first] = both();
        assert_eq!(choose(two_first, one, &[one, two]), two);
        assert_eq!(choose(two_first, one, &[one, RESERVED]), one);
        assert_eq!(choose(two_first, two, &[one, two]), two);
        assert_eq!(choose(one_first, one, &[two, one]), one);
        assert_eq!(choose(one_first, two, &[two, one]), one);
        assert_eq!(choose(one_first, two, &[two]), two);
        assert_eq!(choose(preference(&[two]), one, &[one]), one);
        // Contradictory or missing information changes nothing.
        let choice = VersionChoice::new(two_first, one);
        assert_eq!(choice.preferred_with(None), one);
        let wrong = information(two, &[one, two]);
        assert_eq!(choice.preferred_with(Some(&wrong)), one);
    }

    #[test]
    fn server_waits_for_client_hello_only_if_it_prefers_another_version() {
        let [one_first, two_first] = both();
        let waits = |order, original| VersionChoice::new(order, original).needs_client_versions();
        assert!(!waits(one_first, Version::V1));
        assert!(waits(two_first, Version::V1));
        assert!(waits(one_first, Version::V2));
        assert!(!waits(VersionPreference::V1_ONLY, Version::V1));
    }

    /// Every choice, what the server says about it, and whether the client goes on.
    #[test]
    fn server_information_that_contradicts_packets_is_rejected() {
        let (one, two) = (Version::V1, Version::V2);
        for order in both() {
            for current in [one, two] {
                let mut choice = VersionChoice::new(order, one);
                choice.decide(current);
                for chosen in [one, two, RESERVED, Version(7)] {
                    for available in [&[][..], &[one], &[two], &[one, two], &[RESERVED]] {
                        let server = information(chosen, available);
                        let result = choice.check(Role::Client, Some(&server));
                        assert_eq!(result.is_ok(), chosen == current, "{choice:?} {server:?}");
                        if let Err(error) = result {
                            assert_eq!(error.code, Code::VERSION_NEGOTIATION_ERROR);
                        }
                    }
                }
                // A server that knows version 1 only sends nothing.
                let silent = choice.check(Role::Client, None);
                assert_eq!(silent.is_ok(), current == one);
            }
        }
    }

    /// RFC 9368 §4: the client would have selected the same version if it had known what the
    /// server speaks.
    #[test]
    fn forged_version_negotiation_is_detected_after_handshake() {
        let (one, two) = (Version::V1, Version::V2);
        for order in both() {
            for (first, second) in [(one, two), (two, one)] {
                let begun = VersionChoice::new(order, first);
                let mut choice = begun
                    .after_negotiation(&[RESERVED, second])
                    .expect("common");
                assert_eq!(choice.original(), second);
                choice.decide(second);
                let check = |available: &[Version]| {
                    let server = information(second, available);
                    choice.check(Role::Client, Some(&server))
                };
                check(&[second]).expect("the server speaks no other version");
                check(&[RESERVED, second]).expect("nor a reserved one");
                check(&[RESERVED]).expect("it is about to remove the version");
                assert!(check(&[]).is_err());
                assert!(choice.check(Role::Client, None).is_err());
                // The server speaks both: then the packet was forged, unless the client would have
                // chosen this version anyway.
                assert_eq!(check(&[one, two]).is_ok(), order.first() == second);
            }
        }
    }

    #[test]
    fn version_negotiation_is_followed_once_and_to_common_versions_only() {
        let (one, two) = (Version::V1, Version::V2);
        let [one_first, _] = both();
        let begun = VersionChoice::new(one_first, one);
        assert_eq!(begun.after_negotiation(&[RESERVED, Version(7)]), None);
        let again = begun.after_negotiation(&[two]).expect("version 2");
        assert!(again.is_restarted());
        assert_eq!(again.after_negotiation(&[one]), None);
        let only_one = VersionChoice::new(VersionPreference::V1_ONLY, one);
        assert_eq!(only_one.after_negotiation(&[two]), None);
    }

    #[test]
    fn client_information_has_to_name_version_of_its_packets() {
        let choice = VersionChoice::new(both()[0], Version::V1);
        let check = |information: Option<&VersionInformation>| {
            choice.check(Role::Server, information).is_ok()
        };
        assert!(check(None));
        assert!(check(Some(&information(Version::V1, &[Version::V1]))));
        let other = information(Version::V2, &[Version::V1, Version::V2]);
        assert!(!check(Some(&other)));
    }

    #[test]
    fn packets_of_other_versions_are_accepted_only_while_version_is_open() {
        let (one, two) = (Version::V1, Version::V2);
        let (initial, handshake) = (PacketKind::Initial, PacketKind::Handshake);
        let mut choice = VersionChoice::new(both()[0], one);
        for kind in [initial, handshake] {
            assert!(choice.accepts(Role::Client, kind, two));
            assert!(!choice.accepts(Role::Server, kind, two));
            assert!(!choice.accepts(Role::Client, kind, RESERVED));
            assert!(choice.accepts(Role::Server, kind, one));
        }
        choice.decide(two);
        assert!(!choice.accepts(Role::Client, initial, one));
        assert!(choice.accepts(Role::Server, initial, one));
        assert!(!choice.accepts(Role::Server, handshake, one));
        for role in [Role::Client, Role::Server] {
            assert!(choice.accepts(role, handshake, two));
            assert!(choice.accepts(role, PacketKind::ZeroRtt, one));
            assert!(!choice.accepts(role, PacketKind::ZeroRtt, two));
        }
    }

    #[test]
    fn information_is_sent_unless_client_speaks_only_version_1() {
        let (one, two) = (Version::V1, Version::V2);
        let of = |order| VersionChoice::new(order, one).information(Role::Client, Some(0));
        assert_eq!(of(VersionPreference::V1_ONLY), None);
        let reserved = Version::reserved(0);
        let expected = information(one, &[one, two, reserved]);
        assert_eq!(of(both()[0]), Some(expected));
        let server = VersionChoice::new(VersionPreference::V1_ONLY, one);
        let expected = information(one, &[one]);
        assert_eq!(server.information(Role::Server, None), Some(expected));
        let mut server = VersionChoice::new(both()[1], one);
        server.decide(two);
        let expected = information(two, &[two, one]);
        assert_eq!(server.information(Role::Server, None), Some(expected));
    }
}
