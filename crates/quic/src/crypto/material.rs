//! The bytes of a key, kept beside the cipher that is made from them.
//!
//! A cipher needs about ten times as much memory, so an idle connection drops it and creates it
//! again when a packet is sent or received.

use zeroize::Zeroize;

use super::suite::Suite;

/// Longest key of any suite, bytes.
pub(super) const MAX_KEY: usize = 32;

/// A secret key and the suite it is for.
pub(super) struct KeyMaterial {
    key: [u8; MAX_KEY],
    suite: Suite,
}

impl KeyMaterial {
    /// # Panics
    /// If `key` is not [`Suite::key_len`] bytes long.
    pub(super) fn new(suite: Suite, key: &[u8]) -> Self {
        assert_eq!(key.len(), suite.key_len(), "a key of the suite's length");
        let mut material = Self {
            key: [0; MAX_KEY],
            suite,
        };
        for (place, byte) in material.key.iter_mut().zip(key) {
            *place = *byte;
        }
        material
    }

    pub(super) const fn suite(&self) -> Suite {
        self.suite
    }

    pub(super) fn key(&self) -> &[u8] {
        // No suite's key is longer.
        self.key.get(..self.suite.key_len()).unwrap_or(&self.key)
    }

    /// Returns the key, padded with zeros.
    pub(super) const fn padded_key(&self) -> &[u8; MAX_KEY] {
        &self.key
    }
}

impl Drop for KeyMaterial {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}
