//! Counts of connections and handshakes by source.

use core::hash::BuildHasher as _;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;

use crate::memory;
use crate::rng::Rng;

/// How many times the limit of an IPv6 prefix of 56 bits a prefix of 48 bits gets: it
/// contains 256 of them, and a provider may give it to one site or to many customers.
const NETWORK_SHARE: usize = 16;

/// Number of tables, each with its own lock: several for each thread that most servers
/// have.
const TABLES: usize = 16;

/// Capacity up to which a table never shrinks.
const SMALL_TABLE: usize = 8;

/// The source of a connection: the network that it started from. A client that migrates
/// (RFC 9000 §9) keeps counting for its first address, since each of its addresses was
/// validated, and a count that moved could be moved onto others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An IPv4 address.
    V4([u8; 4]),
    /// The first 56 bits of an IPv6 address.
    V6([u8; 7]),
}

impl Source {
    /// Returns the source of a client with this address. IPv4-mapped IPv6 addresses count
    /// as IPv4 addresses.
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

    /// Returns the accounts that the source counts for, each with the multiple of the limit
    /// that it gets.
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

/// The open handshakes and connections of an account; never both zero in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SourceCount {
    handshakes: usize,
    /// Connections with a validated address: spoofed ones must not use up the share of the
    /// true owner of an address.
    validated: usize,
}

/// The usage of a source: that of the fuller of its accounts, scaled to the limit of one
/// source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceUsage {
    pub(super) handshakes: usize,
    pub(super) validated: usize,
}

/// Counts by source, in several tables with a lock each, so that endpoints that share them
/// seldom wait for each other. The tables have at most twice the size that the number of
/// connections needs. Clients choose the keys, so the hashes are keyed.
#[derive(Debug)]
pub(super) struct Sources {
    tables: [Mutex<Table>; TABLES],
    /// Selects the table of a source.
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

    /// Counts a new handshake of this source if `enter` permits it, given the usage of the
    /// source. A `validated` address is counted as such.
    ///
    /// # Errors
    /// Those of `enter`; nothing changes then.
    pub(super) fn begin<E>(
        &self,
        source: Source,
        validated: bool,
        enter: impl FnOnce(SourceUsage) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut table = self.table(source);
        enter(table.usage(source))?;
        table.change(source, |count| {
            count.handshakes = count.handshakes.saturating_add(1);
            count.validated = count.validated.saturating_add(validated.into());
        });
        Ok(())
    }

    /// Records a completed handshake; `validates` if this is what validated the address.
    pub(super) fn complete_handshake(&self, source: Source, validates: bool) {
        self.table(source).change(source, |count| {
            count.handshakes = count.handshakes.saturating_sub(1);
            count.validated = count.validated.saturating_add(validates.into());
        });
    }

    /// Removes a connection that counted as a handshake, as one with a validated address,
    /// or both.
    pub(super) fn end(&self, source: Source, handshake: bool, validated: bool) {
        self.table(source).change(source, |count| {
            count.handshakes = count.handshakes.saturating_sub(handshake.into());
            count.validated = count.validated.saturating_sub(validated.into());
        });
    }

    /// Returns the bytes allocated.
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

    /// Locks the table that has all accounts of a source.
    #[expect(
        clippy::indexing_slicing,
        reason = "a remainder is less than its divisor"
    )]
    fn table(&self, source: Source) -> MutexGuard<'_, Table> {
        let hash = match source {
            Source::V4(address) => self.choice.hash_one(address),
            // Without the seventh byte, because the prefixes of one network share an
            // account.
            Source::V6([a, b, c, d, e, f, _]) => self.choice.hash_one([a, b, c, d, e, f]),
        };
        lock(&self.tables[hash as usize % TABLES])
    }
}

/// A poisoned lock is entered: nothing in here panics, so the counts are right.
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
                    validated: usage
                        .validated
                        .max(count.validated.checked_div(share).unwrap_or(0)),
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

    /// Halves the table when only an eighth is in use, so that the cost of moving the
    /// entries is constant per ended connection.
    fn shrink_if_sparse(&mut self) {
        let capacity = self.counts.capacity();
        if capacity > SMALL_TABLE && self.counts.len() < capacity / 8 {
            self.counts.shrink_to(capacity / 2);
        }
    }
}
