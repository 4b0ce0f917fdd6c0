//! What a shard has counted.

use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::BackendId;
use crate::silence::Exchanged;
use crate::traffic::Traffic;

/// Counts of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackendTraffic {
    /// New connections assigned to it.
    pub(crate) assigned: u64,
    /// Datagrams sent to it.
    pub(crate) sent: u64,
    /// Datagrams received from it.
    pub(crate) received: u64,
    /// Its long headers whose connection ID does not contain its server ID.
    pub(crate) unroutable: u64,
}

impl BackendTraffic {
    pub(crate) fn add(&mut self, other: &Self) {
        self.assigned += other.assigned;
        self.sent += other.sent;
        self.received += other.received;
        self.unroutable += other.unroutable;
    }
}

/// The counts of a shard, as last published.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardReport {
    pub(crate) up: Traffic,
    pub(crate) down: Traffic,
    /// Messages that the kernel dropped because a socket's buffer was full: the service socket's
    /// and the upstream sockets'.
    pub(crate) up_overflowed: u64,
    pub(crate) down_overflowed: u64,
    pub(crate) flows: usize,
    pub(crate) sockets: usize,
    pub(crate) entries: usize,
    /// Packets that asked a backend to reset a connection of one that went down.
    pub(crate) reset_requests: u64,
    /// Share of upstream ports in use.
    pub(crate) usage: f64,
    /// By backend number.
    pub(crate) backends: Vec<BackendTraffic>,
}

impl ShardReport {
    /// Adds up the counts of each backend.
    pub(crate) fn of_backends(reports: &[Arc<Mutex<Self>>]) -> Self {
        let mut total = Self::default();
        for report in reports {
            let report = report.lock().unwrap_or_else(PoisonError::into_inner);
            for (id, counts) in (0..).zip(&report.backends) {
                total.backend(BackendId(id)).add(counts);
            }
        }
        total
    }

    /// Returns what has passed between the shard and a backend.
    pub(crate) fn exchanged(&self, id: BackendId) -> Exchanged {
        let counts = self.backends.get(usize::from(id.0));
        counts.map_or_else(Exchanged::default, |counts| Exchanged {
            sent: counts.sent,
            received: counts.received,
        })
    }

    pub(crate) fn backend(&mut self, id: BackendId) -> &mut BackendTraffic {
        let index = usize::from(id.0);
        if index >= self.backends.len() {
            self.backends.resize(index + 1, BackendTraffic::default());
        }
        // The line above made room for it.
        #[expect(
            clippy::indexing_slicing,
            reason = "the vector was just made long enough"
        )]
        &mut self.backends[index]
    }
}
