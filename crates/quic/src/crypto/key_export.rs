//! Exports our own keys out of the trait objects of rustls.
//!
//! rustls has [`Suite`](super::suite::Suite) make the packet keys of each generation and
//! hands them on as `Box<dyn PacketKey>` and `Box<dyn HeaderProtectionKey>`. Behind these
//! traits a key can seal and open, and nothing else: its cipher could not be given back
//! while a connection rests, and every packet would go through a table of functions. The
//! traits have no way down to the type (no `Any`), and `Secrets`, from which the keys could
//! be derived once more, shows nothing of itself.
//!
//! So our keys answer one call that no packet causes, and this module has both sides of
//! that call: `request_*` makes it, and `export_*` is how the key's decryption answers it.
//!
//! | key | the call | why no packet causes it |
//! |---|---|---|
//! | packet key | `decrypt_in_place_for_path` with [`NO_PACKET`] | it is for multipath packets, which this crate does not open, and no packet has that number |
//! | header key | `decrypt_in_place` with an empty sample and a buffer of [`KeyMaterial`]'s size | a sample has 16 bytes, a packet number at most 4 |
//!
//! The answer is the key material, in the buffer of the call. Only the holder of the key can
//! request it, and the buffer is wiped after it has been read. A key of another implementation,
//! from a TLS configuration that was not built by `ClientCrypto` or `ServerCrypto`, returns an error: then
//! the handshake ends with `INTERNAL_ERROR` ([`unsupported_keys`]).

use aws_lc_rs::aead::NONCE_LEN;
use rustls::quic;
use zeroize::Zeroizing;

use super::material::{KeyMaterial, MAX_KEY};
use super::suite::Suite;
use crate::error::{Code, TransportError};

/// No packet has this number (RFC 9000 §12.3).
pub(super) const NO_PACKET: u64 = u64::MAX;

/// No packet's sample is empty.
pub(super) const NO_SAMPLE: &[u8] = &[];

/// Bytes of an exported [`KeyMaterial`]: the suite, then the key, padded with zeros.
pub(super) const MATERIAL_LEN: usize = 1 + MAX_KEY;

/// Bytes of an exported packet key: the material, then the IV.
pub(super) const PACKET_KEY_LEN: usize = MATERIAL_LEN + NONCE_LEN;

/// Returns the material and the IV of a packet key, or `None` if it is not one of ours.
pub(super) fn request_packet_key(
    key: &dyn quic::PacketKey,
) -> Option<(KeyMaterial, [u8; NONCE_LEN])> {
    let mut answer = Zeroizing::new([0; PACKET_KEY_LEN]);
    key.decrypt_in_place_for_path(u32::MAX, NO_PACKET, &[], &mut *answer)
        .ok()?;
    let (material, iv) = answer.split_first_chunk()?;
    Some((read(material)?, *iv.first_chunk()?))
}

/// Returns `decrypt_in_place_for_path` of a packet key.
pub(super) fn export_packet_key<'a>(
    packet_number: u64,
    buffer: &'a mut [u8],
    material: &KeyMaterial,
    iv: &[u8; NONCE_LEN],
) -> Result<&'a [u8], rustls::Error> {
    match buffer.split_first_chunk_mut() {
        Some((place, rest)) if packet_number == NO_PACKET && rest.len() == NONCE_LEN => {
            write(material, place);
            rest.copy_from_slice(iv);
            Ok(buffer)
        }
        Some(_) | None => Err(rustls::Error::DecryptError),
    }
}

/// Returns the material of a header protection key, or `None` if it is not one of ours.
pub(super) fn request_header_key(key: &dyn quic::HeaderProtectionKey) -> Option<KeyMaterial> {
    let mut answer = Zeroizing::new([0; MATERIAL_LEN]);
    key.decrypt_in_place(NO_SAMPLE, &mut 0, &mut *answer).ok()?;
    read(&answer)
}

/// Answers `decrypt_in_place` of a header protection key for a `buffer` that is longer than
/// any packet number. Returns false if this is not a request for the key.
#[cold]
pub(super) fn export_header_key(sample: &[u8], buffer: &mut [u8], material: &KeyMaterial) -> bool {
    match buffer.try_into() {
        Ok(place) if sample == NO_SAMPLE => {
            write(material, place);
            true
        }
        Ok(_) | Err(_) => false,
    }
}

fn write(material: &KeyMaterial, out: &mut [u8; MATERIAL_LEN]) {
    let [suite, key @ ..] = out;
    *suite = material.suite() as u8;
    *key = *material.padded_key();
}

/// Reads what [`write`] has written; `None` if the suite is unknown.
fn read(written: &[u8; MATERIAL_LEN]) -> Option<KeyMaterial> {
    let [suite, key @ ..] = written;
    let suite = *Suite::ALL.get(usize::from(*suite))?;
    Some(KeyMaterial::new(suite, key.get(..suite.key_len())?))
}

/// Returns the error for packet keys that are not ours.
#[cold]
pub(super) fn unsupported_keys() -> TransportError {
    TransportError::new(
        Code::INTERNAL_ERROR,
        "unsupported packet keys: the TLS configuration was not built by ClientCrypto or ServerCrypto",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_material_round_trips() {
        for suite in Suite::ALL {
            let key: Vec<u8> = (1..=suite.key_len() as u8).collect();
            let mut written = [0xff; MATERIAL_LEN];
            write(&KeyMaterial::new(suite, &key), &mut written);
            let read = read(&written).unwrap();
            assert_eq!((read.suite(), read.key()), (suite, &key[..]));
        }
    }

    #[test]
    fn key_material_of_unknown_suite_is_rejected() {
        assert!(read(&[Suite::ALL.len() as u8; MATERIAL_LEN]).is_none());
    }
}
