//! The algorithms that TLS may negotiate. Packet protection is our own, everything else is
//! aws-lc-rs.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::aead::NONCE_LEN;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite, quic};

use super::config_error::ConfigError;
use super::header_key::HeaderKey;
use super::packet_key::PacketKey;
use super::suite::Suite;

/// A key exchange group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// X25519 with ML-KEM-768: safe against a future quantum computer, but the ClientHello
    /// needs two datagrams.
    X25519MlKem768,
    /// X25519.
    X25519,
    /// NIST P-256.
    Secp256r1,
    /// NIST P-384.
    Secp384r1,
}

impl Group {
    /// All groups in order of preference.
    pub const ALL: [Self; 4] = [
        Self::X25519MlKem768,
        Self::X25519,
        Self::Secp256r1,
        Self::Secp384r1,
    ];

    fn supported(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::X25519MlKem768 => kx_group::X25519MLKEM768,
            Self::X25519 => kx_group::X25519,
            Self::Secp256r1 => kx_group::SECP256R1,
            Self::Secp384r1 => kx_group::SECP384R1,
        }
    }
}

/// The enabled cipher suites and key exchange groups, most preferred first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithms {
    suites: Vec<Suite>,
    groups: Vec<Group>,
}

impl Default for Algorithms {
    /// All of them, with the post-quantum key exchange first, so that recorded traffic stays
    /// secret.
    fn default() -> Self {
        Self {
            suites: Suite::ALL.to_vec(),
            groups: Group::ALL.to_vec(),
        }
    }
}

impl Algorithms {
    /// Enables only these suites, in this order.
    #[must_use]
    pub fn with_suites(mut self, suites: &[Suite]) -> Self {
        self.suites = suites.to_vec();
        self
    }

    /// Enables only these key exchange groups, in this order.
    #[must_use]
    pub fn with_groups(mut self, groups: &[Group]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    /// Enables X25519 alone, so that the ClientHello fits into one datagram.
    #[must_use]
    pub fn x25519_only(self) -> Self {
        self.with_groups(&[Group::X25519])
    }

    /// Returns the provider for rustls.
    ///
    /// # Errors
    /// [`ConfigError::NoAlgorithm`] if no suite or no key exchange group is enabled.
    pub fn provider(&self) -> Result<Arc<CryptoProvider>, ConfigError> {
        if self.suites.is_empty() || self.groups.is_empty() {
            return Err(ConfigError::NoAlgorithm);
        }
        Ok(Arc::new(CryptoProvider {
            cipher_suites: self
                .suites
                .iter()
                .map(|suite| SupportedCipherSuite::Tls13(tls13(*suite)))
                .collect(),
            kx_groups: self.groups.iter().map(|group| group.supported()).collect(),
            ..default_provider()
        }))
    }
}

impl quic::Algorithm for Suite {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn quic::PacketKey> {
        let mut bytes = [0; NONCE_LEN];
        bytes.copy_from_slice(iv.as_ref());
        Box::new(PacketKey::new(*self, key.as_ref(), bytes))
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn quic::HeaderProtectionKey> {
        Box::new(HeaderKey::new(*self, key.as_ref()))
    }

    fn aead_key_len(&self) -> usize {
        self.key_len()
    }
}

/// Returns the suite that TLS calls `name`.
pub(super) fn suite_of(name: rustls::CipherSuite) -> Option<Suite> {
    Suite::ALL
        .into_iter()
        .find(|suite| tls13(*suite).common.suite == name)
}

/// Returns the TLS cipher suite that protects packets with `suite`.
pub(super) fn tls13(suite: Suite) -> &'static Tls13CipherSuite {
    static AES_128: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
        with_our_packet_keys(cipher_suite::TLS13_AES_128_GCM_SHA256, &Suite::Aes128Gcm)
    });
    static AES_256: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
        with_our_packet_keys(cipher_suite::TLS13_AES_256_GCM_SHA384, &Suite::Aes256Gcm)
    });
    static CHACHA20: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
        with_our_packet_keys(
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            &Suite::ChaCha20Poly1305,
        )
    });
    match suite {
        Suite::Aes128Gcm => &AES_128,
        Suite::Aes256Gcm => &AES_256,
        Suite::ChaCha20Poly1305 => &CHACHA20,
    }
}

#[expect(
    clippy::expect_used,
    reason = "called with the three TLS 1.3 suites of rustls by name"
)]
fn with_our_packet_keys(base: SupportedCipherSuite, suite: &'static Suite) -> Tls13CipherSuite {
    let base = base.tls13().expect("a TLS 1.3 suite");
    Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: base.common.suite,
            hash_provider: base.common.hash_provider,
            confidentiality_limit: base.common.confidentiality_limit,
        },
        hkdf_provider: base.hkdf_provider,
        aead_alg: base.aead_alg,
        quic: Some(suite),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::quic::{Keys, Version};
    use rustls::{NamedGroup, Side};

    #[test]
    fn post_quantum_group_is_first_and_can_be_disabled() {
        let names = |algorithms: &Algorithms| {
            let provider = algorithms.provider().unwrap();
            provider
                .kx_groups
                .iter()
                .map(|group| group.name())
                .collect::<Vec<_>>()
        };
        let all = Algorithms::default();
        assert_eq!(names(&all)[0], NamedGroup::X25519MLKEM768);
        assert_eq!(names(&all).len(), 4);
        assert_eq!(names(&all.x25519_only()), [NamedGroup::X25519]);
    }

    #[test]
    fn every_suite_uses_our_packet_keys_and_limits() {
        for suite in Suite::ALL {
            let quic = tls13(suite).quic.unwrap();
            assert_eq!(quic.aead_key_len(), suite.key_len());
            let keys = Keys::initial(Version::V1, tls13(suite), quic, b"cid", Side::Client);
            let key = keys.local.packet;
            assert_eq!(key.confidentiality_limit(), suite.confidentiality_limit());
            assert_eq!(key.integrity_limit(), suite.integrity_limit());
        }
    }

    #[test]
    fn empty_algorithm_list_is_rejected() {
        let none = Algorithms::default().with_suites(&[]);
        assert!(matches!(none.provider(), Err(ConfigError::NoAlgorithm)));
    }
}
