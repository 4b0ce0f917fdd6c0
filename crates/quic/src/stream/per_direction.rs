//! Values for each directionality.

use core::ops::{Index, IndexMut};

use super::Directionality;

/// Two values, indexed by [`Directionality`].
#[derive(Debug, Default)]
pub(super) struct PerDirection<T>([T; 2]);

impl<T> PerDirection<T> {
    pub(super) const fn new(bidirectional: T, unidirectional: T) -> Self {
        Self([bidirectional, unidirectional])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

impl<T> Index<Directionality> for PerDirection<T> {
    type Output = T;

    #[inline]
    fn index(&self, directionality: Directionality) -> &T {
        let [bidirectional, unidirectional] = &self.0;
        match directionality {
            Directionality::Bidirectional => bidirectional,
            Directionality::Unidirectional => unidirectional,
        }
    }
}

impl<T> IndexMut<Directionality> for PerDirection<T> {
    #[inline]
    fn index_mut(&mut self, directionality: Directionality) -> &mut T {
        let [bidirectional, unidirectional] = &mut self.0;
        match directionality {
            Directionality::Bidirectional => bidirectional,
            Directionality::Unidirectional => unidirectional,
        }
    }
}
