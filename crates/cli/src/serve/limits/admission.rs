//! The limit on requests in progress.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway::{MemoryAccount, MemoryCharge};

use super::Client;

/// Maximum number of requests in progress, which use 64 MiB.
const TOTAL: usize = 8_192;

/// Memory of a request whose client reads nothing, in bytes: its task, its response, its path, its
/// log entry.
const REQUEST: usize = 8 << 10;

/// The limit set in the library, for this many `connections`: as many as [`Admission`] can ever
/// admit. Admission answers the others with 503; the library would reject them without saying that
/// the server is busy.
pub(in crate::serve) fn most_requests(connections: usize) -> usize {
    TOTAL.saturating_add(connections)
}

/// The share of the free requests that one connection may have in progress: a few connections get
/// all they ask for, thousands of them less each.
const PART: usize = 32;

/// Counts the requests in progress.
///
/// Above [`TOTAL`], each connection may still have one, so that wasteful clients cannot keep others
/// out; the number of connections is limited by the endpoint.
#[derive(Debug, Default)]
pub(in crate::serve) struct Admission {
    counts: Arc<Mutex<Counts>>,
    memory: MemoryAccount,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    each: HashMap<Client, usize>,
}

/// A request that is in progress until this is dropped.
#[derive(Debug)]
pub(in crate::serve) struct Admitted {
    counts: Arc<Mutex<Counts>>,
    client: Client,
    _memory: MemoryCharge,
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Admission {
    /// Admits requests whose memory counts against this account.
    pub(super) fn new(memory: MemoryAccount) -> Self {
        Self {
            counts: Arc::default(),
            memory,
        }
    }

    /// Admits a request; `None` means that the server is busy.
    pub(in crate::serve) fn admit(&self, client: Client) -> Option<Admitted> {
        let mut counts = lock(&self.counts);
        let share = (TOTAL.saturating_sub(counts.total) / PART).max(1);
        let count = counts.each.entry(client).or_default();
        if *count >= share {
            return None;
        }
        *count += 1;
        counts.total += 1;
        Some(Admitted {
            counts: self.counts.clone(),
            client,
            _memory: self.memory.charge(REQUEST),
        })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.total -= 1;
        if let Some(count) = counts.each.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.each.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_connections_get_all_requested_permits() {
        let admission = Admission::default();
        let all: Vec<_> = (0..30)
            .flat_map(|client| (0..100).map(move |_| (client, None)))
            .map(|client| admission.admit(client))
            .collect();
        assert!(all.iter().all(Option::is_some));
    }

    #[test]
    fn greedy_connections_leave_one_request_per_connection() {
        let admission = Admission::default();
        let mut held = Vec::new();
        for client in 0..10_000 {
            held.extend((0..100).map_while(|_| admission.admit((client, None))));
        }
        assert!(held.len() < most_requests(10_001), "{}", held.len());
        let newcomer = admission.admit((10_000, None));
        assert!(newcomer.is_some());
        assert!(admission.admit((10_000, None)).is_none());
        drop((held, newcomer));
        let counts = lock(&admission.counts);
        assert_eq!((counts.total, counts.each.len()), (0, 0));
    }
}
