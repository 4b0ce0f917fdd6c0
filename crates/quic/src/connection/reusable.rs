//! Memory that is kept for reuse until the connection rests.

use core::ops::{Deref, DerefMut};
use std::sync::OnceLock;

/// A value that is kept for reuse: created when first needed, cheap to move, and freed when
/// the connection rests.
#[derive(Debug)]
pub(crate) struct Reusable<T>(OnceLock<Box<T>>);

impl<T> Default for Reusable<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> Reusable<T> {
    /// Returns the value, if it was created.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get().map(Box::as_ref)
    }
}

impl<T: Default> Deref for Reusable<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.get_or_init(Box::default)
    }
}

impl<T: Default> DerefMut for Reusable<T> {
    #[inline]
    #[expect(clippy::expect_used, reason = "created one line above")]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_init(Box::default);
        self.0.get_mut().expect("created above")
    }
}
