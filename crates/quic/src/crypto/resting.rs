//! A cipher that is made when first needed and can be dropped until the next time.

use std::sync::OnceLock;

use super::material::Material;
use super::suite::Suite;

/// Key material and, while the connection is awake, the cipher made of it.
pub(super) struct Resting<C> {
    cipher: OnceLock<C>,
    material: Material,
}

impl<C> Resting<C> {
    /// Without the cipher.
    pub(super) const fn new(material: Material) -> Self {
        Self {
            cipher: OnceLock::new(),
            material,
        }
    }

    pub(super) const fn material(&self) -> &Material {
        &self.material
    }

    /// The cipher, made by `make` of the suite and the key if it is not there.
    #[inline]
    pub(super) fn awake(&self, make: impl FnOnce(Suite, &[u8]) -> C) -> &C {
        self.cipher.get_or_init(|| self.make(make))
    }

    #[cold]
    fn make(&self, make: impl FnOnce(Suite, &[u8]) -> C) -> C {
        make(self.material.suite(), self.material.key())
    }

    /// Gives back the cipher's memory until it is needed again.
    pub(super) fn rest(&mut self) {
        self.cipher = OnceLock::new();
    }

    /// Whether the cipher is there.
    #[cfg(test)]
    pub(super) fn is_awake(&self) -> bool {
        self.cipher.get().is_some()
    }
}
