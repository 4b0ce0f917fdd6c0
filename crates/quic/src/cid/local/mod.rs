//! The connection IDs that we issue and the peer sends to.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{ConnectionId, NewCid, ResetToken};
use crate::error::{Code, TransportError};
use crate::memory;

/// Largest number of connection IDs of a connection at a time, whatever the configuration. Each
/// takes an entry in the endpoint's table.
pub const MAX_ISSUED: usize = 8;

/// Number of connection IDs that are stored without an allocation.
const USUALLY_ISSUED: usize = 4;

/// The active_connection_id_limit of a peer that does not send one (RFC 9000 §18.2).
pub(crate) const DEFAULT_ACTIVE_LIMIT: u64 = 2;

/// A change of the endpoint's routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingChange {
    /// Datagrams with this connection ID belong to the connection.
    Add(ConnectionId),
    /// Datagrams with this connection ID no longer belong to the connection.
    Remove(ConnectionId),
}

/// Whether the peer knows a connection ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// A NEW_CONNECTION_ID frame has to be sent, for the first time or again.
    Due,
    /// A NEW_CONNECTION_ID frame has been sent.
    InFlight,
    /// The peer has it.
    Known,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    sequence: u64,
    cid: ConnectionId,
    reset_token: ResetToken,
    delivery: Delivery,
}

/// The connection IDs that we have issued and the peer has not retired.
///
/// After the peer's limit is known, after each received datagram and after
/// [`LocalCids::rotate`], call [`LocalCids::replenish`], then hand
/// [`LocalCids::routing_change`] to the endpoint. Frames come from
/// [`LocalCids::next_to_send`].
#[derive(Debug)]
pub struct LocalCids {
    /// Ordered by sequence number; at most twice [`MAX_ISSUED`].
    issued: SmallVec<[Issued; USUALLY_ISSUED]>,
    next_sequence: u64,
    /// Highest sequence number that has been sent to the peer.
    highest_sent: u64,
    retire_prior_to: u64,
    peer_limit: u64,
    /// At most [`MAX_ISSUED`].
    own_limit: u8,
    zero_length: bool,
    changes: VecDeque<RoutingChange>,
}

impl LocalCids {
    /// Creates the set with the source connection ID of our handshake packets, which has
    /// sequence number 0. `own_limit` is the number of connection IDs to keep issued, 1 to
    /// [`MAX_ISSUED`].
    ///
    /// `reset_token` belongs to the first connection ID. Only a server sends it, in its
    /// transport parameters; a client passes any value. The first routing change adds this
    /// connection ID.
    #[must_use]
    pub fn new(first: ConnectionId, reset_token: ResetToken, own_limit: usize) -> Self {
        let mut cids = Self {
            issued: SmallVec::new(),
            next_sequence: 0,
            highest_sent: 0,
            retire_prior_to: 0,
            peer_limit: DEFAULT_ACTIVE_LIMIT,
            own_limit: own_limit.clamp(1, MAX_ISSUED) as u8,
            zero_length: first.is_empty(),
            changes: VecDeque::new(),
        };
        if cids.zero_length {
            cids.next_sequence = 1;
        } else {
            cids.add(first, reset_token, Delivery::Known);
        }
        cids
    }

    /// Issues the connection ID of the preferred_address transport parameter,
    /// sequence number 1 (RFC 9000 §5.1.1). Must be called before [`LocalCids::replenish`].
    ///
    /// # Errors
    /// INTERNAL_ERROR if sequence number 1 is in use or our connection IDs have zero length.
    /// Both are bugs of the caller.
    pub(crate) fn issue_preferred(
        &mut self,
        cid: ConnectionId,
        reset_token: ResetToken,
    ) -> Result<(), TransportError> {
        if self.zero_length || self.next_sequence != 1 {
            return Err(TransportError::new(
                Code::INTERNAL_ERROR,
                "the preferred address needs sequence number 1, but it is already in use",
            ));
        }
        self.highest_sent = 1;
        self.add(cid, reset_token, Delivery::Known);
        Ok(())
    }

    /// Sets the peer's active_connection_id_limit. The parser rejects values below 2
    /// (RFC 9000 §18.2).
    pub fn set_peer_limit(&mut self, limit: u64) {
        self.peer_limit = limit.max(DEFAULT_ACTIVE_LIMIT);
    }

    /// Issues connection IDs up to the limit. `mint` creates one with its reset token. It is
    /// called a bounded number of times, and not at all as long as the peer retires none.
    pub fn replenish(&mut self, mut mint: impl FnMut() -> (ConnectionId, ResetToken)) {
        if self.zero_length {
            return;
        }
        let limit = u64::from(self.own_limit).min(self.peer_limit) as usize;
        for _ in self.usable()..limit {
            let (cid, reset_token) = mint();
            self.add(cid, reset_token, Delivery::Due);
        }
    }

    /// Asks the peer to retire all connection IDs issued so far; replacements
    /// follow with [`LocalCids::replenish`]. The old ones stay valid until the peer has retired
    /// them. Returns false, and changes nothing, if an earlier rotation is unfinished or our
    /// connection IDs have zero length.
    pub fn rotate(&mut self) -> bool {
        let unfinished = self
            .issued
            .first()
            .is_some_and(|c| c.sequence < self.retire_prior_to);
        if self.zero_length || unfinished {
            return false;
        }
        self.retire_prior_to = self.next_sequence;
        true
    }

    /// Returns the next NEW_CONNECTION_ID frame to send and marks it as sent.
    pub fn next_to_send(&mut self) -> Option<NewCid> {
        let retire_prior_to = self.retire_prior_to;
        let due = self
            .issued
            .iter_mut()
            .find(|c| c.delivery == Delivery::Due)?;
        due.delivery = Delivery::InFlight;
        self.highest_sent = self.highest_sent.max(due.sequence);
        Some(NewCid {
            sequence: due.sequence,
            // A connection ID from before the rotation cannot announce it, because the
            // field must not exceed the sequence number (RFC 9000 §19.15).
            retire_prior_to: retire_prior_to.min(due.sequence),
            cid: due.cid,
            reset_token: due.reset_token,
        })
    }

    /// Returns whether [`LocalCids::next_to_send`] would return a frame.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.issued.iter().any(|c| c.delivery == Delivery::Due)
    }

    /// Called when a packet with the NEW_CONNECTION_ID frame of this sequence number is
    /// acknowledged.
    pub fn on_acked(&mut self, sequence: u64) {
        if let Some(issued) = self.find(sequence) {
            issued.delivery = Delivery::Known;
        }
    }

    /// Called when a packet with the NEW_CONNECTION_ID frame of this sequence number is lost.
    pub fn on_lost(&mut self, sequence: u64) {
        if let Some(issued) = self.find(sequence)
            && issued.delivery == Delivery::InFlight
        {
            issued.delivery = Delivery::Due;
        }
    }

    /// Handles a RETIRE_CONNECTION_ID frame from a packet with the destination connection ID
    /// `carried_by`. A repetition has no effect.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION for a sequence number that was never sent, for the connection ID of
    /// the packet itself, and if our connection IDs have zero length (RFC 9000 §19.16).
    pub fn on_retire(
        &mut self,
        sequence: u64,
        carried_by: &ConnectionId,
    ) -> Result<(), TransportError> {
        let violation = |reason| Err(TransportError::new(Code::PROTOCOL_VIOLATION, reason));
        if self.zero_length {
            return violation(
                "RETIRE_CONNECTION_ID received, but our connection IDs have zero length",
            );
        }
        if sequence > self.highest_sent {
            return violation("RETIRE_CONNECTION_ID for a sequence number that was never issued");
        }
        let Some(retired) = self.find(sequence).map(|issued| issued.cid) else {
            return Ok(());
        };
        if retired == *carried_by {
            return violation("RETIRE_CONNECTION_ID for the connection ID of its own packet");
        }
        self.issued.retain(|issued| issued.sequence != sequence);
        self.changes.push_back(RoutingChange::Remove(retired));
        Ok(())
    }

    /// Returns the next change of the endpoint's routing table, in order.
    pub fn routing_change(&mut self) -> Option<RoutingChange> {
        self.changes.pop_front()
    }

    /// Returns the connection IDs that are routed to this connection, oldest first.
    #[cfg(any(test, feature = "testing"))]
    pub fn issued(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.issued.iter().map(|c| c.cid)
    }

    /// Frees memory that is kept for reuse.
    pub fn release_memory(&mut self) {
        self.changes.shrink_to_fit();
    }

    /// Returns the allocated memory in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory::small_vec(&self.issued).saturating_add(memory::vec_deque(&self.changes))
    }

    /// Returns how many the peer may keep after it has obeyed our Retire Prior To.
    fn usable(&self) -> usize {
        self.issued
            .iter()
            .filter(|c| c.sequence >= self.retire_prior_to)
            .count()
    }

    fn find(&mut self, sequence: u64) -> Option<&mut Issued> {
        self.issued.iter_mut().find(|c| c.sequence == sequence)
    }

    fn add(&mut self, cid: ConnectionId, reset_token: ResetToken, delivery: Delivery) {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.saturating_add(1);
        self.issued.push(Issued {
            sequence,
            cid,
            reset_token,
            delivery,
        });
        self.changes.push_back(RoutingChange::Add(cid));
    }
}

#[cfg(test)]
mod tests;
