//! Counters and sums. They stop at their top, which 64 bits don't reach, instead of
//! wrapping or panicking.

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

/// A sum of parts that change one at a time.
pub(crate) trait RunningTotal {
    /// One part, which was `before` in the sum, is `after` now.
    fn replace_part(&mut self, before: Self, after: Self);
}

impl RunningTotal for u64 {
    #[inline]
    fn replace_part(&mut self, before: Self, after: Self) {
        debug_assert!(before <= *self, "{before} is no part of {self}");
        *self = self.saturating_sub(before).saturating_add(after);
    }
}

impl RunningTotal for usize {
    #[inline]
    fn replace_part(&mut self, before: Self, after: Self) {
        debug_assert!(before <= *self, "{before} is no part of {self}");
        *self = self.saturating_sub(before).saturating_add(after);
    }
}
