//! Counters. They stop at their top, which 64 bits don't reach, instead of wrapping or
//! panicking.

/// A counter.
pub(crate) trait Count {
    /// Counts `more`.
    fn count(&mut self, more: u64);

    /// Counts one.
    #[inline]
    fn count_one(&mut self) {
        self.count(1);
    }
}

impl Count for u64 {
    #[inline]
    fn count(&mut self, more: u64) {
        *self = self.saturating_add(more);
    }
}
