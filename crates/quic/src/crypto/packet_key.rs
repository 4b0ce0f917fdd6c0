//! One AEAD key: seals and opens payloads in place (RFC 9001 §5.3).

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::quic;
use zeroize::Zeroize;

use super::keys::TAG_LEN;
use super::suite::Suite;

/// A packet protection key and its IV.
pub struct PacketKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    suite: Suite,
}

impl PacketKey {
    /// From key material.
    ///
    /// # Panics
    /// If `key` is not [`Suite::key_len`] bytes long.
    #[must_use]
    pub fn new(suite: Suite, key: &[u8], iv: [u8; NONCE_LEN]) -> Self {
        let key = UnboundKey::new(suite.aead(), key).expect("a key of the suite's length");
        Self {
            key: LessSafeKey::new(key),
            iv,
            suite,
        }
    }

    /// The IV with the packet number, left-padded to its length, mixed in.
    #[inline]
    fn nonce(&self, packet_number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..]
            .iter_mut()
            .zip(packet_number.to_be_bytes())
        {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Drop for PacketKey {
    fn drop(&mut self) {
        self.iv.zeroize();
    }
}

impl quic::PacketKey for PacketKey {
    #[inline]
    fn encrypt_in_place(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<quic::Tag, rustls::Error> {
        self.key
            .seal_in_place_separate_tag(self.nonce(packet_number), Aad::from(header), payload)
            .map(|tag| quic::Tag::from(tag.as_ref()))
            .map_err(|_| rustls::Error::EncryptError)
    }

    #[inline]
    fn decrypt_in_place<'a>(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        self.key
            .open_in_place(self.nonce(packet_number), Aad::from(header), payload)
            .map(|plain| &*plain)
            .map_err(|_| rustls::Error::DecryptError)
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.suite.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.suite.integrity_limit()
    }
}
