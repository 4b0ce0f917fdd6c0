//! Connections and handshakes by where they come from.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::FixedState;

use crate::memory;
use crate::rng::Rng;

/// How many times as much an IPv6 prefix of 48 bits gets as one of 56: it holds 256
/// of them, and a provider may give it to one site or to many customers.
const NETWORK_SHARE: usize = 16;

/// Entries for which the table never shrinks.
const SMALL_TABLE: usize = 64;

/// Where a connection comes from: it is where it began. A client that migrates
/// (RFC 9000 §9) stays on the account of its first address, since every address of
/// it was validated and a count that moved could be moved onto others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    V4([u8; 4]),
    /// The first 56 bits.
    V6([u8; 7]),
}

impl Source {
    pub(super) fn of(ip: IpAddr) -> Self {
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
struct Count {
    handshakes: usize,
    /// Connections whose address is proven: spoofed ones must not take away what
    /// belongs to the true owner of an address.
    proven: usize,
}

/// How full the fuller of a source's accounts is, as if it were the source's alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) handshakes: usize,
    pub(super) proven: usize,
}

/// Counts by source. As large as there are connections, at most twice; clients
/// choose the keys, so the hash is keyed.
#[derive(Debug)]
pub(super) struct Sources {
    counts: HashMap<Account, Count, FixedState>,
}

impl Sources {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            counts: HashMap::with_hasher(FixedState::with_seed(rng.u64())),
        }
    }

    pub(super) fn usage(&self, source: Source) -> Usage {
        source
            .accounts()
            .filter_map(|(account, share)| Some((self.counts.get(&account)?, share)))
            .fold(Usage::default(), |usage, (count, share)| Usage {
                handshakes: usage
                    .handshakes
                    .max(count.handshakes.checked_div(share).unwrap_or(0)),
                proven: usage
                    .proven
                    .max(count.proven.checked_div(share).unwrap_or(0)),
            })
    }

    pub(super) fn begin_handshake(&mut self, source: Source) {
        self.change(source, |count| {
            count.handshakes = count.handshakes.saturating_add(1);
        });
    }

    pub(super) fn end_handshake(&mut self, source: Source) {
        self.change(source, |count| {
            count.handshakes = count.handshakes.saturating_sub(1);
        });
    }

    pub(super) fn begin_proven(&mut self, source: Source) {
        self.change(source, |count| {
            count.proven = count.proven.saturating_add(1);
        });
    }

    pub(super) fn end_proven(&mut self, source: Source) {
        self.change(source, |count| {
            count.proven = count.proven.saturating_sub(1);
        });
    }

    fn change(&mut self, source: Source, change: impl Fn(&mut Count)) {
        for (account, _) in source.accounts() {
            let count = self.counts.entry(account).or_default();
            change(count);
            if *count == Count::default() {
                self.counts.remove(&account);
                self.give_back();
            }
        }
    }

    /// The table halves when an eighth is in use, so that each end of a connection
    /// pays a constant part of moving the rest.
    fn give_back(&mut self) {
        let capacity = self.counts.capacity();
        if capacity > SMALL_TABLE && self.counts.len() < capacity / 8 {
            self.counts.shrink_to(capacity / 2);
        }
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        memory::table(&self.counts)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
