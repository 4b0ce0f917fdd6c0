//! The handshakes with clients that are under way, oldest first.

use core::ops::Bound;
use core::time::Duration;
use std::collections::BTreeMap;

use super::route::ConnectionHandle;
use crate::Instant;
use crate::cid::ConnectionId;
use crate::memory;

/// A handshake with a client.
#[derive(Debug)]
pub(super) struct PendingHandshake {
    /// Where its first Initials go: it repeats them with the connection ID it
    /// chose (RFC 9000 §7.2), or that a Retry gave it.
    pub(super) initial_dcid: ConnectionId,
    pub(super) began: Instant,
}

/// Handshakes under way. Handles are given out in order, so the first is the oldest.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    open: BTreeMap<ConnectionHandle, PendingHandshake>,
    /// Up to here somebody was told that they are overdue.
    last_reported: Option<ConnectionHandle>,
}

impl Handshakes {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn begin(&mut self, handle: ConnectionHandle, attempt: PendingHandshake) {
        self.open.insert(handle, attempt);
    }

    /// It is complete, or it failed; `None` if it was before.
    pub(super) fn end(&mut self, handle: ConnectionHandle) -> Option<PendingHandshake> {
        self.open.remove(&handle)
    }

    /// The oldest that began `timeout` ago and was not answered here before.
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

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        memory::btree_map(&self.open)
    }
}
