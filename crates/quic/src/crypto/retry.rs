//! The Retry integrity tag (RFC 9001 §5.8), which proves that the sender of the Retry has seen
//! the client's Initial.

use std::sync::LazyLock;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use smallvec::SmallVec;
use subtle::ConstantTimeEq;

use super::keys::TAG_LEN;
use crate::cid::ConnectionId;

/// The fixed key of version 1.
const KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
/// The fixed nonce of version 1.
const NONCE: [u8; NONCE_LEN] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];

#[expect(clippy::expect_used, reason = "16 bytes are the key of AES-128")]
static CIPHER: LazyLock<LessSafeKey> = LazyLock::new(|| {
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &KEY).expect("16 bytes for AES-128"))
});

/// Returns the integrity tag of a Retry packet. `packet` is the Retry without its tag, and
/// `original_dcid` the Destination Connection ID of the Initial that it answers.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "sealing nothing beside a datagram is within every limit of the AEAD"
)]
pub fn retry_tag(original_dcid: &ConnectionId, packet: &[u8]) -> [u8; TAG_LEN] {
    let mut pseudo: SmallVec<[u8; 256]> = SmallVec::new();
    pseudo.push(original_dcid.len() as u8);
    pseudo.extend_from_slice(original_dcid);
    pseudo.extend_from_slice(packet);
    let mut tag = [0; TAG_LEN];
    let nonce = Nonce::assume_unique_for_key(NONCE);
    let sealed = CIPHER
        .seal_in_place_separate_tag(nonce, Aad::from(&*pseudo), &mut [])
        .expect("sealing nothing cannot fail");
    tag.copy_from_slice(sealed.as_ref());
    tag
}

/// Returns whether `packet`, a whole Retry with its tag, answers an Initial that was sent to
/// `original_dcid`.
#[must_use]
pub fn retry_is_genuine(original_dcid: &ConnectionId, packet: &[u8]) -> bool {
    let Some((rest, tag)) = packet.split_last_chunk::<TAG_LEN>() else {
        return false;
    };
    retry_tag(original_dcid, rest).ct_eq(tag).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::testing::{appendix_a_dcid, hex};

    /// RFC 9001 §A.4.
    const SAMPLE: &str = "ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba";

    #[test]
    fn retry_of_rfc9001_appendix_a_is_genuine() {
        let packet = hex(SAMPLE);
        let (rest, tag) = packet.split_last_chunk::<TAG_LEN>().unwrap();
        assert_eq!(retry_tag(&appendix_a_dcid(), rest), *tag);
        assert!(retry_is_genuine(&appendix_a_dcid(), &packet));
    }

    #[test]
    fn retry_with_other_dcid_or_changed_byte_is_rejected() {
        let packet = hex(SAMPLE);
        let other = ConnectionId::new(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert!(!retry_is_genuine(&other, &packet));
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert!(!retry_is_genuine(&appendix_a_dcid(), &changed), "byte {at}");
        }
        assert!(!retry_is_genuine(&appendix_a_dcid(), &packet[..15]));
    }
}
