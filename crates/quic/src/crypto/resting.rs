//! A cipher that is made when first needed and can be dropped until the next time.

use std::sync::OnceLock;

use super::material::Material;
use super::suite::Suite;

/// The place of a cipher beside the material that it is made of. Not around it:
/// the key's other parts then fill what the material leaves of a word.
pub(super) struct Resting<C>(OnceLock<C>);

impl<C> Resting<C> {
    /// Without the cipher.
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The cipher, made of the suite and the key if it is not there.
    #[inline]
    pub(super) fn awake(&self, of: &Material, make: impl FnOnce(Suite, &[u8]) -> C) -> &C {
        self.0.get_or_init(|| wake(of, make))
    }

    /// Gives back the cipher's memory until it is needed again.
    pub(super) fn rest(&mut self) {
        self.0 = OnceLock::new();
    }

    /// Whether the cipher is there.
    #[cfg(test)]
    pub(super) fn is_awake(&self) -> bool {
        self.0.get().is_some()
    }
}

#[cold]
fn wake<C>(material: &Material, make: impl FnOnce(Suite, &[u8]) -> C) -> C {
    make(material.suite(), material.key())
}
