//! A cipher that is created when it is first needed and can be dropped until the next use.

use std::sync::OnceLock;

use super::material::KeyMaterial;
use super::suite::Suite;

/// Holds a cipher beside the material that it is made from. It does not contain the material,
/// so that the other fields of a key can fill the padding.
pub(super) struct LazyCipher<C>(OnceLock<C>);

impl<C> LazyCipher<C> {
    /// Creates the holder without a cipher.
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns the cipher; calls `make` with suite and key if it does not exist.
    #[inline]
    pub(super) fn get_or_make(&self, of: &KeyMaterial, make: impl FnOnce(Suite, &[u8]) -> C) -> &C {
        self.0.get_or_init(|| create(of, make))
    }

    /// Frees the cipher until it is needed again.
    pub(super) fn release(&mut self) {
        self.0 = OnceLock::new();
    }

    /// Returns whether the cipher exists.
    #[cfg(test)]
    pub(super) fn is_made(&self) -> bool {
        self.0.get().is_some()
    }
}

#[cold]
fn create<C>(material: &KeyMaterial, make: impl FnOnce(Suite, &[u8]) -> C) -> C {
    make(material.suite(), material.key())
}
