//! Items by ascending number: bounded memory, constant-time access.
//!
//! A ring buffer indexed by number has a slot for every number between the oldest and the
//! newest item, so one packet that stays keeps all slots after it allocated. A tree costs a
//! search and a node per packet. Here 64 numbers share a chunk of slots, only chunks with
//! items exist, and a chunk's position is guessed from either end: the guess is right while
//! the numbers are dense; where chunks are missing, a binary search follows.

use core::ops::RangeInclusive;
use std::collections::VecDeque;

/// Numbers per chunk: one bit each in a word.
const SLOTS: u64 = 64;

/// Empty chunks kept for reuse, so that a steady state allocates nothing.
const SPARES: usize = 4;

#[derive(Debug)]
struct Chunk<T> {
    /// number / [`SLOTS`].
    key: u64,
    /// Which slots are taken.
    live: u64,
    /// Grows to [`SLOTS`] as numbers are used, so that few numbers take little memory.
    slots: Vec<Option<T>>,
}

/// Items by ascending number.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    /// Ascending keys. Only the last chunk may be empty.
    chunks: VecDeque<Chunk<T>>,
    spare: Vec<Vec<Option<T>>>,
    len: usize,
}

fn split(number: u64) -> (u64, usize) {
    (number / SLOTS, (number % SLOTS) as usize)
}

/// Returns a word with the bits from `low` to `high` set, both included.
fn bits(low: usize, high: usize) -> u64 {
    (u64::MAX << low) & (u64::MAX >> (SLOTS as usize - 1 - high))
}

impl<T> Ledger<T> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            spare: Vec::new(),
            len: 0,
        }
    }

    /// Returns the number of items.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an item; `number` is greater than every number added before.
    pub(crate) fn push(&mut self, number: u64, item: T) {
        let (key, slot) = split(number);
        if self.chunks.back().is_none_or(|last| last.key < key) {
            self.open(key);
        }
        let Some(chunk) = self.chunks.back_mut() else {
            return;
        };
        debug_assert!(
            chunk.key == key && chunk.slots.len() <= slot,
            "numbers ascend"
        );
        while chunk.slots.len() < slot {
            chunk.slots.push(None);
        }
        chunk.slots.push(Some(item));
        chunk.live |= 1 << slot;
        self.len += 1;
    }

    fn open(&mut self, key: u64) {
        if self.chunks.back().is_some_and(|last| last.live == 0) {
            self.retire(self.chunks.len() - 1);
        }
        self.chunks.push_back(Chunk {
            key,
            live: 0,
            slots: self.spare.pop().unwrap_or_default(),
        });
    }

    fn retire(&mut self, position: usize) {
        if let Some(mut chunk) = self.chunks.remove(position)
            && self.spare.len() < SPARES
        {
            chunk.slots.clear();
            self.spare.push(chunk.slots);
        }
    }

    /// Returns the position of a chunk, or the position at which it would be inserted.
    fn locate(&self, key: u64) -> Result<usize, usize> {
        let (Some(first), Some(last)) = (self.chunks.front(), self.chunks.back()) else {
            return Err(0);
        };
        if key < first.key {
            return Err(0);
        }
        if key > last.key {
            return Err(self.chunks.len());
        }
        let is_at = |position: &usize| self.chunks.get(*position).is_some_and(|c| c.key == key);
        let from_front = usize::try_from(key - first.key).ok();
        let from_back = usize::try_from(last.key - key)
            .ok()
            .and_then(|back| (self.chunks.len() - 1).checked_sub(back));
        from_back
            .filter(is_at)
            .or_else(|| from_front.filter(is_at))
            .map_or_else(|| self.chunks.binary_search_by_key(&key, |c| c.key), Ok)
    }

    /// Returns the item with this number.
    #[cfg(test)]
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let (key, slot) = split(number);
        let position = self.locate(key).ok()?;
        self.chunks[position].slots.get(slot)?.as_ref()
    }

    /// Removes and returns the item with this number.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let (key, slot) = split(number);
        let position = self.locate(key).ok()?;
        let chunk = &mut self.chunks[position];
        let item = chunk.slots.get_mut(slot)?.take()?;
        chunk.live &= !(1 << slot);
        self.len -= 1;
        // The last chunk is kept, because the next number goes into it.
        if chunk.live == 0 && position + 1 < self.chunks.len() {
            self.retire(position);
        }
        Some(item)
    }

    /// Removes the items of a range in ascending order and passes them to `take`. The cost
    /// depends on the items and the chunks that hold any, not on the width of the range.
    pub(crate) fn remove_range(
        &mut self,
        range: RangeInclusive<u64>,
        mut take: impl FnMut(u64, T),
    ) {
        let (low_key, low_slot) = split(*range.start());
        let (high_key, high_slot) = split(*range.end());
        let mut position = match self.locate(low_key) {
            Ok(position) | Err(position) => position,
        };
        while let Some(chunk) = self.chunks.get_mut(position) {
            if chunk.key > high_key {
                return;
            }
            let low = if chunk.key == low_key { low_slot } else { 0 };
            let high = if chunk.key == high_key {
                high_slot
            } else {
                SLOTS as usize - 1
            };
            if low > high {
                return;
            }
            let mut hits = chunk.live & bits(low, high);
            chunk.live &= !hits;
            while hits != 0 {
                let slot = hits.trailing_zeros() as usize;
                hits &= hits - 1;
                if let Some(item) = chunk.slots.get_mut(slot).and_then(Option::take) {
                    self.len -= 1;
                    take(chunk.key * SLOTS + slot as u64, item);
                }
            }
            if chunk.live == 0 && position + 1 < self.chunks.len() {
                self.retire(position);
            } else {
                position += 1;
            }
        }
    }

    /// Returns the first item whose number is at least `number`.
    pub(crate) fn first_from(&self, number: u64) -> Option<(u64, &T)> {
        let (key, slot) = split(number);
        let mut position = match self.locate(key) {
            Ok(position) | Err(position) => position,
        };
        while let Some(chunk) = self.chunks.get(position) {
            let from = if chunk.key == key { slot } else { 0 };
            let live = chunk.live & bits(from, SLOTS as usize - 1);
            if live != 0 {
                let slot = live.trailing_zeros() as usize;
                let item = chunk.slots.get(slot)?.as_ref()?;
                return Some((chunk.key * SLOTS + slot as u64, item));
            }
            position += 1;
        }
        None
    }

    /// Returns all items, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.chunks.iter().flat_map(|chunk| {
            (0..)
                .zip(&chunk.slots)
                .filter_map(|(slot, item)| Some((chunk.key * SLOTS + slot, item.as_ref()?)))
        })
    }

    /// Releases the memory that is held for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.spare = Vec::new();
        if self.len == 0 {
            self.chunks = VecDeque::new();
        }
    }

    /// Returns the number of slots allocated, taken or not.
    fn slots(&self) -> usize {
        let chunks = self.chunks.iter().map(|chunk| chunk.slots.capacity());
        let spare = self.spare.iter().map(Vec::capacity);
        chunks.chain(spare).sum()
    }

    /// Returns the bytes allocated. Visits every chunk, not every item.
    pub(crate) fn memory(&self) -> usize {
        self.slots() * size_of::<Option<T>>()
            + self.chunks.capacity() * size_of::<Chunk<T>>()
            + self.spare.capacity() * size_of::<Vec<Option<T>>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn memory_stays_small_with_one_packet_retained_over_a_million_numbers() {
        let mut ledger = Ledger::new();
        ledger.push(0, 0_u64);
        for number in 1..1_000_000 {
            ledger.push(number, number);
            if number > 200 {
                assert_eq!(ledger.remove(number - 200), Some(number - 200));
            }
            assert!(ledger.chunks.len() <= 6, "chunks at {number}");
        }
        assert!(ledger.slots() <= 64 * (6 + SPARES));
        assert_eq!(ledger.get(0), Some(&0));
        assert_eq!(ledger.len(), 201);
        // The gap costs no steps: the successor of 0 is found at once.
        assert_eq!(ledger.first_from(1), Some((999_800, &999_800)));
    }

    #[test]
    fn short_ledger_allocates_few_slots() {
        let mut ledger = Ledger::new();
        for number in 0..3 {
            ledger.push(number, number);
        }
        assert!(ledger.slots() <= 4, "{}", ledger.slots());
    }

    #[test]
    fn steady_state_reuses_chunks() {
        let mut ledger = Ledger::new();
        for number in 0..10_000_u64 {
            ledger.push(number, number);
            if number >= 300 {
                ledger.remove(number - 300);
            }
        }
        let slots = ledger.slots();
        for number in 10_000..100_000_u64 {
            ledger.push(number, number);
            ledger.remove(number - 300);
        }
        assert!(ledger.slots() <= slots + 64);
    }

    #[test]
    fn released_memory_is_freed_and_ledger_stays_usable() {
        let mut ledger = Ledger::new();
        for number in 0..1000_u64 {
            ledger.push(number, number);
        }
        ledger.remove_range(0..=999, |_, _| {});
        ledger.release_memory();
        assert_eq!(ledger.slots(), 0);
        ledger.push(1000, 1000);
        assert_eq!(ledger.get(1000), Some(&1000));
    }

    #[test]
    fn removing_a_wide_range_visits_only_its_items() {
        let mut ledger = Ledger::new();
        ledger.push(5, 'a');
        ledger.push(1 << 60, 'b');
        let mut taken = Vec::new();
        ledger.remove_range(0..=u64::MAX >> 2, |number, item| taken.push((number, item)));
        assert_eq!(taken, [(5, 'a'), (1 << 60, 'b')]);
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn four_empty_chunks_are_kept_for_reuse() {
        let mut ledger = Ledger::new();
        for number in 0..20 * SLOTS {
            ledger.push(number, ());
        }
        ledger.remove_range(0..=20 * SLOTS, |_, ()| {});
        assert_eq!(ledger.spare.len(), SPARES);
    }

    /// The next number goes into it: with one packet at a time a chunk is filled before
    /// another is needed.
    #[test]
    fn last_chunk_is_kept_when_its_last_item_is_removed() {
        let mut ledger = Ledger::new();
        ledger.push(0, ());
        ledger.remove(0);
        assert_eq!((ledger.len(), ledger.chunks.len()), (0, 1));
        ledger.push(1, ());
        ledger.remove_range(0..=1, |_, ()| {});
        assert_eq!((ledger.len(), ledger.chunks.len()), (0, 1));
        assert_eq!(ledger.spare.len(), 0);
    }

    #[test]
    fn memory_counts_chunks_and_slots() {
        let mut ledger = Ledger::new();
        assert_eq!(ledger.memory(), 0);
        for number in 0..64 * SLOTS {
            ledger.push(number, ());
        }
        // An absent or present `()` takes a byte.
        let least = 64 * (64 + size_of::<Chunk<()>>());
        let memory = ledger.memory();
        assert!((least..=2 * least).contains(&memory), "{memory} of {least}");
    }

    #[test]
    fn release_frees_spare_chunks() {
        let mut ledger = Ledger::new();
        for number in 0..20 * SLOTS {
            ledger.push(number, ());
        }
        ledger.remove_range(0..=19 * SLOTS, |_, ()| {});
        let before = ledger.memory();
        ledger.release_memory();
        let spares = SPARES * (64 + size_of::<Vec<Option<()>>>());
        assert_eq!(before - ledger.memory(), spares);
    }

    #[test]
    fn release_of_empty_ledger_frees_everything() {
        let mut ledger = Ledger::new();
        ledger.push(7, 'a');
        ledger.remove(7);
        ledger.release_memory();
        assert_eq!(ledger.memory(), 0);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push { skip: u64 },
        Remove(u64),
        RemoveRange(u64, u64),
        Find(u64),
        Release,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0_u64..3).prop_map(|skip| Op::Push { skip }),
            1 => (60_u64..200).prop_map(|skip| Op::Push { skip }),
            3 => (0_u64..2000).prop_map(Op::Remove),
            2 => (0_u64..2000, 0_u64..150).prop_map(|(low, width)| Op::RemoveRange(low, low + width)),
            2 => (0_u64..2000).prop_map(Op::Find),
            1 => Just(Op::Release),
        ]
    }

    proptest! {
        #[test]
        fn ledger_behaves_like_a_map(ops in prop::collection::vec(op(), 1..400)) {
            let mut ledger = Ledger::new();
            let mut model = BTreeMap::new();
            let mut next = 0_u64;
            for op in ops {
                match op {
                    Op::Push { skip } => {
                        ledger.push(next + skip, next);
                        model.insert(next + skip, next);
                        next += skip + 1;
                    }
                    Op::Remove(number) => {
                        prop_assert_eq!(ledger.remove(number), model.remove(&number));
                    }
                    Op::RemoveRange(low, high) => {
                        let mut taken = Vec::new();
                        ledger.remove_range(low..=high, |number, item| taken.push((number, item)));
                        let expected: Vec<_> = model.range(low..=high).map(|(n, i)| (*n, *i)).collect();
                        model.retain(|number, _| !(low..=high).contains(number));
                        prop_assert_eq!(taken, expected);
                    }
                    Op::Find(number) => {
                        let expected = model.range(number..).next();
                        prop_assert_eq!(ledger.first_from(number), expected.map(|(n, i)| (*n, i)));
                    }
                    Op::Release => {
                        // Numbers keep ascending across a release.
                        ledger.release_memory();
                    }
                }
                prop_assert_eq!(ledger.len(), model.len());
                prop_assert!(ledger.iter().eq(model.iter().map(|(n, i)| (*n, i))));
                let empty = ledger.chunks.iter().rev().skip(1).filter(|c| c.live == 0).count();
                prop_assert_eq!(empty, 0, "only the last chunk may be empty");
            }
        }
    }
}
