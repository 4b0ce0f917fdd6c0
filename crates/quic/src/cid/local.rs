//! Connection IDs that we issued: what the peer may send to.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{ConnectionId, NewCid, ResetToken};
use crate::error::{Code, TransportError};
use crate::memory;

/// Most connection IDs we keep issued at a time, whatever the configuration.
/// Each one is an entry in the endpoint's table.
pub const MAX_ISSUED: usize = 8;

/// Those for which no memory is allocated.
const USUALLY_ISSUED: usize = 4;

/// active_connection_id_limit of a peer that did not send it (RFC 9000 §18.2).
pub const DEFAULT_ACTIVE_LIMIT: u64 = 2;

/// What the endpoint's table has to learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingChange {
    /// Datagrams with this connection ID belong to the connection.
    Add(ConnectionId),
    /// They no longer do.
    Remove(ConnectionId),
}

/// How the peer learns of a connection ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// A NEW_CONNECTION_ID frame has to be sent, for the first time or again.
    Due,
    /// One is on its way.
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

/// The connection IDs we issued and the peer has not retired.
///
/// After the peer's limit is known, after each received datagram and after
/// [`LocalCids::rotate`], call [`LocalCids::replenish`], then hand
/// [`LocalCids::routing_change`] to the endpoint. Frames come from
/// [`LocalCids::next_to_send`].
#[derive(Debug)]
pub struct LocalCids {
    /// In order of their sequence numbers; at most twice [`MAX_ISSUED`].
    issued: SmallVec<[Issued; USUALLY_ISSUED]>,
    next_sequence: u64,
    /// Highest sequence number that has left for the peer.
    highest_sent: u64,
    retire_prior_to: u64,
    peer_limit: u64,
    own_limit: usize,
    zero_length: bool,
    changes: VecDeque<RoutingChange>,
}

impl LocalCids {
    /// Starts with the connection ID that our handshake packets carry as their
    /// source, sequence number 0. `own_limit` is how many to keep issued, 1 to
    /// [`MAX_ISSUED`].
    ///
    /// `reset_token` is that of the first connection ID, which only a server's
    /// transport parameters can tell; a client passes any value. The endpoint
    /// is told of this connection ID too.
    #[must_use]
    pub fn new(first: ConnectionId, reset_token: ResetToken, own_limit: usize) -> Self {
        let mut cids = Self {
            issued: SmallVec::new(),
            next_sequence: 0,
            highest_sent: 0,
            retire_prior_to: 0,
            peer_limit: DEFAULT_ACTIVE_LIMIT,
            own_limit: own_limit.clamp(1, MAX_ISSUED),
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
    /// sequence number 1 (RFC 9000 §5.1.1). Before [`LocalCids::replenish`].
    ///
    /// # Errors
    /// INTERNAL_ERROR if sequence number 1 is taken or our connection IDs are
    /// empty: both would be mistakes of ours.
    pub(crate) fn issue_preferred(
        &mut self,
        cid: ConnectionId,
        reset_token: ResetToken,
    ) -> Result<(), TransportError> {
        if self.zero_length || self.next_sequence != 1 {
            return Err(TransportError::new(
                Code::INTERNAL_ERROR,
                "the preferred address needs connection ID 1, which is not free",
            ));
        }
        self.highest_sent = 1;
        self.add(cid, reset_token, Delivery::Known);
        Ok(())
    }

    /// The peer's active_connection_id_limit transport parameter (below 2 is
    /// for the parser to refuse, RFC 9000 §18.2).
    pub fn set_peer_limit(&mut self, limit: u64) {
        self.peer_limit = limit.max(DEFAULT_ACTIVE_LIMIT);
    }

    /// Issues connection IDs up to the limit. `mint` makes one with its reset
    /// token; called a bounded number of times, and never while the peer
    /// retires nothing.
    pub fn replenish(&mut self, mut mint: impl FnMut() -> (ConnectionId, ResetToken)) {
        if self.zero_length {
            return;
        }
        let limit = (self.own_limit as u64).min(self.peer_limit) as usize;
        for _ in self.usable()..limit {
            let (cid, reset_token) = mint();
            self.add(cid, reset_token, Delivery::Due);
        }
    }

    /// Asks the peer to retire all connection IDs issued so far; replacements
    /// follow with [`LocalCids::replenish`]. The old ones still lead here until
    /// the peer complies. False if an earlier rotation is unfinished or our
    /// connection IDs are empty: then nothing changes.
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

    /// The next NEW_CONNECTION_ID frame to send, taken as sent.
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
            // A connection ID older than the rotation cannot announce it: the
            // field must not exceed the sequence number (RFC 9000 §19.15).
            retire_prior_to: retire_prior_to.min(due.sequence),
            cid: due.cid,
            reset_token: due.reset_token,
        })
    }

    /// Whether [`LocalCids::next_to_send`] has something.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.issued.iter().any(|c| c.delivery == Delivery::Due)
    }

    /// A packet with the NEW_CONNECTION_ID frame of this number was acknowledged.
    pub fn on_acked(&mut self, sequence: u64) {
        if let Some(issued) = self.find(sequence) {
            issued.delivery = Delivery::Known;
        }
    }

    /// A packet with the NEW_CONNECTION_ID frame of this number was lost.
    pub fn on_lost(&mut self, sequence: u64) {
        if let Some(issued) = self.find(sequence)
            && issued.delivery == Delivery::InFlight
        {
            issued.delivery = Delivery::Due;
        }
    }

    /// A RETIRE_CONNECTION_ID frame came in a packet whose destination was
    /// `carried_by`. Retiring twice is harmless.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION for a number never sent, for the connection ID of
    /// the packet itself, and if ours are empty (RFC 9000 §19.16).
    pub fn on_retire(
        &mut self,
        sequence: u64,
        carried_by: &ConnectionId,
    ) -> Result<(), TransportError> {
        let violation = |reason| Err(TransportError::new(Code::PROTOCOL_VIOLATION, reason));
        if self.zero_length {
            return violation("retires a connection ID although ours are empty");
        }
        if sequence > self.highest_sent {
            return violation("retires a connection ID that was never issued");
        }
        let Some(retired) = self.find(sequence).map(|issued| issued.cid) else {
            return Ok(());
        };
        if retired == *carried_by {
            return violation("retires the connection ID that its own packet uses");
        }
        self.issued.retain(|issued| issued.sequence != sequence);
        self.changes.push_back(RoutingChange::Remove(retired));
        Ok(())
    }

    /// The next change for the endpoint's table, in order.
    pub fn routing_change(&mut self) -> Option<RoutingChange> {
        self.changes.pop_front()
    }

    /// The connection IDs that lead to this connection, oldest first.
    pub fn issued(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.issued.iter().map(|c| c.cid)
    }

    /// Gives back the memory that is held for reuse.
    pub fn release_memory(&mut self) {
        self.changes.shrink_to_fit();
    }

    /// Bytes allocated.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory::small_vec(&self.issued).saturating_add(memory::vec_deque(&self.changes))
    }

    /// Those the peer may hold after it obeyed our Retire Prior To.
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
#[path = "local_tests.rs"]
mod tests;
