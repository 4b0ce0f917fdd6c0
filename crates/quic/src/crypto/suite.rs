//! The AEADs of QUIC (RFC 9001 §5.3) and the usage limits of their keys.

use aws_lc_rs::aead;

/// A packet-protection algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// AEAD_AES_128_GCM; also protects every Initial packet.
    Aes128Gcm,
    /// AEAD_AES_256_GCM.
    Aes256Gcm,
    /// AEAD_CHACHA20_POLY1305.
    ChaCha20Poly1305,
}

impl Suite {
    /// All suites, in the order in which a client offers them.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the length of a packet key and of a header protection key in bytes.
    #[must_use]
    pub(crate) const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Returns the number of packets that one key may seal (RFC 9001 §6.6). For ChaCha20 these
    /// are all packet numbers.
    #[must_use]
    pub const fn confidentiality_limit(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 23,
            Self::ChaCha20Poly1305 => 1 << 62,
        }
    }

    /// Returns the number of packets that may fail to open in one connection, over all its
    /// keys (RFC 9001 §6.6).
    #[must_use]
    pub const fn integrity_limit(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 52,
            Self::ChaCha20Poly1305 => 1 << 36,
        }
    }

    pub(super) fn aead(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    pub(super) fn header_cipher(self) -> &'static aead::quic::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::quic::AES_128,
            Self::Aes256Gcm => &aead::quic::AES_256,
            Self::ChaCha20Poly1305 => &aead::quic::CHACHA20,
        }
    }
}
