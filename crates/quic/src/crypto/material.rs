//! The bytes that a key is made of, kept beside the cipher made of them.
//!
//! A cipher takes some ten times their room, so a connection that rests drops
//! it and makes it again when a packet comes or goes.
//!
//! rustls hands a key on behind a trait that does not tell what is behind it.
//! A key of ours can be asked all the same, by a call that is an error to every
//! other key and has no other meaning to ours: it [writes](Material::write) what
//! it is made of into the buffer of the call.

use zeroize::Zeroize;

use super::suite::Suite;

/// Longest key of any suite, bytes.
const MAX_KEY: usize = 32;

/// A secret key and the suite it is for.
pub(super) struct Material {
    key: [u8; MAX_KEY],
    suite: Suite,
}

impl Material {
    /// Bytes that [`write`](Self::write) takes.
    pub(super) const LEN: usize = MAX_KEY + 1;

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

    /// The way out of a trait object; [`read`](Self::read) takes it back.
    pub(super) fn write(&self, out: &mut [u8; Self::LEN]) {
        let [suite, key @ ..] = out;
        *suite = self.suite as u8;
        *key = self.key;
    }

    /// What [`write`](Self::write) wrote, which is wiped here; `None` if it was
    /// nothing that it could have written.
    pub(super) fn read(written: &mut [u8; Self::LEN]) -> Option<Self> {
        let [suite, key @ ..] = &*written;
        let suite = *Suite::ALL.get(usize::from(*suite))?;
        let material = Self::new(suite, key.get(..suite.key_len())?);
        written.zeroize();
        Some(material)
    }
}

impl Drop for Material {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_wiped() {
        for suite in Suite::ALL {
            let key: Vec<u8> = (1..=suite.key_len() as u8).collect();
            let mut written = [0xff; Material::LEN];
            Material::new(suite, &key).write(&mut written);
            let read = Material::read(&mut written).unwrap();
            assert_eq!((read.suite(), read.key()), (suite, &key[..]));
            assert_eq!(written, [0; Material::LEN]);
        }
        assert!(Material::read(&mut [Suite::ALL.len() as u8; Material::LEN]).is_none());
    }
}
