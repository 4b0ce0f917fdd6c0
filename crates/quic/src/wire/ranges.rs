//! Sets of numbers stored as ranges, for received packet numbers and acknowledged data.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};

use super::cursor::VARINT_MAX;

/// A range of consecutive numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    start: u64,
    end: u64,
}

impl Interval {
    const fn len(self) -> u64 {
        self.end.saturating_sub(self.start).saturating_add(1)
    }
}

/// A set of numbers below 2^62, kept as sorted ranges that neither overlap nor
/// touch.
///
/// It holds at most `max_ranges` of them. If there are more, the lowest is dropped, and from then on
/// every number up to its end counts as already seen ([`RangeSet::forgotten_below`]). So a set of
/// received packet numbers still recognises duplicates. A packet that arrives later than that is
/// taken for a duplicate, and its sender retransmits the content.
#[derive(Clone, Debug)]
pub struct RangeSet {
    /// Ascending.
    runs: VecDeque<Interval>,
    max_ranges: usize,
    floor: u64,
}

impl RangeSet {
    /// Returns an empty set that remembers up to `max_ranges` ranges, at least one.
    #[must_use]
    pub fn new(max_ranges: usize) -> Self {
        Self {
            runs: VecDeque::new(),
            max_ranges: max_ranges.max(1),
            floor: 0,
        }
    }

    /// Returns an empty set that forgets nothing: for numbers whose ranges something
    /// else bounds.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    /// Adds a number. Returns false if it was already in the set or lies below
    /// [`forgotten_below`](Self::forgotten_below). Constant time for the highest number.
    #[inline]
    pub fn insert(&mut self, number: u64) -> bool {
        if let Some(top) = self.runs.back_mut()
            && number == top.end.saturating_add(1)
        {
            top.end = number;
            return true;
        }
        self.insert_range(number..=number) != 0
    }

    /// Adds a range and returns how many of its numbers are new. Numbers above 2^62 - 1 are ignored.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "numbers below 2^62, and indices of at most as many ranges"
    )]
    pub fn insert_range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let start = (*range.start()).max(self.floor);
        debug_assert!(*range.end() <= VARINT_MAX);
        let end = (*range.end()).min(VARINT_MAX);
        if start > end {
            return 0;
        }
        let first = self.first_ending_at(start.saturating_sub(1));
        let mut merged = Interval { start, end };
        let mut known = 0;
        let mut last = first;
        while let Some(run) = self.runs.get(last)
            && run.start <= end + 1
        {
            merged.start = merged.start.min(run.start);
            merged.end = merged.end.max(run.end);
            known += run.len();
            last += 1;
        }
        if first == last {
            self.runs.insert(first, merged);
            self.bound();
        } else {
            self.replace(first, merged);
            self.runs.drain(first + 1..last);
        }
        merged.len() - known
    }

    /// Removes a range, whose numbers can be added again, and returns how many numbers were removed.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "parts of a run, which ends below 2^62; no part ends at zero or lies past the last index"
    )]
    pub fn subtract(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (start, end) = range.into_inner();
        let mut at = self.first_ending_at(start);
        let mut gone = 0;
        while let Some(run) = self.runs.get(at).copied()
            && run.start <= end
            && start <= end
        {
            let cut = Interval {
                start: run.start.max(start),
                end: run.end.min(end),
            };
            gone += cut.len();
            let below = (run.start < cut.start).then(|| Interval {
                start: run.start,
                end: cut.start - 1,
            });
            let above = (cut.end < run.end).then(|| Interval {
                start: cut.end + 1,
                end: run.end,
            });
            match (below, above) {
                (None, None) => {
                    self.runs.remove(at);
                }
                (Some(rest), None) | (None, Some(rest)) => {
                    self.replace(at, rest);
                    at += 1;
                }
                (Some(below), Some(above)) => {
                    self.replace(at, below);
                    self.runs.insert(at + 1, above);
                    self.bound();
                    break;
                }
            }
        }
        gone
    }

    /// Drops every number below `floor`; each counts as seen from now on.
    pub fn remove_below(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        while let Some(run) = self.runs.front_mut() {
            if run.end >= floor {
                run.start = run.start.max(floor);
                break;
            }
            self.runs.pop_front();
        }
    }

    /// Returns whether `number` is in the set.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        self.runs
            .get(self.first_ending_at(number))
            .is_some_and(|run| run.start <= number)
    }

    /// Returns whether `number` is in the set or below [`forgotten_below`](Self::forgotten_below), so
    /// that [`RangeSet::insert`] would return false.
    #[must_use]
    pub fn is_seen(&self, number: u64) -> bool {
        number < self.floor || self.contains(number)
    }

    /// Returns the lowest number from `from` on that does not count as [seen](Self::is_seen).
    #[must_use]
    pub fn first_unseen(&self, from: u64) -> u64 {
        let from = from.max(self.floor);
        self.runs
            .get(self.first_ending_at(from))
            .filter(|run| run.start <= from)
            .map_or(from, |run| run.end.saturating_add(1))
    }

    /// Numbers below this are no longer told apart; all count as seen.
    #[cfg(test)]
    #[must_use]
    pub const fn forgotten_below(&self) -> u64 {
        self.floor
    }

    /// Returns the ranges in ascending order; `.rev()` for the order of an ACK frame.
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = RangeInclusive<u64>> + ExactSizeIterator + Clone + '_ {
        self.runs.iter().map(|run| run.start..=run.end)
    }

    /// Returns the indices of the ranges that contain `number` or higher ones.
    #[must_use]
    pub fn indices_from(&self, number: u64) -> Range<usize> {
        self.first_ending_at(number)..self.runs.len()
    }

    /// Returns the ranges at these indices, the highest first. The indices must exist.
    pub fn descending(
        &self,
        indices: Range<usize>,
    ) -> impl Iterator<Item = RangeInclusive<u64>> + Clone + '_ {
        let runs = self.runs.range(indices);
        runs.rev().map(|run| run.start..=run.end)
    }

    /// Returns how many ranges there are.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Frees memory that is kept for reuse.
    pub fn release_memory(&mut self) {
        self.runs.shrink_to_fit();
    }

    /// Returns the allocated memory in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        crate::memory::vec_deque(&self.runs)
    }

    /// Returns the lowest number in the set.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        self.runs.front().map(|run| run.start)
    }

    /// Returns the highest number in the set.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        self.runs.back().map(|run| run.end)
    }

    /// Returns the index of the first range that ends at `number` or above. Checks the highest range
    /// first, because new packets belong there.
    fn first_ending_at(&self, number: u64) -> usize {
        match self.runs.back() {
            None => 0,
            Some(top) if top.end < number => self.runs.len(),
            Some(top) if top.start <= number => self.runs.len().saturating_sub(1),
            Some(_) => self.runs.partition_point(|run| run.end < number),
        }
    }

    /// Changes the run at `at`, which is there.
    fn replace(&mut self, at: usize, run: Interval) {
        debug_assert!(at < self.runs.len());
        if let Some(place) = self.runs.get_mut(at) {
            *place = run;
        }
    }

    fn bound(&mut self) {
        while self.runs.len() > self.max_ranges {
            if let Some(lowest) = self.runs.pop_front() {
                self.floor = self.floor.max(lowest.end.saturating_add(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn consecutive_numbers_form_one_range() {
        let mut set = RangeSet::new(4);
        for number in 0..1000 {
            assert!(set.insert(number));
            assert!(!set.insert(number));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..=999]);
    }

    #[test]
    fn lowest_ranges_are_dropped_and_remain_duplicates() {
        let mut set = RangeSet::new(2);
        for number in [10, 20, 30] {
            assert!(set.insert(number));
        }
        assert_eq!(set.iter().rev().collect::<Vec<_>>(), [30..=30, 20..=20]);
        assert_eq!(set.forgotten_below(), 11);
        for forgotten in [0, 9, 10] {
            assert!(set.is_seen(forgotten) && !set.contains(forgotten));
            assert!(!set.insert(forgotten));
        }
        // Below all others, with no room: new, and forgotten at once.
        assert!(set.insert(12));
        assert_eq!(set.forgotten_below(), 13);
        assert!(!set.insert(12));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64),
        InsertRange(u64, u64),
        Subtract(u64, u64),
        RemoveBelow(u64),
    }

    fn any_op() -> impl Strategy<Value = Op> {
        const TOP: u64 = 60;
        prop_oneof![
            8 => (0..TOP).prop_map(Op::Insert),
            3 => (0..TOP, 0..12_u64).prop_map(|(at, len)| Op::InsertRange(at, at + len)),
            3 => (0..TOP, 0..12_u64).prop_map(|(at, len)| Op::Subtract(at, at + len)),
            1 => (0..TOP).prop_map(Op::RemoveBelow),
        ]
    }

    /// A model: the members, and the floor below which everything is seen.
    #[derive(Default)]
    struct Model {
        members: BTreeSet<u64>,
        floor: u64,
    }

    impl Model {
        fn insert(&mut self, number: u64) -> bool {
            number >= self.floor && self.members.insert(number)
        }

        fn raise(&mut self, floor: u64) {
            self.floor = self.floor.max(floor);
            self.members = self.members.split_off(&self.floor);
        }

        fn ranges(&self) -> Vec<RangeInclusive<u64>> {
            let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
            for &number in &self.members {
                match ranges.last_mut() {
                    Some(last) if *last.end() + 1 == number => *last = *last.start()..=number,
                    _ => ranges.push(number..=number),
                }
            }
            ranges
        }
    }

    proptest! {
        #[test]
        fn range_set_agrees_with_btree_set(ops in vec(any_op(), 1..80), max_ranges in 1_usize..8) {
            let mut set = RangeSet::new(max_ranges);
            let mut model = Model::default();
            for op in ops {
                match op {
                    Op::Insert(number) => {
                        prop_assert_eq!(set.is_seen(number), number < model.floor || model.members.contains(&number));
                        prop_assert_eq!(set.insert(number), model.insert(number));
                    }
                    Op::InsertRange(start, end) => {
                        let new = (start..=end).filter(|&n| model.insert(n)).count() as u64;
                        prop_assert_eq!(set.insert_range(start..=end), new);
                    }
                    Op::Subtract(start, end) => {
                        let gone = (start..=end).filter(|n| model.members.remove(n)).count() as u64;
                        prop_assert_eq!(set.subtract(start..=end), gone);
                    }
                    Op::RemoveBelow(floor) => {
                        set.remove_below(floor);
                        model.raise(floor);
                    }
                }
                while model.ranges().len() > max_ranges {
                    let lowest = model.ranges()[0].clone();
                    model.raise(lowest.end() + 1);
                }
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.ranges());
                prop_assert_eq!(set.forgotten_below(), model.floor);
                prop_assert_eq!(set.len(), model.ranges().len());
                prop_assert_eq!(set.min(), model.members.first().copied());
                prop_assert_eq!(set.max(), model.members.last().copied());
                for number in 0..75 {
                    let unseen = (number..).find(|&n| !set.is_seen(n));
                    prop_assert_eq!(Some(set.first_unseen(number)), unseen);
                }
                for number in 0..75 {
                    prop_assert_eq!(set.contains(number), model.members.contains(&number));
                }
            }
        }
    }
}
