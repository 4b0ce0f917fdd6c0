//! Connection ID to connection, and stateless reset token to connection.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::Handle;
use crate::cid::{ConnectionId, ResetToken};
use crate::wire;

/// The routing table. Clients choose the connection IDs of their first packets,
/// so the hash is keyed.
#[derive(Debug)]
pub(super) struct Routes {
    by_cid: HashMap<ConnectionId, Handle, FixedState>,
    /// Peers choose the tokens: RFC 9000 §10.3.1 asks that a lookup does not
    /// tell how much of one was right, which the keyed hash sees to.
    by_token: HashMap<[u8; 16], Handle, FixedState>,
}

impl Routes {
    pub(super) fn new(key: u64) -> Self {
        Self {
            by_cid: HashMap::with_hasher(FixedState::with_seed(key)),
            by_token: HashMap::with_hasher(FixedState::with_seed(key)),
        }
    }

    pub(super) fn get(&self, cid: &ConnectionId) -> Option<Handle> {
        self.by_cid.get(cid).copied()
    }

    pub(super) fn add(&mut self, cid: ConnectionId, handle: Handle) {
        self.by_cid.insert(cid, handle);
    }

    /// Whose peer says with `datagram` that it lost its state.
    pub(super) fn by_reset(&self, datagram: &[u8]) -> Option<Handle> {
        let token = wire::reset::candidate(datagram)?;
        self.by_token.get(&token.0).copied()
    }

    pub(super) fn add_token(&mut self, token: ResetToken, handle: Handle) {
        self.by_token.insert(token.0, handle);
    }

    /// A token that another connection has meanwhile stays.
    pub(super) fn remove_token(&mut self, token: ResetToken, handle: Handle) {
        if self.by_token.get(&token.0) == Some(&handle) {
            self.by_token.remove(&token.0);
        }
    }

    pub(super) fn remove(&mut self, cid: &ConnectionId) {
        self.by_cid.remove(cid);
    }
}
