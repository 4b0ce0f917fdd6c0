//! Connections and handshakes by where they come from.

use core::hash::BuildHasher as _;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;

use crate::memory;
use crate::rng::Rng;

/// How many times as much an IPv6 prefix of 48 bits gets as one of 56: it holds 256
/// of them, and a provider may give it to one site or to many customers.
const NETWORK_SHARE: usize = 16;

/// Tables of their own locks: several for each of the threads that most servers have.
const TABLES: usize = 16;

/// Entries for which a table never shrinks.
const SMALL_TABLE: usize = 8;

/// Where a connection comes from: it is where it began. A client that migrates
/// (RFC 9000 §9) stays on the account of its first address, since every address of
/// it was validated and a count that moved could be moved onto others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An address.
    V4([u8; 4]),
    /// The first 56 bits of an address.
    V6([u8; 7]),
}

impl Source {
    /// Where a client with this address comes from. Addresses of IPv4 that are mapped
    /// into IPv6 are those of IPv4.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.octets()),
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, ..] = v6.octets();
                Self::V6([a, b, c, d, e, f, g])
            }
        }
    }

    /// What is counted on its account, with the share that each gets.
    fn accounts(self) -> impl Iterator<Item = (Account, usize)> {
        let network = match self {
            Self::V4(_) => None,
            Self::V6([a, b, c, d, e, f, _]) => {
                Some((Account::Network([a, b, c, d, e, f]), NETWORK_SHARE))
            }
        };
        core::iter::once((Account::Source(self), 1)).chain(network)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Account {
    Source(Source),
    /// The first 48 bits of an IPv6 address.
    Network([u8; 6]),
}

/// What is open on an account; never empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SourceCount {
    handshakes: usize,
    /// Connections whose address is proven: spoofed ones must not take away what
    /// belongs to the true owner of an address.
    proven: usize,
}

/// How full the fuller of a source's accounts is, as if it were the source's alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceUsage {
    pub(super) handshakes: usize,
    pub(super) proven: usize,
}

/// Counts by source, in several tables with a lock for each, so that endpoints that
/// share them seldom wait for each other. As large as there are connections, at most
/// twice; clients choose the keys, so the hashes are keyed.
#[derive(Debug)]
pub(super) struct Sources {
    tables: [Mutex<Table>; TABLES],
    /// Says in which table a source is.
    choice: FixedState,
}

impl Sources {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let secret = rng.u64();
        let hasher = |number: u64| FixedState::with_seed(secret.wrapping_add(number));
        let table = |number| {
            Mutex::new(Table {
                counts: HashMap::with_hasher(hasher(number)),
            })
        };
        Self {
            tables: core::array::from_fn(|index| table(index as u64)),
            choice: hasher(u64::MAX),
        }
    }

    /// A client of this source begins a handshake, if `enter` lets it with what the
    /// source has now. A `proven` address is counted as such.
    ///
    /// # Errors
    /// Those of `enter`; then nothing has changed.
    pub(super) fn begin<E>(
        &self,
        source: Source,
        proven: bool,
        enter: impl FnOnce(SourceUsage) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut table = self.table(source);
        enter(table.usage(source))?;
        table.change(source, |count| {
            count.handshakes = count.handshakes.saturating_add(1);
            count.proven = count.proven.saturating_add(proven.into());
        });
        Ok(())
    }

    /// A handshake is complete; `prove` if that is what proves the address.
    pub(super) fn complete_handshake(&self, source: Source, prove: bool) {
        self.table(source).change(source, |count| {
            count.handshakes = count.handshakes.saturating_sub(1);
            count.proven = count.proven.saturating_add(prove.into());
        });
    }

    /// A connection is gone that counted as a handshake, as one of a proven address, or
    /// both.
    pub(super) fn end(&self, source: Source, handshake: bool, proven: bool) {
        self.table(source).change(source, |count| {
            count.handshakes = count.handshakes.saturating_sub(handshake.into());
            count.proven = count.proven.saturating_sub(proven.into());
        });
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        let tables = self.tables.iter();
        let each = tables.map(|table| memory::hash_map(&lock(table).counts));
        each.fold(0, usize::saturating_add)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.tables
            .iter()
            .all(|table| lock(table).counts.is_empty())
    }

    /// The table in which all accounts of a source are.
    #[expect(
        clippy::indexing_slicing,
        reason = "a remainder is less than what it was divided by"
    )]
    fn table(&self, source: Source) -> MutexGuard<'_, Table> {
        let hash = match source {
            Source::V4(address) => self.choice.hash_one(address),
            // Without the seventh byte: prefixes of one network share its account.
            Source::V6([a, b, c, d, e, f, _]) => self.choice.hash_one([a, b, c, d, e, f]),
        };
        lock(&self.tables[hash as usize % TABLES])
    }
}

/// A panic elsewhere leaves counts that are right: nothing in here panics.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Table {
    counts: HashMap<Account, SourceCount, FixedState>,
}

impl Table {
    fn usage(&self, source: Source) -> SourceUsage {
        source
            .accounts()
            .filter_map(|(account, share)| Some((self.counts.get(&account)?, share)))
            .fold(SourceUsage::default(), |usage, (count, share)| {
                SourceUsage {
                    handshakes: usage
                        .handshakes
                        .max(count.handshakes.checked_div(share).unwrap_or(0)),
                    proven: usage
                        .proven
                        .max(count.proven.checked_div(share).unwrap_or(0)),
                }
            })
    }

    fn change(&mut self, source: Source, change: impl Fn(&mut SourceCount)) {
        for (account, _) in source.accounts() {
            let count = self.counts.entry(account).or_default();
            change(count);
            if *count == SourceCount::default() {
                self.counts.remove(&account);
                self.shrink_if_sparse();
            }
        }
    }

    /// The table halves when an eighth is in use, so that each end of a connection
    /// pays a constant part of moving the rest.
    fn shrink_if_sparse(&mut self) {
        let capacity = self.counts.capacity();
        if capacity > SMALL_TABLE && self.counts.len() < capacity / 8 {
            self.counts.shrink_to(capacity / 2);
        }
    }
}
