//! The connection IDs that the peer issues and we send to, one per path.

use smallvec::SmallVec;
use subtle::{Choice, ConstantTimeEq};

use super::{ConnectionId, NewCid, ResetToken};
use clearway_recovery::PathId;

use crate::error::{Code, TransportError};
use crate::memory;

/// Default active_connection_id_limit. It is enough for the path in use, its successor, and
/// probes while both change.
pub(crate) const DEFAULT_LIMIT: u64 = 4;

/// Largest number of unacknowledged RETIRE_CONNECTION_ID frames, as a multiple of our limit. If
/// there are more, we close the connection (RFC 9000 §5.1.2 asks for at least 2).
const RETIRE_BACKLOG_PER_CID: usize = 4;

/// Largest number of gaps in the received sequence numbers. The peer has to count by one, so
/// gaps are frames in flight; no honest peer has as many.
const MAX_GAPS: usize = 32;

/// A connection ID that the peer has issued and we have not retired.
#[derive(Clone, Copy, Debug)]
struct PeerCid {
    sequence: u64,
    cid: ConnectionId,
    reset_token: Option<ResetToken>,
    path: Option<PathId>,
}

/// A RETIRE_CONNECTION_ID frame that the peer has not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Retiring {
    sequence: u64,
    due: bool,
}

/// The peer's connection IDs, the paths that use them, and those to be retired.
#[derive(Clone, Debug)]
pub struct RemoteCids {
    /// Ordered by sequence number; at most `limit`.
    cids: SmallVec<[PeerCid; DEFAULT_LIMIT as usize]>,
    /// Sequence numbers received from `retire_prior_to` on, as ranges
    /// `(first, end)` in order. A number in `seen` but not in `cids` was retired.
    seen: SmallVec<[(u64, u64); 2]>,
    retiring: SmallVec<[Retiring; 1]>,
    /// Paths that wait for a connection ID, in the order in which they get one.
    waiting: SmallVec<[PathId; 2]>,
    retire_prior_to: u64,
    limit: u64,
    zero_length: bool,
    /// Random bits, one for each connection ID in turn: the spin bit.
    spin: u8,
    /// Whether the result of `reset_tokens` may have changed.
    tokens_changed: bool,
}

impl RemoteCids {
    /// Creates the set with the destination connection ID of our first packet, in use on `path`.
    /// `limit` is the active_connection_id_limit that we announce, at least 2.
    #[must_use]
    pub fn new(first: ConnectionId, path: PathId, limit: u64) -> Self {
        let mut cids = SmallVec::new();
        cids.push(PeerCid {
            sequence: 0,
            cid: first,
            reset_token: None,
            path: Some(path),
        });
        Self {
            cids,
            seen: SmallVec::from_slice(&[(0, 1)]),
            retiring: SmallVec::new(),
            waiting: SmallVec::new(),
            retire_prior_to: 0,
            limit: limit.max(2),
            zero_length: first.is_empty(),
            spin: 0,
            tokens_changed: false,
        }
    }

    /// Sets the random bits that spin bits are taken from.
    pub(crate) fn set_spin(&mut self, random: u8) {
        self.spin = random;
    }

    /// Returns the connection ID for packets on `path`, empty if the path has none now, and their
    /// spin bit: a random bit for each connection ID, since we do not measure with it (RFC 9000
    /// §17.4).
    #[inline]
    pub(crate) fn cid_and_spin(&self, path: PathId) -> (ConnectionId, bool) {
        let (cid, sequence) = self
            .for_path(path)
            .map_or((ConnectionId::EMPTY, 0), |c| (c.cid, c.sequence));
        let spin = self.spin.rotate_right((sequence % 8) as u32) & 1 == 1;
        (cid, spin)
    }

    /// Replaces a client's first destination connection ID by the source connection ID of a Retry
    /// or of the server's first packet (RFC 9000 §7.2).
    pub(crate) fn replace_first(&mut self, cid: ConnectionId) {
        self.zero_length = cid.is_empty();
        if let Some(first) = self.cids.iter_mut().find(|c| c.sequence == 0) {
            first.cid = cid;
        }
    }

    /// Sets the server's stateless_reset_token transport parameter, which belongs to the
    /// connection ID of the handshake.
    pub fn set_first_reset_token(&mut self, token: ResetToken) {
        if let Some(first) = self.cids.iter_mut().find(|c| c.sequence == 0) {
            first.reset_token = Some(token);
            self.tokens_changed = true;
        }
    }

    /// Adds the connection ID of the server's preferred_address transport parameter, which has
    /// sequence number 1.
    ///
    /// # Errors
    /// TRANSPORT_PARAMETER_ERROR if it, or the server's connection ID of the handshake, has zero
    /// length (RFC 9000 §18.2).
    pub(crate) fn on_preferred(
        &mut self,
        cid: ConnectionId,
        reset_token: ResetToken,
        active: PathId,
    ) -> Result<(), TransportError> {
        if self.zero_length || cid.is_empty() {
            return Err(TransportError::new(
                Code::TRANSPORT_PARAMETER_ERROR,
                "preferred_address with a zero-length connection ID",
            ));
        }
        let new = NewCid {
            sequence: 1,
            retire_prior_to: 0,
            cid,
            reset_token,
        };
        self.on_new(new, active)
    }

    /// Handles a NEW_CONNECTION_ID frame (RFC 9000 §5.1.2, §19.15). Paths whose connection ID it
    /// retires get unused ones, first `active`, the path that carries data. If there are not
    /// enough, the other paths have none until more arrive.
    ///
    /// # Errors
    /// - PROTOCOL_VIOLATION: the peer uses zero-length connection IDs, or a sequence number, a
    ///   connection ID or a token is used twice.
    /// - FRAME_ENCODING_ERROR: Retire Prior To is above the sequence number, or the connection
    ///   ID has zero length.
    /// - CONNECTION_ID_LIMIT_ERROR: more connection IDs than we allow, or too many to retire.
    pub fn on_new(&mut self, new: NewCid, active: PathId) -> Result<(), TransportError> {
        self.check(&new)?;
        if new.retire_prior_to > self.retire_prior_to {
            self.retire_before(new.retire_prior_to);
        }
        if new.sequence < self.retire_prior_to {
            self.retire(new.sequence);
        } else if self.note_received(new.sequence)? {
            let at = self.cids.partition_point(|c| c.sequence < new.sequence);
            let added = PeerCid {
                sequence: new.sequence,
                cid: new.cid,
                reset_token: Some(new.reset_token),
                path: None,
            };
            self.cids.insert(at, added);
        }
        self.assign_to_waiting(active);
        self.check_limits()
    }

    /// Returns the connection ID for packets on `path`, or `None` if the path has none now.
    #[must_use]
    pub fn cid(&self, path: PathId) -> Option<ConnectionId> {
        if self.zero_length {
            return Some(ConnectionId::EMPTY);
        }
        self.for_path(path).map(|c| c.cid)
    }

    /// Returns whether packets can be sent on `path`.
    #[inline]
    pub(crate) fn has_cid(&self, path: PathId) -> bool {
        self.zero_length || self.for_path(path).is_some()
    }

    /// Returns the sequence number of the connection ID in use on `path`.
    #[must_use]
    pub fn sequence(&self, path: PathId) -> Option<u64> {
        self.for_path(path).map(|c| c.sequence)
    }

    /// Assigns a connection ID that no other path uses to `path` (RFC 9000 §9.5). Returns `None`
    /// if there is none; the path then gets the next one that arrives.
    pub fn assign(&mut self, path: PathId) -> Option<ConnectionId> {
        if self.cid(path).is_none() && !self.waiting.contains(&path) {
            self.waiting.push(path);
            self.assign_to_waiting(path);
        }
        self.cid(path)
    }

    /// Replaces the connection ID of `path` by an unused one and retires the old one. Returns
    /// false, and changes nothing, if there is no unused one.
    pub fn switch(&mut self, path: PathId) -> bool {
        let Some(old) = self.sequence(path) else {
            return false;
        };
        if self.zero_length || self.unused() == 0 {
            return false;
        }
        self.remove(old);
        self.retire(old);
        self.assign(path).is_some()
    }

    /// Retires the connection ID of `path`, which is abandoned.
    pub fn release(&mut self, path: PathId) {
        self.waiting.retain(|p| *p != path);
        if self.zero_length {
            return;
        }
        if let Some(old) = self.sequence(path) {
            self.remove(old);
            self.retire(old);
        }
    }

    /// Sets the path that carries data now. If the peer migrated there and no connection ID is
    /// unused, the path takes over that of another path. Otherwise we could not send on the only
    /// path where the peer listens, not even RETIRE_CONNECTION_ID, and the peer would never issue
    /// new ones (RFC 9000 §9.3).
    pub fn set_active(&mut self, path: PathId) {
        if self.cid(path).is_some() {
            return;
        }
        let newest = self.cids.iter_mut().rev().find(|c| c.path.is_some());
        if let Some(held) = newest {
            let other = held.path.replace(path);
            self.waiting.retain(|p| *p != path);
            self.waiting.extend(other);
        }
    }

    /// Returns the paths with a connection ID, then those that wait for one.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + '_ {
        let held = self.cids.iter().filter_map(|held| held.path);
        held.chain(self.waiting.iter().copied())
    }

    /// Returns whether another path could get a connection ID now.
    #[must_use]
    pub fn can_assign(&self) -> bool {
        self.zero_length || self.unused() > self.waiting.len()
    }

    /// Returns the number of unused connection IDs.
    #[must_use]
    pub fn unused(&self) -> usize {
        self.cids.iter().filter(|c| c.path.is_none()).count()
    }

    /// Returns the sequence number of the next RETIRE_CONNECTION_ID frame and marks it as sent.
    pub fn next_retire(&mut self) -> Option<u64> {
        let next = self.retiring.iter_mut().find(|r| r.due)?;
        next.due = false;
        Some(next.sequence)
    }

    /// Returns whether [`RemoteCids::next_retire`] would return a frame.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.retiring.iter().any(|r| r.due)
    }

    /// Called when a packet with this RETIRE_CONNECTION_ID frame is acknowledged.
    pub fn on_retire_acked(&mut self, sequence: u64) {
        self.retiring.retain(|r| r.sequence != sequence);
    }

    /// Called when a packet with this RETIRE_CONNECTION_ID frame is lost.
    pub fn on_retire_lost(&mut self, sequence: u64) {
        if let Some(lost) = self.retiring.iter_mut().find(|r| r.sequence == sequence) {
            lost.due = true;
        }
    }

    /// Returns whether the last 16 bytes of a datagram are a stateless reset of this connection.
    /// They are compared in constant time with the token of every
    /// connection ID that we sent to and have not retired, and with no other
    /// (RFC 9000 §10.3.1).
    #[must_use]
    pub(crate) fn is_reset(&self, tail: &[u8; 16]) -> bool {
        self.reset_tokens()
            .fold(Choice::from(0), |found, token| found | token.0.ct_eq(tail))
            .into()
    }

    /// Returns whether [`RemoteCids::reset_tokens`] may have changed since the last call.
    pub(crate) fn take_tokens_changed(&mut self) -> bool {
        core::mem::take(&mut self.tokens_changed)
    }

    /// Returns the tokens that `is_reset` compares with.
    pub fn reset_tokens(&self) -> impl Iterator<Item = ResetToken> + '_ {
        self.cids
            .iter()
            .filter(|c| c.path.is_some())
            .filter_map(|c| c.reset_token)
    }

    /// Returns the allocated memory in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory::small_vec(&self.cids)
            .saturating_add(memory::small_vec(&self.seen))
            .saturating_add(memory::small_vec(&self.retiring))
            .saturating_add(memory::small_vec(&self.waiting))
    }

    fn for_path(&self, path: PathId) -> Option<&PeerCid> {
        self.cids.iter().find(|c| c.path == Some(path))
    }

    /// Checks a new connection ID against the rules for the frame and those already received.
    fn check(&self, new: &NewCid) -> Result<(), TransportError> {
        let err = |code, reason| Err(TransportError::new(code, reason));
        if self.zero_length {
            return err(
                Code::PROTOCOL_VIOLATION,
                "NEW_CONNECTION_ID from a peer with zero-length connection IDs",
            );
        }
        if new.retire_prior_to > new.sequence {
            return err(
                Code::FRAME_ENCODING_ERROR,
                "Retire Prior To above the sequence number",
            );
        }
        if new.cid.is_empty() {
            return err(
                Code::FRAME_ENCODING_ERROR,
                "NEW_CONNECTION_ID with a zero-length connection ID",
            );
        }
        for held in &self.cids {
            let same_cid = held.cid == new.cid;
            let same_token = held.reset_token == Some(new.reset_token);
            if held.sequence == new.sequence && !(same_cid && same_token) {
                return err(
                    Code::PROTOCOL_VIOLATION,
                    "sequence number reused for another connection ID or reset token",
                );
            }
            if held.sequence != new.sequence && (same_cid || same_token) {
                return err(
                    Code::PROTOCOL_VIOLATION,
                    "connection ID or reset token reused under another sequence number",
                );
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), TransportError> {
        let err = |reason| Err(TransportError::new(Code::CONNECTION_ID_LIMIT_ERROR, reason));
        if self.cids.len() as u64 > self.limit {
            return err("more connection IDs than active_connection_id_limit allows");
        }
        let backlog = usize::try_from(self.limit)
            .unwrap_or(usize::MAX)
            .saturating_mul(RETIRE_BACKLOG_PER_CID);
        if self.retiring.len() > backlog {
            return err("too many connection IDs waiting to be retired");
        }
        Ok(())
    }

    /// Records a sequence number at or above `retire_prior_to`. Returns false if it was received
    /// before.
    fn note_received(&mut self, sequence: u64) -> Result<bool, TransportError> {
        // Below 2^62 (RFC 9000 §16).
        let end = sequence.saturating_add(1);
        let at = self.seen.partition_point(|r| r.1 < sequence);
        match self.seen.get_mut(at) {
            Some(r) if r.0 <= sequence && sequence < r.1 => return Ok(false),
            Some(r) if r.1 == sequence => r.1 = end,
            Some(r) if r.0 == end => r.0 = sequence,
            Some(_) | None => self.seen.insert(at, (sequence, end)),
        }
        // The gap before the next range may be closed now.
        self.seen.dedup_by(|next, range| {
            let touches = range.1 == next.0;
            if touches {
                range.1 = next.1;
            }
            touches
        });
        if self.seen.len() > MAX_GAPS {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "connection ID sequence numbers do not increase by one",
            ));
        }
        Ok(true)
    }

    /// Retires all connection IDs with sequence numbers below `prior`.
    fn retire_before(&mut self, prior: u64) {
        self.retire_prior_to = prior;
        while let Some(old) = self.cids.first().copied()
            && old.sequence < prior
        {
            self.cids.remove(0);
            self.retire(old.sequence);
            if let Some(path) = old.path {
                self.waiting.push(path);
            }
        }
        for range in &mut self.seen {
            range.0 = range.0.max(prior);
        }
        self.seen.retain(|r| r.0 < r.1);
    }

    /// Assigns unused connection IDs to the paths that wait for one, `first` before the others.
    fn assign_to_waiting(&mut self, first: PathId) {
        while !self.waiting.is_empty() {
            let Some(free) = self.cids.iter_mut().find(|c| c.path.is_none()) else {
                return;
            };
            let at = self.waiting.iter().position(|p| *p == first);
            free.path = Some(self.waiting.remove(at.unwrap_or(0)));
            self.tokens_changed = true;
        }
    }

    fn retire(&mut self, sequence: u64) {
        if self.retiring.iter().all(|r| r.sequence != sequence) {
            self.retiring.push(Retiring {
                sequence,
                due: true,
            });
        }
    }

    fn remove(&mut self, sequence: u64) {
        self.cids.retain(|c| c.sequence != sequence);
        self.tokens_changed = true;
    }
}

#[cfg(test)]
mod tests;
