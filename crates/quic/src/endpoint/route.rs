//! Routes from connection IDs and stateless reset tokens to connections.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::cid::{ConnectionId, ResetToken};
use crate::crypto::ResetKey;
use crate::memory;
use crate::rng::Rng;
use crate::wire::reset::candidate;

/// Identifies a connection of an endpoint. Handles are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle(pub u64);

/// The routing table. Clients choose the connection IDs of their first packets,
/// so the hash is keyed.
#[derive(Debug)]
pub(super) struct Routes {
    by_cid: HashMap<ConnectionId, ConnectionHandle, FixedState>,
    /// By the token's image under `disguise`.
    by_token: HashMap<[u8; 16], ConnectionHandle, FixedState>,
    /// A pseudorandom function, so that the time of a lookup reveals nothing about tokens
    /// (RFC 9000 §10.3.1).
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

    /// Returns the connection that `datagram` resets, if it is a stateless reset.
    pub(super) fn get_reset(&self, datagram: &[u8]) -> Option<ConnectionHandle> {
        if self.by_token.is_empty() {
            return None;
        }
        let token = candidate(datagram)?;
        self.by_token.get(&self.disguise.token(&token.0).0).copied()
    }

    /// Replaces the reset tokens of a connection. Peers choose them: a token of another
    /// connection stays with that one.
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

    /// Returns the bytes allocated.
    pub(super) fn memory(&self) -> usize {
        memory::hash_map(&self.by_cid).saturating_add(memory::hash_map(&self.by_token))
    }

    pub(super) fn get(&self, cid: &ConnectionId) -> Option<ConnectionHandle> {
        self.by_cid.get(cid).copied()
    }

    /// Routes `cid` to `handle`, unless another connection has it: a client chooses its
    /// first ID, and must not be able to redirect the datagrams of another connection.
    pub(super) fn add(&mut self, cid: ConnectionId, handle: ConnectionHandle) {
        self.by_cid.entry(cid).or_insert(handle);
    }

    /// Removes the route of `cid` if it leads to `handle`.
    pub(super) fn remove(&mut self, cid: &ConnectionId, handle: ConnectionHandle) {
        if self.by_cid.get(cid) == Some(&handle) {
            self.by_cid.remove(cid);
        }
    }
}
