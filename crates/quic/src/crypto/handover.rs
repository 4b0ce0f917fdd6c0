//! Our own keys back out of rustls.
//!
//! rustls has [`Suite`](super::suite::Suite) make the packet keys of each generation and
//! hands them on as `Box<dyn PacketKey>` and `Box<dyn HeaderProtectionKey>`. Behind these
//! traits a key can seal and open, and nothing else: its cipher could not be given back
//! while a connection rests, and every packet would go through a table of functions. The
//! traits have no way down to the type (no `Any`), and `Secrets`, from which the keys could
//! be derived once more, shows nothing of itself.
//!
//! So a key of ours answers one call that no packet makes, and this module is both ends of
//! that call: `ask_*` makes it, `answer_*` is what the key's decryption does about it.
//!
//! | key | the call | why no packet makes it |
//! |---|---|---|
//! | packet key | `decrypt_in_place_for_path` with [`NO_PACKET`] | it is for multipath packets, which this crate does not open, and no packet has that number |
//! | header key | `decrypt_in_place` with an empty sample and a buffer of [`Material`]'s size | a sample has 16 bytes, a packet number at most 4 |
//!
//! The answer is what the key is made of, in the buffer of the call. Only who holds the key
//! can ask, and the buffer is wiped when it has been read. A key of another make, from TLS
//! settings that neither `ClientCrypto` nor `ServerCrypto` made, answers with an error: then
//! the handshake ends with `INTERNAL_ERROR` (`update::foreign_keys`).

use aws_lc_rs::aead::NONCE_LEN;
use rustls::quic;
use zeroize::Zeroizing;

use super::material::{MAX_KEY, Material};
use super::suite::Suite;

/// No packet has this number (RFC 9000 §12.3).
pub(super) const NO_PACKET: u64 = u64::MAX;

/// No packet's sample is empty.
pub(super) const NO_SAMPLE: &[u8] = &[];

/// Bytes of an answered [`Material`]: the suite, then the key, filled up with zeros.
pub(super) const MATERIAL_LEN: usize = 1 + MAX_KEY;

/// Bytes of an answered packet key: the material, then the IV.
pub(super) const PACKET_KEY_LEN: usize = MATERIAL_LEN + NONCE_LEN;

/// What a packet key of ours is made of; `None` if it is of another make.
pub(super) fn ask_packet_key(key: &dyn quic::PacketKey) -> Option<(Material, [u8; NONCE_LEN])> {
    let mut answer = Zeroizing::new([0; PACKET_KEY_LEN]);
    key.decrypt_in_place_for_path(u32::MAX, NO_PACKET, &[], &mut *answer)
        .ok()?;
    let (material, iv) = answer.split_first_chunk()?;
    Some((read(material)?, *iv.first_chunk()?))
}

/// What a packet key does about `decrypt_in_place_for_path`.
pub(super) fn answer_packet_key<'a>(
    packet_number: u64,
    buffer: &'a mut [u8],
    material: &Material,
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

/// What a header protection key of ours is made of; `None` if it is of another make.
pub(super) fn ask_header_key(key: &dyn quic::HeaderProtectionKey) -> Option<Material> {
    let mut answer = Zeroizing::new([0; MATERIAL_LEN]);
    key.decrypt_in_place(NO_SAMPLE, &mut 0, &mut *answer).ok()?;
    read(&answer)
}

/// What a header protection key does about a `buffer` that is longer than any packet
/// number; false if nobody asked and the number is too long.
#[cold]
pub(super) fn answer_header_key(sample: &[u8], buffer: &mut [u8], material: &Material) -> bool {
    match buffer.try_into() {
        Ok(place) if sample == NO_SAMPLE => {
            write(material, place);
            true
        }
        Ok(_) | Err(_) => false,
    }
}

fn write(material: &Material, out: &mut [u8; MATERIAL_LEN]) {
    let [suite, key @ ..] = out;
    *suite = material.suite() as u8;
    *key = *material.padded_key();
}

/// What [`write`] wrote; `None` if it was nothing that it could have written.
fn read(written: &[u8; MATERIAL_LEN]) -> Option<Material> {
    let [suite, key @ ..] = written;
    let suite = *Suite::ALL.get(usize::from(*suite))?;
    Some(Material::new(suite, key.get(..suite.key_len())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_material_round_trips() {
        for suite in Suite::ALL {
            let key: Vec<u8> = (1..=suite.key_len() as u8).collect();
            let mut written = [0xff; MATERIAL_LEN];
            write(&Material::new(suite, &key), &mut written);
            let read = read(&written).unwrap();
            assert_eq!((read.suite(), read.key()), (suite, &key[..]));
        }
    }

    #[test]
    fn key_material_of_unknown_suite_is_rejected() {
        assert!(read(&[Suite::ALL.len() as u8; MATERIAL_LEN]).is_none());
    }
}
