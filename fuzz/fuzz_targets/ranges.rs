//! `RangeSet` compared with a set of numbers.
#![no_main]

use std::collections::BTreeSet;

use clearway_quic::testing::RangeSet;
use libfuzzer_sys::fuzz_target;

#[derive(arbitrary::Arbitrary, Debug)]
enum Step {
    Insert(u8),
    InsertRange(u8, u8),
    Subtract(u8, u8),
    RemoveBelow(u8),
}

fuzz_target!(|steps: Vec<Step>| {
    let mut set = RangeSet::unbounded();
    let mut bounded = RangeSet::new(4);
    let mut model = BTreeSet::new();
    for step in steps {
        match step {
            Step::Insert(n) => {
                let n = u64::from(n);
                let fresh = bounded.insert(n);
                assert!(bounded.is_seen(n), "{n} was {fresh}");
                if set.insert(n) != model.insert(n) {
                    assert!(n < floor(&set), "insert {n}");
                    model.remove(&n);
                }
            }
            Step::InsertRange(a, b) => {
                let (a, b) = (u64::from(a.min(b)), u64::from(a.max(b)));
                bounded.insert_range(a..=b);
                let before = model.len() as u64;
                model.extend((a..=b).filter(|&n| n >= floor(&set)));
                let added = set.insert_range(a..=b);
                assert_eq!(added, model.len() as u64 - before);
            }
            Step::Subtract(a, b) => {
                let (a, b) = (u64::from(a.min(b)), u64::from(a.max(b)));
                let before = model.len() as u64;
                model.retain(|n| !(a..=b).contains(n));
                assert_eq!(set.subtract(a..=b), before - model.len() as u64);
            }
            Step::RemoveBelow(n) => {
                set.remove_below(u64::from(n));
                model.retain(|&kept| kept >= u64::from(n));
            }
        }
        assert!(bounded.len() <= 4);
        assert!(set.iter().flatten().eq(model.iter().copied()));
        assert_eq!(set.min(), model.first().copied());
        assert_eq!(set.max(), model.last().copied());
        let ranges: Vec<_> = set.iter().collect();
        for pair in ranges.windows(2) {
            assert!(pair[0].end() + 1 < *pair[1].start(), "ranges touch");
        }
    }
});

/// Returns the number below which everything counts as seen, and is not inserted again.
fn floor(set: &RangeSet) -> u64 {
    (0..=256)
        .find(|&n| !set.is_seen(n) || set.contains(n))
        .unwrap_or(257)
}
