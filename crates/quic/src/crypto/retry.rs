//! The Retry integrity tag (RFC 9001 §5.8), which proves that the sender of the Retry has seen
//! the client's Initial.

use std::sync::LazyLock;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use smallvec::SmallVec;
use subtle::ConstantTimeEq;

use super::keys::TAG_LEN;
use crate::cid::ConnectionId;
use crate::wire::Version;

static V1_CIPHER: LazyLock<LessSafeKey> = LazyLock::new(|| cipher(Version::V1));
static V2_CIPHER: LazyLock<LessSafeKey> = LazyLock::new(|| cipher(Version::V2));

#[expect(clippy::expect_used, reason = "16 bytes are the key of AES-128")]
fn cipher(version: Version) -> LessSafeKey {
    let key = &version.of_connection().retry_key;
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).expect("16 bytes for AES-128"))
}

/// Returns the version in the long header of `packet`; version 1 if it is cut off or has an
/// unsupported one, which no Retry that is sent or accepted has.
fn version_of(packet: &[u8]) -> Version {
    let version = packet.get(1..).and_then(|rest| rest.first_chunk());
    let version = version.map_or(Version::V1, |bytes| Version(u32::from_be_bytes(*bytes)));
    if version == Version::V2 {
        Version::V2
    } else {
        Version::V1
    }
}

/// Returns the integrity tag of a Retry packet, with the key of the version in its header.
/// `packet` is the Retry without its tag, and `original_dcid` the Destination Connection ID of
/// the Initial that it answers.
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
    let version = version_of(packet);
    let nonce = Nonce::assume_unique_for_key(version.of_connection().retry_nonce);
    let cipher = if version == Version::V2 {
        &V2_CIPHER
    } else {
        &V1_CIPHER
    };
    let sealed = cipher
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
    const V2_SAMPLE: &str =
        "cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6";

    #[test]
    fn retry_of_rfc9001_appendix_a_is_genuine() {
        let packet = hex(SAMPLE);
        let (rest, tag) = packet.split_last_chunk::<TAG_LEN>().unwrap();
        assert_eq!(retry_tag(&appendix_a_dcid(), rest), *tag);
        assert!(retry_is_genuine(&appendix_a_dcid(), &packet));
    }

    /// RFC 9369 §A.4.
    #[test]
    fn retry_of_rfc9369_appendix_a_is_genuine() {
        let packet = hex(V2_SAMPLE);
        let (rest, tag) = packet.split_last_chunk::<TAG_LEN>().unwrap();
        assert_eq!(retry_tag(&appendix_a_dcid(), rest), *tag);
        assert!(retry_is_genuine(&appendix_a_dcid(), &packet));
    }

    #[test]
    fn retry_with_tag_of_other_version_is_rejected() {
        let mut packet = hex(SAMPLE);
        packet[1..5].copy_from_slice(&Version::V2.0.to_be_bytes());
        assert!(!retry_is_genuine(&appendix_a_dcid(), &packet));
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
