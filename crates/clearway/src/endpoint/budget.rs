//! The memory budget that the connections of an endpoint share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The minimum of a connection's buffer limit, as a power of two: 32 KiB. With less, a
/// stream makes no progress worth its packets.
const MIN_LIMIT_LOG2: u8 = 15;

/// The most that a connection may buffer for an eighth of what it has transferred, as a power of two: 256 KiB.
const MAX_EARNED_SOON_LOG2: u8 = 18;

/// The most that it may buffer for a 64th of that: 1 MiB, so that few round trips are enough for a
/// download where each takes long.
const MAX_EARNED_LOG2: u8 = 20;

/// The fraction of the budget from which buffers are limited.
const TIGHT: Fraction = Fraction(1, 2);

/// The fraction of the budget below which buffers are not limited any more. Lower than
/// [`TIGHT`], so that the limit does not change with every packet.
const RELAXED: Fraction = Fraction(3, 8);

/// The fraction of the budget at which evictions of any connections stop.
const EVICTION_TARGET: Fraction = Fraction(15, 16);

/// The fraction of the budget from which on idle connections are evicted: with less to spare, buffers
/// would be too small for a download at the rate of the network.
const IDLE_EVICTION_TARGET: Fraction = Fraction(7, 8);

struct Fraction(usize, usize);

impl Fraction {
    fn of(&self, whole: usize) -> usize {
        (whole.checked_div(self.1).unwrap_or(0)).saturating_mul(self.0)
    }
}

/// The memory budget of an endpoint and how much of it is used, shared by its shards and
/// handles.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: usize,
    used: AtomicUsize,
}

/// An account of an endpoint's memory budget
/// ([`ServerConfig::memory_budget`](crate::ServerConfig::memory_budget)), for memory that the
/// application itself holds on behalf of clients.
///
/// Memory that is charged counts like that of connections: their windows shrink and
/// connections are closed for it. Limit it in the application as well, because closing
/// connections does not free it. Clones are the same account. The default account belongs
/// to no endpoint and limits nothing.
#[derive(Clone, Debug, Default)]
pub struct MemoryAccount(Arc<MemoryBudget>);

/// Memory of the application that is charged until this is dropped.
#[derive(Debug)]
pub struct MemoryCharge {
    account: MemoryAccount,
    bytes: usize,
}

impl MemoryAccount {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self(budget.clone())
    }

    /// Charges `bytes` to the budget until the result is dropped. Never fails and never waits:
    /// when the budget is exceeded, the shards close connections.
    #[must_use = "the charge ends when it is dropped"]
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

/// How much a connection may buffer in each direction: as much as its configuration allows,
/// or at most a power of two of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BufferLimit {
    #[default]
    Configured,
    AtMost {
        log2: u8,
    },
}

/// Whether evictions have to free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    None,
    /// Little is left: only idle connections are evicted, because the others would only be slower.
    Near,
    /// The budget is exceeded: any connection may be evicted, until this many bytes are freed.
    Exceeded(usize),
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl BufferLimit {
    /// Returns the limit in bytes; `usize::MAX` if the configuration decides.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Configured => usize::MAX,
            Self::AtMost { log2 } => 1_usize.checked_shl(log2.into()).unwrap_or(usize::MAX),
        }
    }

    /// Returns the limit of a connection that has transferred `moved` bytes: an eighth of them at least, up
    /// to [`MAX_EARNED_SOON_LOG2`], and a 64th up to [`MAX_EARNED_LOG2`]. So a download goes on, however
    /// little memory others have left.
    pub(crate) fn for_transferred(self, moved: u64) -> Self {
        match self {
            Self::Configured => Self::Configured,
            Self::AtMost { log2 } => {
                let log2_of = |bytes: u64| bytes.checked_ilog2().unwrap_or(0) as u8;
                let soon = log2_of(moved / 8).min(MAX_EARNED_SOON_LOG2);
                let later = log2_of(moved / 64).min(MAX_EARNED_LOG2);
                Self::AtMost {
                    log2: log2.max(soon).max(later),
                }
            }
        }
    }
}

impl MemoryBudget {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    /// Returns a budget without a limit, for clients, which choose their peers.
    pub(super) fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Whether there is a limit, so that memory has to be counted.
    pub(crate) fn is_limited(&self) -> bool {
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

    /// Returns what evictions have to free.
    pub(crate) fn shortage(&self) -> Shortage {
        let used = self.used();
        if used > self.limit {
            Shortage::Exceeded(used.saturating_sub(EVICTION_TARGET.of(self.limit)))
        } else if used > IDLE_EVICTION_TARGET.of(self.limit) {
            Shortage::Near
        } else {
            Shortage::None
        }
    }

    /// Whether so much is used that it has to be measured exactly.
    pub(crate) fn is_tight(&self) -> bool {
        self.used() >= TIGHT.of(self.limit)
    }

    /// Returns what each connection may buffer now, given the limit so far.
    ///
    /// It is a quarter of the free memory, rounded down to a power of two. So a few
    /// connections get much and many get little, without a count of them: `n` connections
    /// that use all they may leave `1 / (1 + n/4)` free (Choudhury and Hahne, "Dynamic queue
    /// length thresholds", 1998).
    pub(crate) fn buffer_limit(&self, current: BufferLimit) -> BufferLimit {
        let used = self.used();
        let unlimited = match current {
            BufferLimit::Configured => used < TIGHT.of(self.limit),
            BufferLimit::AtMost { .. } => used < RELAXED.of(self.limit),
        };
        if unlimited {
            return BufferLimit::Configured;
        }
        let quarter = self.limit.saturating_sub(used) / 4;
        // A `usize` has fewer bits than a byte can count.
        let log2 = quarter.checked_ilog2().unwrap_or(0) as u8;
        let log2 = log2.max(MIN_LIMIT_LOG2);
        match current {
            // One step up is not worth an update of every connection.
            BufferLimit::AtMost { log2: before } if log2 == before.saturating_add(1) => {
                BufferLimit::AtMost { log2: before }
            }
            BufferLimit::AtMost { .. } | BufferLimit::Configured => BufferLimit::AtMost { log2 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn used(limit: usize, used: usize) -> MemoryBudget {
        let budget = MemoryBudget::new(limit);
        budget.change(0, used);
        budget
    }

    #[test]
    fn buffer_limit_shrinks_with_free_memory_and_has_a_floor() {
        let share = |mib| used(256 * MIB, mib * MIB).buffer_limit(BufferLimit::Configured);
        assert_eq!(share(127), BufferLimit::Configured);
        assert_eq!(share(128).bytes(), 32 * MIB);
        assert_eq!(share(192).bytes(), 16 * MIB);
        assert_eq!(share(255).bytes(), 256 << 10);
        assert_eq!(share(256).bytes(), 32 << 10);
        assert_eq!(share(300).bytes(), 32 << 10);
    }

    #[test]
    fn buffer_limit_grows_by_more_than_a_step_and_is_lifted_well_below_the_threshold() {
        let from =
            |log2, mib| used(256 * MIB, mib * MIB).buffer_limit(BufferLimit::AtMost { log2 });
        assert_eq!(from(24, 130), BufferLimit::AtMost { log2: 24 });
        assert_eq!(from(23, 130), BufferLimit::AtMost { log2: 23 });
        assert_eq!(from(22, 130), BufferLimit::AtMost { log2: 24 });
        assert_eq!(from(24, 97), BufferLimit::AtMost { log2: 24 });
        assert_eq!(from(24, 95), BufferLimit::Configured);
        // It shrinks at once.
        assert_eq!(from(24, 225), BufferLimit::AtMost { log2: 22 });
    }

    #[test]
    fn connections_earn_buffers_by_what_they_transfer() {
        let short = BufferLimit::AtMost { log2: 15 };
        let earned = |moved: u64| short.for_transferred(moved).bytes() >> 10;
        assert_eq!(
            [
                0,
                100 << 10,
                1 << 20,
                2 << 20,
                16 << 20,
                32 << 20,
                64 << 20,
                1 << 30
            ]
            .map(earned),
            [32, 32, 128, 256, 256, 512, 1_024, 1_024]
        );
        let ample = BufferLimit::AtMost { log2: 24 };
        assert_eq!(ample.for_transferred(1 << 30), ample);
        assert_eq!(
            BufferLimit::Configured.for_transferred(0),
            BufferLimit::Configured
        );
    }

    #[test]
    fn connections_that_fill_their_buffer_limit_stay_within_the_budget() {
        let budget = MemoryBudget::new(256 * MIB);
        let mut share = BufferLimit::Configured;
        let mut held = vec![0; 1_000];
        for _ in 0..10 {
            for bytes in &mut held {
                share = budget.buffer_limit(share);
                let wanted = share.bytes().min(48 * MIB);
                if wanted > *bytes {
                    budget.change(*bytes, wanted);
                    *bytes = wanted;
                }
            }
        }
        // Memory that was granted before is not taken back, but no connection gets more.
        assert!(budget.used() <= 256 * MIB + 1_000 * (32 << 10));
    }

    #[test]
    fn evictions_free_a_sixteenth_and_idle_connections_are_evicted_from_an_eighth_on() {
        assert_eq!(used(160, 140).shortage(), Shortage::None);
        assert_eq!(used(160, 141).shortage(), Shortage::Near);
        assert_eq!(used(160, 160).shortage(), Shortage::Near);
        assert_eq!(used(160, 161).shortage(), Shortage::Exceeded(11));
        assert_eq!(MemoryBudget::unlimited().shortage(), Shortage::None);
    }

    #[test]
    fn memory_charge_counts_until_it_is_dropped() {
        let budget = Arc::new(MemoryBudget::new(160));
        let account = MemoryAccount::new(&budget);
        let charges = [account.charge(100), account.clone().charge(61)];
        assert_eq!(
            (budget.used(), budget.shortage()),
            (161, Shortage::Exceeded(11))
        );
        drop(charges);
        assert_eq!((budget.used(), budget.shortage()), (0, Shortage::None));
    }

    #[test]
    fn changes_of_used_memory_add_up() {
        let budget = MemoryBudget::new(100);
        budget.change(0, 50);
        budget.change(50, 20);
        budget.change(0, 5);
        assert_eq!(budget.used(), 25);
        budget.change(20, 0);
        assert_eq!(budget.used(), 5);
    }
}
