//! What a shard has counted.

use crate::backend::BackendId;
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
