//! Traffic secrets, and the packet keys that each QUIC version derives from them (RFC 9001
//! §5.1, RFC 9369 §3.3.2).
//!
//! rustls derives the keys of the version that a TLS session was created with. Two cases are left
//! to this module: Initial packets, and a client whose server has chosen another version than that
//! of the client's first flight (RFC 9368 §2.3), because rustls cannot change the version of a
//! session.

use aws_lc_rs::aead::NONCE_LEN;
use rustls::crypto::tls13::{HkdfExpander, OkmBlock};
use rustls::quic::Secrets;
use zeroize::Zeroizing;

use super::header_key::HeaderKey;
use super::key_export::unsupported_keys;
use super::keys::{Direction, Keys};
use super::material::MAX_KEY;
use super::packet_key::PacketKey;
use super::provider;
use super::suite::Suite;
use crate::Role;
use crate::error::TransportError;
use crate::wire::version::{KeyLabels, VersionProperties};

/// The prefix of every label of TLS 1.3 (RFC 8446 §7.1).
const LABEL_PREFIX: &[u8] = b"tls13 ";

/// The secret of one direction at one encryption level.
#[derive(Clone)]
pub(super) struct TrafficSecret {
    bytes: OkmBlock,
    suite: Suite,
}

impl TrafficSecret {
    /// Creates it from the bytes that TLS has derived for `suite`.
    pub(super) fn new(suite: Suite, bytes: &[u8]) -> Self {
        Self {
            bytes: OkmBlock::new(bytes),
            suite,
        }
    }

    fn expander(&self) -> Box<dyn HkdfExpander> {
        let hkdf = provider::tls13(self.suite).hkdf_provider;
        hkdf.expander_for_okm(&self.bytes)
    }

    /// Returns the packet key and the header protection key of this secret.
    pub(super) fn keys(&self, labels: &KeyLabels) -> (PacketKey, HeaderKey) {
        let expander = self.expander();
        let mut key = Zeroizing::new([0; MAX_KEY]);
        let key = key.get_mut(..self.suite.key_len()).unwrap_or_default();
        expand_label(&*expander, labels.header, key);
        let header = HeaderKey::new(self.suite, key);
        (packet_key(self.suite, &*expander, labels), header)
    }

    /// Returns the packet key of this secret.
    fn packet_key(&self, labels: &KeyLabels) -> PacketKey {
        packet_key(self.suite, &*self.expander(), labels)
    }

    /// Returns the secret after a key update (RFC 9001 §6.1).
    fn updated(&self, labels: &KeyLabels) -> Self {
        let expander = self.expander();
        Self {
            bytes: expand_label_to_block(&*expander, labels.update),
            suite: self.suite,
        }
    }
}

fn packet_key(suite: Suite, expander: &dyn HkdfExpander, labels: &KeyLabels) -> PacketKey {
    let mut key = Zeroizing::new([0; MAX_KEY]);
    let key = key.get_mut(..suite.key_len()).unwrap_or_default();
    let mut iv = [0; NONCE_LEN];
    expand_label(expander, labels.key, key);
    expand_label(expander, labels.iv, &mut iv);
    PacketKey::new(suite, key, iv)
}

/// HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
#[expect(
    clippy::expect_used,
    reason = "HKDF refuses more than 255 blocks, and keys have at most two"
)]
fn expand_label(expander: &dyn HkdfExpander, label: &[u8], out: &mut [u8]) {
    let len = (out.len() as u16).to_be_bytes();
    expander
        .expand_slice(&label_info(&len, &label_len(label), label), out)
        .expect("a key is short enough for HKDF");
}

fn expand_label_to_block(expander: &dyn HkdfExpander, label: &[u8]) -> OkmBlock {
    let len = (expander.hash_len() as u16).to_be_bytes();
    expander.expand_block(&label_info(&len, &label_len(label), label))
}

fn label_len(label: &[u8]) -> [u8; 1] {
    [LABEL_PREFIX.len().saturating_add(label.len()) as u8]
}

/// Returns the structure HkdfLabel in parts.
fn label_info<'a>(len: &'a [u8; 2], label_len: &'a [u8; 1], label: &'a [u8]) -> [&'a [u8]; 5] {
    [len, label_len, LABEL_PREFIX, label, &[0]]
}

/// Returns the Initial keys of a connection for the end `role` (RFC 9001 §5.2).
pub(super) fn initial_keys(version: &VersionProperties, dcid: &[u8], role: Role) -> Keys {
    let suite = Suite::Aes128Gcm;
    let hkdf = provider::tls13(suite).hkdf_provider;
    let initial = hkdf.extract_from_secret(Some(&version.initial_salt), dcid);
    let direction = |label| {
        let secret = TrafficSecret {
            bytes: expand_label_to_block(&*initial, label),
            suite,
        };
        Direction::from(secret.keys(&version.labels))
    };
    let (client, server) = (direction(b"client in"), direction(b"server in"));
    match role {
        Role::Client => Keys {
            local: client,
            remote: server,
        },
        Role::Server => Keys {
            local: server,
            remote: client,
        },
    }
}

/// The secrets of both directions at one encryption level.
#[derive(Clone)]
pub(super) struct SecretPair {
    /// For packets that we send.
    pub(super) local: TrafficSecret,
    /// For packets that we receive.
    pub(super) remote: TrafficSecret,
}

impl SecretPair {
    /// Returns the keys of these secrets.
    pub(super) fn keys(&self, labels: &KeyLabels) -> Keys {
        Keys {
            local: self.local.keys(labels).into(),
            remote: self.remote.keys(labels).into(),
        }
    }

    /// Returns the secrets after a key update.
    pub(super) fn updated(&self, labels: &KeyLabels) -> Self {
        Self {
            local: self.local.updated(labels),
            remote: self.remote.updated(labels),
        }
    }
}

/// The secrets of one generation of 1-RTT keys, from which all later ones follow.
#[derive(Clone)]
pub(super) enum UpdateSecrets {
    /// Those of rustls, for the version that its session was created with.
    Tls(Secrets),
    /// Our own, for another version.
    Derived(Box<SecretPair>, &'static KeyLabels),
}

impl UpdateSecrets {
    /// Returns the packet key of this generation for sending.
    ///
    /// # Errors
    /// `INTERNAL_ERROR` if it was not made by a [`Suite`].
    pub(super) fn local_key(&self) -> Result<PacketKey, TransportError> {
        match self {
            Self::Tls(secrets) => {
                let key = secrets.clone().next_packet_keys().local;
                PacketKey::from_rustls(&*key).ok_or_else(unsupported_keys)
            }
            Self::Derived(secrets, labels) => Ok(secrets.local.packet_key(labels)),
        }
    }

    /// Returns the packet key of this generation for receiving.
    ///
    /// # Errors
    /// `INTERNAL_ERROR` if it was not made by a [`Suite`].
    pub(super) fn remote_key(&self) -> Result<PacketKey, TransportError> {
        match self {
            Self::Tls(secrets) => {
                let key = secrets.clone().next_packet_keys().remote;
                PacketKey::from_rustls(&*key).ok_or_else(unsupported_keys)
            }
            Self::Derived(secrets, labels) => Ok(secrets.remote.packet_key(labels)),
        }
    }

    /// Moves to the next generation.
    pub(super) fn advance(&mut self) {
        match self {
            Self::Tls(secrets) => drop(secrets.next_packet_keys()),
            Self::Derived(secrets, labels) => **secrets = secrets.updated(labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::testing::{appendix_a_dcid, hex};
    use crate::wire::Version;
    use rustls::Side;
    use rustls::quic::PacketKey as _;

    fn v2() -> &'static VersionProperties {
        Version::V2.of_connection()
    }

    /// RFC 9369 §A.5.
    #[test]
    fn chacha20_keys_and_update_match_rfc9369_appendix_a() {
        let secret = hex("9ac312a7f877468ebe69422748ad00a1 5443f18203a07d6060f688f30f21632b");
        let secret = TrafficSecret::new(Suite::ChaCha20Poly1305, &secret);
        let updated = secret.updated(&v2().labels);
        assert_eq!(
            updated.bytes.as_ref(),
            hex("c69374c49e3d2a9466fa689e49d476db 5d0dfbc87d32ceeaa6343fd0ae4c7d88")
        );
        let direction = Direction::from(secret.keys(&v2().labels));
        let mut packet = hex("4200bff401");
        packet.extend([0; 16]);
        direction.seal(654_360_564, &mut packet, 4, 3).unwrap();
        assert_eq!(packet, hex("5558b1c60ae7b6b932bc27d786f4bc2bb20f2162ba"));
    }

    #[test]
    fn initial_keys_are_those_of_rustls() {
        let dcid = appendix_a_dcid();
        for (version, tls) in [
            (Version::V1, rustls::quic::Version::V1),
            (Version::V2, rustls::quic::Version::V2),
        ] {
            for (role, side) in [(Role::Client, Side::Client), (Role::Server, Side::Server)] {
                let suite = provider::tls13(Suite::Aes128Gcm);
                let theirs =
                    rustls::quic::Keys::initial(tls, suite, &Suite::Aes128Gcm, &dcid, side);
                let ours = initial_keys(version.of_connection(), &dcid, role);
                let mut packet = vec![0xc3; 60];
                ours.local.seal(7, &mut packet, 20, 4).unwrap();
                let mut expected = [0xc3; 44];
                let tag = theirs
                    .local
                    .packet
                    .encrypt_in_place(7, &[0xc3; 20], &mut expected[20..])
                    .unwrap();
                assert_eq!(packet[20..44], expected[20..], "{version} {role:?}");
                assert_eq!(packet[44..], *tag.as_ref());
            }
        }
    }

    /// The keys of a generation follow from the secrets as those of rustls do.
    #[test]
    fn derived_key_updates_continue_through_generations() {
        let secret = |byte| TrafficSecret::new(Suite::Aes256Gcm, &[byte; 48]);
        let pair = SecretPair {
            local: secret(1),
            remote: secret(2),
        };
        let labels = &v2().labels;
        let mirrored = SecretPair {
            local: secret(2),
            remote: secret(1),
        };
        let mut ours = UpdateSecrets::Derived(Box::new(pair), labels);
        let mut theirs = UpdateSecrets::Derived(Box::new(mirrored), labels);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let mut sealed = *b"payload";
            let tag = ours
                .local_key()
                .unwrap()
                .encrypt_in_place(1, b"header", &mut sealed)
                .unwrap();
            let mut whole = [&sealed[..], tag.as_ref()].concat();
            let key = theirs.remote_key().unwrap();
            let opened = key.decrypt_in_place(1, b"header", &mut whole).unwrap();
            assert_eq!(opened, b"payload");
            assert!(!seen.contains(&sealed), "each generation has its own key");
            seen.push(sealed);
            ours.advance();
            theirs.advance();
        }
    }
}
