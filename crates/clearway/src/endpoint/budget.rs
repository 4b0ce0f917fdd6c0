//! Memory that the connections of an endpoint share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Least that a connection may buffer each way, bytes, however short memory is: with
/// less, a stream makes no progress worth the packets. 32 KiB.
const LEAST: u8 = 15;

/// From this part of the budget on, connections get no more than a share of what is
/// left.
const TIGHT: Part = Part(1, 2);

/// Below this part they get all they want again. Lower than [`TIGHT`], so that what is
/// near it changes nothing for every packet.
const EASY: Part = Part(3, 8);

/// How far evictions go.
const RELIEVED: Part = Part(15, 16);

struct Part(usize, usize);

impl Part {
    fn of(&self, whole: usize) -> usize {
        (whole.checked_div(self.1).unwrap_or(0)).saturating_mul(self.0)
    }
}

/// The budget of an endpoint, and what is used of it. Shared by its shards and
/// handles.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// An endpoint's memory budget
/// ([`ServerConfig::memory_budget`](crate::ServerConfig::memory_budget)), for what the
/// application itself holds on behalf of clients.
///
/// What is charged counts like what connections hold: windows narrow and connections are
/// closed for it. Bound it on its own as well, since closing connections does not free
/// it by itself. Clones are the same account. The default one belongs to no endpoint.
#[derive(Clone, Debug, Default)]
pub struct MemoryAccount(Arc<Budget>);

/// Memory of the application, counted until this is dropped.
#[derive(Debug)]
pub struct MemoryCharge {
    account: MemoryAccount,
    bytes: usize,
}

impl MemoryAccount {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self(budget.clone())
    }

    /// Counts `bytes` against the budget until the result is dropped. Never fails and
    /// never waits: a budget that is exceeded is the shards' to relieve.
    #[must_use = "what is dropped is not counted any more"]
    pub fn charge(&self, bytes: usize) -> MemoryCharge {
        self.0.change(0, bytes);
        MemoryCharge {
            account: self.clone(),
            bytes,
        }
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.account.0.change(self.bytes, 0);
    }
}

/// How much a connection may buffer each way: as much as its settings say, or at most
/// a power of two of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Share {
    #[default]
    Whole,
    UpTo {
        log2: u8,
    },
}

impl Default for Budget {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl Share {
    /// In bytes; more than any settings say if they decide.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Whole => usize::MAX,
            Self::UpTo { log2 } => 1_usize.checked_shl(log2.into()).unwrap_or(usize::MAX),
        }
    }
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    /// For clients, who choose whom they talk to.
    pub(super) fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Whether somebody set a limit, so that it has to be counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.limit != usize::MAX
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// A connection that held `before` now holds `after` bytes.
    pub(crate) fn change(&self, before: usize, after: usize) {
        match after.checked_sub(before) {
            Some(more) => self.used.fetch_add(more, Ordering::Relaxed),
            None => {
                let less = before.saturating_sub(after);
                self.used.fetch_sub(less, Ordering::Relaxed)
            }
        };
    }

    /// Bytes beyond what evictions leave, once the budget is exceeded; else 0.
    pub(crate) fn excess(&self) -> usize {
        match self.used() {
            used if used > self.limit => used.saturating_sub(RELIEVED.of(self.limit)),
            _ => 0,
        }
    }

    /// Whether so much is used that it has to be known exactly.
    pub(crate) fn is_tight(&self) -> bool {
        self.used() >= TIGHT.of(self.limit)
    }

    /// What each connection may buffer now, given what it might before.
    ///
    /// A quarter of what is free, in powers of two. So a few get much, many get
    /// little, and nobody has to know how many there are: `n` that take all they get
    /// leave `1 / (1 + n/4)` free (Choudhury and Hahne, "Dynamic queue length
    /// thresholds", 1998).
    pub(crate) fn share(&self, before: Share) -> Share {
        let used = self.used();
        let unlimited = match before {
            Share::Whole => used < TIGHT.of(self.limit),
            Share::UpTo { .. } => used < EASY.of(self.limit),
        };
        if unlimited {
            return Share::Whole;
        }
        let quarter = self.limit.saturating_sub(used) / 4;
        // A `usize` has fewer bits than a byte can count.
        let log2 = quarter.checked_ilog2().unwrap_or(0) as u8;
        let log2 = log2.max(LEAST);
        match before {
            // One step up is not worth telling everybody.
            Share::UpTo { log2: before } if log2 == before.saturating_add(1) => {
                Share::UpTo { log2: before }
            }
            Share::UpTo { .. } | Share::Whole => Share::UpTo { log2 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn used(limit: usize, used: usize) -> Budget {
        let budget = Budget::new(limit);
        budget.change(0, used);
        budget
    }

    #[test]
    fn share_shrinks_with_what_is_free_and_has_a_floor() {
        let share = |mib| used(256 * MIB, mib * MIB).share(Share::Whole);
        assert_eq!(share(127), Share::Whole);
        assert_eq!(share(128).bytes(), 32 * MIB);
        assert_eq!(share(192).bytes(), 16 * MIB);
        assert_eq!(share(255).bytes(), 256 << 10);
        assert_eq!(share(256).bytes(), 32 << 10);
        assert_eq!(share(300).bytes(), 32 << 10);
    }

    #[test]
    fn share_grows_only_by_more_than_a_step_and_is_whole_again_well_below() {
        let from = |log2, mib| used(256 * MIB, mib * MIB).share(Share::UpTo { log2 });
        assert_eq!(from(24, 130), Share::UpTo { log2: 24 });
        assert_eq!(from(23, 130), Share::UpTo { log2: 23 });
        assert_eq!(from(22, 130), Share::UpTo { log2: 24 });
        assert_eq!(from(24, 97), Share::UpTo { log2: 24 });
        assert_eq!(from(24, 95), Share::Whole);
        // Down it goes at once.
        assert_eq!(from(24, 225), Share::UpTo { log2: 22 });
    }

    #[test]
    fn many_who_take_all_they_get_stay_within_the_limit() {
        let budget = Budget::new(256 * MIB);
        let mut share = Share::Whole;
        let mut held = vec![0; 1_000];
        for _ in 0..10 {
            for bytes in &mut held {
                share = budget.share(share);
                let wanted = share.bytes().min(48 * MIB);
                if wanted > *bytes {
                    budget.change(*bytes, wanted);
                    *bytes = wanted;
                }
            }
        }
        // What was granted before is not taken back, but nobody gets more.
        assert!(budget.used() <= 256 * MIB + 1_000 * (32 << 10));
    }

    #[test]
    fn excess_is_what_lies_beyond_fifteen_sixteenths_once_over() {
        assert_eq!(used(160, 160).excess(), 0);
        assert_eq!(used(160, 161).excess(), 11);
        assert_eq!(Budget::unlimited().excess(), 0);
    }

    #[test]
    fn charges_of_the_application_count_until_they_are_dropped() {
        let budget = Arc::new(Budget::new(160));
        let account = MemoryAccount::new(&budget);
        let charges = [account.charge(100), account.clone().charge(61)];
        assert_eq!((budget.used(), budget.excess()), (161, 11));
        drop(charges);
        assert_eq!((budget.used(), budget.excess()), (0, 0));
    }

    #[test]
    fn changes_add_up() {
        let budget = Budget::new(100);
        budget.change(0, 50);
        budget.change(50, 20);
        budget.change(0, 5);
        assert_eq!(budget.used(), 25);
        budget.change(20, 0);
        assert_eq!(budget.used(), 5);
    }
}
