//! Connection ID to connection.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::Handle;
use crate::cid::ConnectionId;

/// The routing table. Clients choose the connection IDs of their first packets,
/// so the hash is keyed.
#[derive(Debug)]
pub(super) struct Routes {
    by_cid: HashMap<ConnectionId, Handle, FixedState>,
}

impl Routes {
    pub(super) fn new(key: u64) -> Self {
        Self {
            by_cid: HashMap::with_hasher(FixedState::with_seed(key)),
        }
    }

    pub(super) fn get(&self, cid: &ConnectionId) -> Option<Handle> {
        self.by_cid.get(cid).copied()
    }

    pub(super) fn add(&mut self, cid: ConnectionId, handle: Handle) {
        self.by_cid.insert(cid, handle);
    }

    pub(super) fn remove(&mut self, cid: &ConnectionId) {
        self.by_cid.remove(cid);
    }
}
