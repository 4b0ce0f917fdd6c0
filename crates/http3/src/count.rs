//! Counters that saturate instead of wrapping or panicking. 64 bits never get that far.

/// A saturating counter.
pub(crate) trait Count {
    /// Adds `more`.
    fn count(&mut self, more: u64);

    /// Adds one.
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
