//! Incomplete handshakes with clients, oldest first.

use core::ops::Bound;
use core::time::Duration;
use std::collections::BTreeMap;

use super::route::ConnectionHandle;
use crate::Instant;
use crate::cid::ConnectionId;
use crate::memory;

/// An incomplete handshake with a client.
#[derive(Debug)]
pub(super) struct PendingHandshake {
    /// The Destination Connection ID of the client's first Initial packets: it repeats them
    /// with the ID that it chose (RFC 9000 §7.2), or that a Retry gave it.
    pub(super) initial_dcid: ConnectionId,
    pub(super) began: Instant,
}

/// The incomplete handshakes. Handles are assigned in order, so the first is the oldest.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    open: BTreeMap<ConnectionHandle, PendingHandshake>,
    /// Handshakes up to this one have been reported as overdue.
    last_reported: Option<ConnectionHandle>,
}

impl Handshakes {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn begin(&mut self, handle: ConnectionHandle, attempt: PendingHandshake) {
        self.open.insert(handle, attempt);
    }

    /// Removes a handshake that completed or failed; `None` if it was removed before.
    pub(super) fn end(&mut self, handle: ConnectionHandle) -> Option<PendingHandshake> {
        self.open.remove(&handle)
    }

    /// Returns the oldest handshake that started at least `timeout` ago and was not
    /// returned before.
    pub(super) fn next_overdue(
        &mut self,
        now: Instant,
        timeout: Duration,
    ) -> Option<ConnectionHandle> {
        let after = self.last_reported.map_or(Bound::Unbounded, Bound::Excluded);
        let (&handle, oldest) = self.open.range((after, Bound::Unbounded)).next()?;
        if now.saturating_since(oldest.began) < timeout {
            return None;
        }
        self.last_reported = Some(handle);
        Some(handle)
    }

    /// Returns the bytes allocated.
    pub(super) fn memory(&self) -> usize {
        memory::btree_map(&self.open)
    }
}
