//! Saturating counters and sums. Instead of wrapping or panicking they stop at their
//! maximum, which 64 bits do not reach in practice.

/// A counter.
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

/// A sum whose parts change one at a time.
pub(crate) trait RunningTotal {
    /// Replaces a part of the sum, `before`, by `after`.
    fn replace_part(&mut self, before: Self, after: Self);
}

impl RunningTotal for u64 {
    #[inline]
    fn replace_part(&mut self, before: Self, after: Self) {
        debug_assert!(before <= *self, "{before} is larger than {self}");
        *self = self.saturating_sub(before).saturating_add(after);
    }
}

impl RunningTotal for usize {
    #[inline]
    fn replace_part(&mut self, before: Self, after: Self) {
        debug_assert!(before <= *self, "{before} is larger than {self}");
        *self = self.saturating_sub(before).saturating_add(after);
    }
}
