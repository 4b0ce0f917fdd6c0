//! The bytes that a key is made of, kept beside the cipher made of them.
//!
//! A cipher takes some ten times their room, so a connection that rests drops
//! it and makes it again when a packet comes or goes.

use zeroize::Zeroize;

use super::suite::Suite;

/// Longest key of any suite, bytes.
pub(super) const MAX_KEY: usize = 32;

/// A secret key and the suite it is for.
pub(super) struct Material {
    key: [u8; MAX_KEY],
    suite: Suite,
}

impl Material {
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

    /// The key, filled up with zeros.
    pub(super) const fn padded_key(&self) -> &[u8; MAX_KEY] {
        &self.key
    }
}

impl Drop for Material {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}
