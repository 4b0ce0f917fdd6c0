//! Header protection: hides the packet number and the low bits of the first
//! byte (RFC 9001 §5.4).

use aws_lc_rs::aead::quic::HeaderProtectionKey as Cipher;
use rustls::quic;

use super::key_export;
use super::keys::SAMPLE_LEN;
use super::lazy_cipher::LazyCipher;
use super::material::KeyMaterial;
use super::suite::Suite;

/// The Header Form bit: 1 for long headers (RFC 9000 §17.2).
const LONG_FORM: u8 = 0x80;
/// Bits of the first byte that are protected in a long header.
const LONG_BITS: u8 = 0x0f;
/// Bits of the first byte that are protected in a short header.
const SHORT_BITS: u8 = 0x1f;
/// Packet Number Length field: the length less one (RFC 9000 §17.2).
const PN_LEN_BITS: u8 = 0x03;
/// Longest packet number on the wire, in bytes.
const MAX_PN_LEN: usize = 4;

/// A header protection key.
pub(crate) struct HeaderKey {
    cipher: LazyCipher<Box<Cipher>>,
    material: KeyMaterial,
}

impl HeaderKey {
    /// Creates a key from its bytes.
    ///
    /// # Panics
    /// If `key` is not [`Suite::key_len`] bytes long.
    #[must_use]
    pub(crate) fn new(suite: Suite, key: &[u8]) -> Self {
        Self {
            cipher: LazyCipher::new(),
            material: KeyMaterial::new(suite, key),
        }
    }

    /// Creates the same key as one that rustls hands out; `None` if that was not made by
    /// [`Suite`].
    pub(super) fn from_rustls(key: &dyn quic::HeaderProtectionKey) -> Option<Self> {
        Some(Self {
            cipher: LazyCipher::new(),
            material: key_export::request_header_key(key)?,
        })
    }

    /// Frees the cipher until the key is needed again.
    pub(super) fn release_cipher(&mut self) {
        self.cipher.release();
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
    fn cipher(&self) -> &Cipher {
        self.cipher.get_or_make(&self.material, |suite, key| {
            let cipher = Cipher::new(suite.header_cipher(), key);
            Box::new(cipher.expect("a key of the suite's length"))
        })
    }

    #[inline]
    fn mask(&self, sample: &[u8], number: &[u8]) -> Result<[u8; 5], rustls::Error> {
        if number.len() > MAX_PN_LEN {
            return Err(number_too_long());
        }
        self.cipher()
            .new_mask(sample)
            .map_err(|_| sample_of_wrong_length())
    }

    /// Applies or removes the mask. The two differ only in which first byte tells the length of
    /// the packet number; `plain` returns that byte, given the flipped one.
    #[inline]
    fn flip(
        &self,
        sample: &[u8],
        first: &mut u8,
        number: &mut [u8],
        plain: impl FnOnce(u8) -> u8,
    ) -> Result<(), rustls::Error> {
        let mask = self.mask(sample, number)?;
        *first ^= mask[0] & protected_bits(*first);
        mask_number(plain(*first), &mask[1..], number);
        Ok(())
    }
}

#[cold]
fn sample_of_wrong_length() -> rustls::Error {
    rustls::Error::General("header protection sample has the wrong length".into())
}

#[cold]
fn number_too_long() -> rustls::Error {
    rustls::Error::General("packet number too long".into())
}

#[inline]
fn protected_bits(first: u8) -> u8 {
    if first & LONG_FORM == 0 {
        SHORT_BITS
    } else {
        LONG_BITS
    }
}

/// Masks the bytes of `number`, whose length is in `plain_first`, the unprotected first byte.
#[inline]
fn mask_number(plain_first: u8, mask: &[u8], number: &mut [u8]) {
    let len = usize::from(plain_first & PN_LEN_BITS) + 1;
    for (byte, mask) in number.iter_mut().take(len).zip(mask) {
        *byte ^= mask;
    }
}

impl quic::HeaderProtectionKey for HeaderKey {
    #[inline]
    fn encrypt_in_place(
        &self,
        sample: &[u8],
        first: &mut u8,
        packet_number: &mut [u8],
    ) -> Result<(), rustls::Error> {
        let plain = *first;
        self.flip(sample, first, packet_number, |_| plain)
    }

    #[inline]
    fn decrypt_in_place(
        &self,
        sample: &[u8],
        first: &mut u8,
        packet_number: &mut [u8],
    ) -> Result<(), rustls::Error> {
        if packet_number.len() > MAX_PN_LEN {
            return if key_export::export_header_key(sample, packet_number, &self.material) {
                Ok(())
            } else {
                Err(number_too_long())
            };
        }
        self.flip(sample, first, packet_number, |flipped| flipped)
    }

    fn sample_len(&self) -> usize {
        SAMPLE_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_export::{MATERIAL_LEN, NO_SAMPLE};
    use super::*;
    use rustls::quic::HeaderProtectionKey as _;

    /// Bits of `first` that protection changed under any of many samples.
    fn bits_hidden(suite: Suite, first: u8) -> u8 {
        let key = HeaderKey::new(suite, &[3; 32][..suite.key_len()]);
        (0..=u8::MAX).fold(0, |hidden, n| {
            let (mut masked, mut number) = (first, [0; 4]);
            key.encrypt_in_place(&[n; SAMPLE_LEN], &mut masked, &mut number)
                .unwrap();
            hidden | (masked ^ first)
        })
    }

    #[test]
    fn header_protection_masks_five_bits_of_short_and_four_of_long_headers() {
        for suite in Suite::ALL {
            assert_eq!(bits_hidden(suite, 0x43), 0b0001_1111, "{suite:?}");
            assert_eq!(bits_hidden(suite, 0xc3), 0b0000_1111, "{suite:?}");
        }
    }

    #[test]
    fn header_protection_masks_packet_number_and_nothing_after_it() {
        let key = HeaderKey::new(Suite::Aes128Gcm, &[3; 16]);
        for len in 1..=4 {
            let (mut first, mut number) = (0x40 | (len - 1), [0; 4]);
            key.encrypt_in_place(&[5; SAMPLE_LEN], &mut first, &mut number)
                .unwrap();
            assert_eq!(number[usize::from(len)..], [0; 4][usize::from(len)..]);
            assert_ne!(number[..usize::from(len)], [0; 4][..usize::from(len)]);
        }
    }

    #[test]
    fn sample_or_number_of_wrong_length_is_rejected_without_changes() {
        let key = HeaderKey::new(Suite::Aes128Gcm, &[3; 16]);
        let (mut first, mut number) = (0x43, [1; 5]);
        let short = key.decrypt_in_place(&[0; 15], &mut first, &mut number[..4]);
        let long = key.decrypt_in_place(&[0; 16], &mut first, &mut number);
        assert!(short.is_err() && long.is_err());
        assert_eq!((first, number), (0x43, [1; 5]));
    }

    #[test]
    fn key_extracted_from_trait_object_is_same_key() {
        for suite in Suite::ALL {
            let ours = HeaderKey::new(suite, &[3; 32][..suite.key_len()]);
            let mut twin = HeaderKey::from_rustls(&ours).expect("ours");
            let sample = [5; SAMPLE_LEN];
            let (mut first, mut number) = (0x43, [1, 2, 3, 4]);
            ours.encrypt_in_place(&sample, &mut first, &mut number)
                .unwrap();
            assert!(!twin.has_cipher());
            twin.decrypt_in_place(&sample, &mut first, &mut number)
                .unwrap();
            assert_eq!((first, number), (0x43, [1, 2, 3, 4]));
            assert!(twin.has_cipher());
            twin.release_cipher();
            assert!(!twin.has_cipher());
            let mut told = [0; MATERIAL_LEN];
            let tell = |sample: &[u8], told: &mut [u8]| ours.decrypt_in_place(sample, &mut 0, told);
            assert!(tell(&sample, &mut told).is_err());
            assert!(tell(NO_SAMPLE, &mut told[1..]).is_err());
            assert!(ours.encrypt_in_place(NO_SAMPLE, &mut 0, &mut told).is_err());
            assert_eq!(told, [0; MATERIAL_LEN]);
        }
    }
}
