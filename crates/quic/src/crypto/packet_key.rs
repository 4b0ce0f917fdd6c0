//! One AEAD key: seals and opens payloads in place (RFC 9001 §5.3).

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::quic;
use zeroize::Zeroize;

use super::key_export;
use super::keys::TAG_LEN;
use super::lazy_cipher::LazyCipher;
use super::material::KeyMaterial;
use super::suite::Suite;

/// A packet protection key and its IV.
pub(crate) struct PacketKey {
    cipher: LazyCipher<LessSafeKey>,
    material: KeyMaterial,
    iv: [u8; NONCE_LEN],
}

impl PacketKey {
    /// Creates a key from its bytes.
    ///
    /// # Panics
    /// If `key` is not [`Suite::key_len`] bytes long.
    #[must_use]
    pub(crate) fn new(suite: Suite, key: &[u8], iv: [u8; NONCE_LEN]) -> Self {
        Self {
            cipher: LazyCipher::new(),
            material: KeyMaterial::new(suite, key),
            iv,
        }
    }

    /// Creates the same key as one that rustls hands out; `None` if that was not made by
    /// [`Suite`].
    pub(super) fn from_rustls(key: &dyn quic::PacketKey) -> Option<Self> {
        let (material, iv) = key_export::request_packet_key(key)?;
        Some(Self {
            cipher: LazyCipher::new(),
            material,
            iv,
        })
    }

    /// Frees the cipher until the key is needed again.
    pub(super) fn release_cipher(&mut self) {
        self.cipher.release();
    }

    /// Creates the cipher if it does not exist.
    pub(super) fn make_cipher(&self) {
        let _ = self.cipher();
    }

    /// Returns whether the cipher exists.
    #[cfg(test)]
    pub(super) fn has_cipher(&self) -> bool {
        self.cipher.is_made()
    }

    #[inline]
    #[expect(
        clippy::expect_used,
        reason = "only the key's length can be wrong, and `KeyMaterial` holds one of the suite's length"
    )]
    fn cipher(&self) -> &LessSafeKey {
        self.cipher.get_or_make(&self.material, |suite, key| {
            let key = UnboundKey::new(suite.aead(), key);
            LessSafeKey::new(key.expect("a key of the suite's length"))
        })
    }

    /// Returns the nonce: the IV XORed with the left-padded packet number (RFC 9001 §5.3).
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
        self.cipher()
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
        self.cipher()
            .open_in_place(self.nonce(packet_number), Aad::from(header), payload)
            .map(|plain| &*plain)
            .map_err(|_| rustls::Error::DecryptError)
    }

    /// Returns [`PacketKey::from_rustls`]; there are no multipath packets to open.
    fn decrypt_in_place_for_path<'a>(
        &self,
        _path_id: u32,
        packet_number: u64,
        _header: &[u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        key_export::export_packet_key(packet_number, buffer, &self.material, &self.iv)
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.material.suite().confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.material.suite().integrity_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_export::{NO_PACKET, PACKET_KEY_LEN};
    use super::*;
    use rustls::quic::PacketKey as _;

    #[test]
    fn key_extracted_from_trait_object_is_same_key() {
        for suite in Suite::ALL {
            let ours = PacketKey::new(suite, &[3; 32][..suite.key_len()], [7; NONCE_LEN]);
            let mut twin = PacketKey::from_rustls(&ours).expect("ours");
            let mut payload = *b"a payload, as it happens";
            let tag = ours.encrypt_in_place(9, b"header", &mut payload).unwrap();
            for warm in [false, true] {
                assert_eq!(twin.has_cipher(), warm);
                let mut sealed = [&payload[..], tag.as_ref()].concat();
                let plain = twin.decrypt_in_place(9, b"header", &mut sealed).unwrap();
                assert_eq!(plain, b"a payload, as it happens");
            }
            assert_eq!(twin.tag_len(), tag.as_ref().len());
            twin.release_cipher();
            assert!(!twin.has_cipher());
            let mut told = [0; PACKET_KEY_LEN];
            assert!(
                ours.decrypt_in_place_for_path(u32::MAX, 9, &[], &mut told)
                    .is_err()
            );
            assert!(
                ours.decrypt_in_place_for_path(0, NO_PACKET, &[], &mut told[1..])
                    .is_err()
            );
            assert_eq!(told, [0; PACKET_KEY_LEN]);
        }
    }
}
