//! Sets of stream offsets as sorted, disjoint, non-adjacent spans.

use std::collections::VecDeque;

/// The offsets `start..end`. Unlike [`core::ops::Range`] it is `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    pub(super) const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    pub(super) const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// A set of offsets. Most streams never need one, so it allocates only when it is not empty.
#[derive(Debug, Default)]
pub(super) struct RangeSet(Option<Box<Spans>>);

impl RangeSet {
    /// Returns the number of spans, which is what the set costs.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |set| set.spans.len())
    }

    /// Returns how many bytes the spans hold together.
    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |set| set.bytes)
    }

    pub(super) fn first(&self) -> Option<Span> {
        self.0.as_ref()?.spans.front().copied()
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let set = self.0.as_deref();
        set.map_or(0, |set| {
            size_of_val(set).saturating_add(crate::memory::vec_deque(&set.spans))
        })
    }

    /// Gives back room without spans.
    pub(super) fn release_memory(&mut self) {
        self.0.take_if(|set| set.spans.is_empty());
        if let Some(set) = &mut self.0 {
            set.spans.shrink_to_fit();
        }
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Adds a span, merging all it touches.
    pub(super) fn insert(&mut self, span: Span) {
        if !span.is_empty() {
            self.0.get_or_insert_default().insert(span);
        }
    }

    /// Takes a span out, splitting what it cuts.
    pub(super) fn remove(&mut self, span: Span) {
        if let Some(set) = &mut self.0
            && !span.is_empty()
        {
            set.remove(span);
        }
    }

    /// Takes out the first span if it starts at or before `offset`, answering its end.
    pub(super) fn absorb(&mut self, offset: u64) -> Option<u64> {
        self.0.as_mut()?.absorb(offset)
    }

    /// Calls `gap` for each part of `span` that is not in the set, in order.
    pub(super) fn for_each_gap(&self, span: Span, mut gap: impl FnMut(Span)) {
        match &self.0 {
            Some(set) => set.for_each_gap(span, gap),
            None if span.is_empty() => {}
            None => gap(span),
        }
    }

    /// Spans shifted by changes in the middle: the cost that is not constant.
    #[cfg(test)]
    pub(super) fn shifted(&self) -> usize {
        self.0.as_ref().map_or(0, |set| set.shifted)
    }
}

/// What is in a set. Both ends are cheap, which is where streams grow and shrink.
#[derive(Debug, Default)]
struct Spans {
    spans: VecDeque<Span>,
    /// Bytes in all spans.
    bytes: u64,
    #[cfg(test)]
    shifted: usize,
}

impl Spans {
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "indices of spans that are there, and offsets below 2^62"
    )]
    fn insert(&mut self, span: Span) {
        let from = self.spans.partition_point(|s| s.end < span.start);
        let to = from + self.touching(from, span.end);
        self.count_shift(from);
        let (mut merged, mut before) = (span, 0);
        for held in self.spans.range(from..to) {
            merged.start = merged.start.min(held.start);
            merged.end = merged.end.max(held.end);
            before += held.len();
        }
        self.bytes += merged.len() - before;
        match self.spans.get_mut(from) {
            Some(first) if from < to => {
                *first = merged;
                self.spans.drain(from + 1..to);
            }
            Some(_) | None => self.spans.insert(from, merged),
        }
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "indices of spans that are there, and offsets below 2^62"
    )]
    fn remove(&mut self, span: Span) {
        let from = self.spans.partition_point(|s| s.end <= span.start);
        let within = self.spans.range(from..);
        let within = within.take_while(|s| s.start < span.end);
        let cut: u64 = within
            .map(|s| Span::new(s.start.max(span.start), s.end.min(span.end)).len())
            .sum();
        self.bytes -= cut;
        let Some(first) = self.spans.get_mut(from) else {
            return;
        };
        let cut_in_two = first.start < span.start;
        if cut_in_two {
            let end = core::mem::replace(&mut first.end, span.start);
            if end > span.end {
                self.spans.insert(from + 1, Span::new(span.end, end));
                return;
            }
        }
        self.count_shift(from);
        let from = from + usize::from(cut_in_two);
        let to = from
            + self
                .spans
                .range(from..)
                .take_while(|s| s.end <= span.end)
                .count();
        self.spans.drain(from..to);
        if let Some(next) = self.spans.get_mut(from) {
            next.start = next.start.max(span.end);
        }
    }

    /// A ring shifts the shorter side.
    fn count_shift(&mut self, at: usize) {
        #[cfg(test)]
        {
            self.shifted += at.min(self.spans.len().saturating_sub(at));
        }
        #[cfg(not(test))]
        let _ = at;
    }

    fn absorb(&mut self, offset: u64) -> Option<u64> {
        let first = *self.spans.front()?;
        if first.start > offset {
            return None;
        }
        self.spans.pop_front();
        self.bytes = self.bytes.saturating_sub(first.len());
        Some(first.end.max(offset))
    }

    fn for_each_gap(&self, span: Span, mut gap: impl FnMut(Span)) {
        let mut at = span.start;
        let from = self.spans.partition_point(|s| s.end <= span.start);
        for held in self.spans.range(from..) {
            if held.start >= span.end {
                break;
            }
            if at < held.start {
                gap(Span::new(at, held.start));
            }
            at = held.end;
        }
        if at < span.end {
            gap(Span::new(at, span.end));
        }
    }

    /// Spans from index `from` on that start at or before `end`.
    fn touching(&self, from: usize, end: u64) -> usize {
        self.spans
            .range(from..)
            .take_while(|s| s.start <= end)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans(set: &RangeSet) -> Vec<(u64, u64)> {
        let spans = set.0.iter().flat_map(|set| &set.spans);
        spans.map(|s| (s.start, s.end)).collect()
    }

    #[test]
    fn adjacent_ranges_merge_and_removal_splits() {
        let mut set = RangeSet::default();
        set.insert(Span::new(0, 10));
        set.insert(Span::new(20, 30));
        assert_eq!(spans(&set), [(0, 10), (20, 30)]);
        set.insert(Span::new(10, 20));
        assert_eq!(spans(&set), [(0, 30)]);
        set.remove(Span::new(5, 7));
        assert_eq!(spans(&set), [(0, 5), (7, 30)]);
        assert_eq!(set.absorb(0), Some(5));
        assert_eq!(set.absorb(5), None);
    }

    proptest! {
        /// The set agrees with a plain array of booleans after any history.
        #[test]
        fn range_set_agrees_with_bitmap(ops in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..24), 0..64)) {
            let mut set = RangeSet::default();
            let mut bits = [false; 96];
            for (add, start, len) in ops {
                let span = Span::new(start, start + len);
                if add { set.insert(span) } else { set.remove(span) }
                bits[start as usize..(start + len) as usize].fill(add);
                let mut gaps = [true; 96];
                set.for_each_gap(Span::new(0, 96), |g| {
                    assert!(!g.is_empty());
                    gaps[g.start as usize..g.end as usize].fill(false);
                });
                prop_assert_eq!(gaps, bits);
                let kept = spans(&set);
                prop_assert_eq!(set.bytes(), bits.iter().filter(|&&b| b).count() as u64);
                prop_assert!(kept.windows(2).all(|w| w[0].1 < w[1].0));
            }
        }
    }
}
