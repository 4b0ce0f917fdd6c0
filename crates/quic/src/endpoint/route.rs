//! Connection ID to connection; reset token to connection.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::cid::{ConnectionId, ResetToken};
use crate::crypto::ResetKey;
use crate::memory;
use crate::rng::Rng;
use crate::wire::reset::candidate;

/// Names a connection of an endpoint; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle(pub u64);

/// The routing table. Clients choose the connection IDs of their first packets,
/// so the hash is keyed.
#[derive(Debug)]
pub(super) struct Routes {
    by_cid: HashMap<ConnectionId, ConnectionHandle, FixedState>,
    /// By what `disguise` makes of the token.
    by_token: HashMap<[u8; 16], ConnectionHandle, FixedState>,
    /// A pseudorandom function of its own: how long a search takes says nothing
    /// about tokens (RFC 9000 §10.3.1).
    disguise: ResetKey,
}

impl Routes {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            by_cid: HashMap::with_hasher(FixedState::with_seed(rng.u64())),
            by_token: HashMap::with_hasher(FixedState::with_seed(rng.u64())),
            disguise: ResetKey::new(&rng.array()),
        }
    }

    /// Whose stateless reset `datagram` is, if it is one.
    pub(super) fn get_reset(&self, datagram: &[u8]) -> Option<ConnectionHandle> {
        if self.by_token.is_empty() {
            return None;
        }
        let token = candidate(datagram)?;
        self.by_token.get(&self.disguise.token(&token.0).0).copied()
    }

    /// Replaces the tokens that reset a connection. Peers choose them: one that
    /// another connection has stays with that.
    pub(super) fn set_tokens(
        &mut self,
        handle: ConnectionHandle,
        old: &[ResetToken],
        new: &[ResetToken],
    ) {
        for token in old {
            let key = self.disguise.token(&token.0).0;
            if self.by_token.get(&key) == Some(&handle) {
                self.by_token.remove(&key);
            }
        }
        for token in new {
            let key = self.disguise.token(&token.0).0;
            self.by_token.entry(key).or_insert(handle);
        }
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        memory::hash_map(&self.by_cid).saturating_add(memory::hash_map(&self.by_token))
    }

    pub(super) fn get(&self, cid: &ConnectionId) -> Option<ConnectionHandle> {
        self.by_cid.get(cid).copied()
    }

    /// Datagrams to `cid` are those of `handle`, unless they are another's: a client
    /// chooses the first one, and no choice of a stranger's may redirect what
    /// belongs to a connection.
    pub(super) fn add(&mut self, cid: ConnectionId, handle: ConnectionHandle) {
        self.by_cid.entry(cid).or_insert(handle);
    }

    /// They no longer are; those of another stay that one's.
    pub(super) fn remove(&mut self, cid: &ConnectionId, handle: ConnectionHandle) {
        if self.by_cid.get(cid) == Some(&handle) {
            self.by_cid.remove(cid);
        }
    }
}
