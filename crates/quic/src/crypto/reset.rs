//! Stateless reset tokens derived from one key (RFC 9000 §10.3.2), so that a restarted server
//! can compute them from the connection ID alone.

use aws_lc_rs::{hkdf, hmac};

use crate::cid::ResetToken;

/// Derives the stateless reset tokens of connection IDs.
#[derive(Clone)]
pub struct ResetKey(hmac::Key);

impl ResetKey {
    /// Creates a key from a 32-byte master secret. Servers that may answer for each other's
    /// connections have to share it.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "HKDF refuses more than 255 blocks, and this is one"
    )]
    pub fn new(master: &[u8; 32]) -> Self {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"clearway").extract(master);
        let key = secret
            .expand(&[b"stateless reset"], hmac::HMAC_SHA256)
            .expect("HKDF of one block cannot be too long");
        Self(key.into())
    }

    /// Returns the token for `cid`: HMAC-SHA256, truncated to 16 bytes.
    #[must_use]
    #[expect(clippy::expect_used, reason = "HMAC-SHA256 is 32 bytes long")]
    pub fn token(&self, cid: &[u8]) -> ResetToken {
        let tag = hmac::sign(&self.0, cid);
        ResetToken(*tag.as_ref().first_chunk().expect("32 bytes"))
    }
}

impl core::fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ResetKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_reset_key_makes_same_token_after_restart() {
        let before = ResetKey::new(&[7; 32]).token(&[1, 2, 3, 4]);
        let after = ResetKey::new(&[7; 32]).token(&[1, 2, 3, 4]);
        assert_eq!(before, after);
    }

    #[test]
    fn different_key_or_cid_makes_different_reset_token() {
        let key = ResetKey::new(&[7; 32]);
        assert_ne!(key.token(&[1, 2, 3, 4]), key.token(&[1, 2, 3, 5]));
        assert_ne!(
            key.token(&[1, 2, 3, 4]),
            ResetKey::new(&[8; 32]).token(&[1, 2, 3, 4])
        );
    }
}
