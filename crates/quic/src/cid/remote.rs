//! Connection IDs that the peer issued: what we send to, one per path.

use smallvec::SmallVec;
use subtle::{Choice, ConstantTimeEq};

use super::{ConnectionId, NewCid, ResetToken};
use crate::error::{Code, TransportError};
use crate::memory;
use crate::path::PathId;

/// Our active_connection_id_limit unless configured: a path in use, its
/// successor, and room to probe while both change.
pub const DEFAULT_LIMIT: u64 = 4;

/// RETIRE_CONNECTION_ID frames unacknowledged, as a multiple of our limit,
/// before we close (RFC 9000 §5.1.2 asks for at least 2).
const RETIRE_BACKLOG_PER_CID: usize = 4;

/// Holes in the peer's numbering that we remember. It has to count by one, so
/// holes are frames under way; no honest peer has as many.
const MAX_HOLES: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Held {
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

/// The peer's connection IDs, which path uses which, and those to be retired.
#[derive(Clone, Debug)]
pub struct RemoteCids {
    /// In order of their sequence numbers; at most `limit`.
    held: SmallVec<[Held; DEFAULT_LIMIT as usize]>,
    /// Sequence numbers received from `retire_prior_to` on, as ranges
    /// `(first, end)` in order. What is seen but not held was retired.
    seen: SmallVec<[(u64, u64); 2]>,
    retiring: SmallVec<[Retiring; 1]>,
    /// Paths without a connection ID, in the order in which they get one.
    wanting: SmallVec<[PathId; 2]>,
    retire_prior_to: u64,
    limit: u64,
    zero_length: bool,
    /// `reset_tokens` may answer otherwise than before.
    tokens_changed: bool,
}

impl RemoteCids {
    /// Starts with the connection ID that our first packet is sent to, on the
    /// path `path`. `limit` is the active_connection_id_limit that we
    /// announce, at least 2.
    #[must_use]
    pub fn new(first: ConnectionId, path: PathId, limit: u64) -> Self {
        let mut held = SmallVec::new();
        held.push(Held {
            sequence: 0,
            cid: first,
            reset_token: None,
            path: Some(path),
        });
        Self {
            held,
            seen: SmallVec::from_slice(&[(0, 1)]),
            retiring: SmallVec::new(),
            wanting: SmallVec::new(),
            retire_prior_to: 0,
            limit: limit.max(2),
            zero_length: first.is_empty(),
            tokens_changed: false,
        }
    }

    /// Client: replaces the connection ID of the handshake, by that of a Retry
    /// packet or by the source of the server's first packet (RFC 9000 §7.2).
    pub(crate) fn replace_first(&mut self, cid: ConnectionId) {
        self.zero_length = cid.is_empty();
        if let Some(first) = self.held.iter_mut().find(|c| c.sequence == 0) {
            first.cid = cid;
        }
    }

    /// Client: the stateless_reset_token transport parameter, which belongs to
    /// the connection ID of the handshake.
    pub fn set_first_reset_token(&mut self, token: ResetToken) {
        if let Some(first) = self.held.iter_mut().find(|c| c.sequence == 0) {
            first.reset_token = Some(token);
            self.tokens_changed = true;
        }
    }

    /// Client: the connection ID of the preferred_address transport parameter,
    /// sequence number 1.
    ///
    /// # Errors
    /// TRANSPORT_PARAMETER_ERROR if it is empty or the server's connection IDs
    /// are (RFC 9000 §18.2).
    pub(crate) fn on_preferred(
        &mut self,
        cid: ConnectionId,
        reset_token: ResetToken,
        active: PathId,
    ) -> Result<(), TransportError> {
        if self.zero_length || cid.is_empty() {
            return Err(TransportError::new(
                Code::TRANSPORT_PARAMETER_ERROR,
                "preferred_address with an empty connection ID",
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

    /// A NEW_CONNECTION_ID frame (RFC 9000 §5.1.2, §19.15). Paths whose
    /// connection ID it retires get fresh ones, `active`, the one that carries data,
    /// first; a path left over has none until more arrive.
    ///
    /// # Errors
    /// - PROTOCOL_VIOLATION: we send to an empty connection ID, or a number, a
    ///   connection ID or a token is used twice.
    /// - FRAME_ENCODING_ERROR: Retire Prior To above the number, or empty.
    /// - CONNECTION_ID_LIMIT_ERROR: more than we allowed, or more to retire
    ///   than we keep track of.
    pub fn on_new(&mut self, new: NewCid, active: PathId) -> Result<(), TransportError> {
        self.check(&new)?;
        if new.retire_prior_to > self.retire_prior_to {
            self.retire_before(new.retire_prior_to);
        }
        if new.sequence < self.retire_prior_to {
            self.retire(new.sequence);
        } else if self.see(new.sequence)? {
            let at = self.held.partition_point(|c| c.sequence < new.sequence);
            let held = Held {
                sequence: new.sequence,
                cid: new.cid,
                reset_token: Some(new.reset_token),
                path: None,
            };
            self.held.insert(at, held);
        }
        self.serve_wanting(active);
        self.check_limits()
    }

    /// The connection ID for packets on `path`; `None` if it has none now.
    #[must_use]
    pub fn cid(&self, path: PathId) -> Option<ConnectionId> {
        if self.zero_length {
            return Some(ConnectionId::EMPTY);
        }
        self.of(path).map(|c| c.cid)
    }

    /// The sequence number of the connection ID in use on `path`.
    #[must_use]
    pub fn sequence(&self, path: PathId) -> Option<u64> {
        self.of(path).map(|c| c.sequence)
    }

    /// Gives `path` a connection ID no other path uses (RFC 9000 §9.5). With
    /// none free the answer is `None`, and the path gets the next to arrive.
    pub fn assign(&mut self, path: PathId) -> Option<ConnectionId> {
        if self.cid(path).is_none() && !self.wanting.contains(&path) {
            self.wanting.push(path);
            self.serve_wanting(path);
        }
        self.cid(path)
    }

    /// Replaces the connection ID of `path` by an unused one and retires the
    /// old. False, and nothing changes, if there is no other.
    pub fn switch(&mut self, path: PathId) -> bool {
        let Some(old) = self.sequence(path) else {
            return false;
        };
        if self.zero_length || self.unused() == 0 {
            return false;
        }
        self.drop_held(old);
        self.retire(old);
        self.assign(path).is_some()
    }

    /// `path` is abandoned: its connection ID is retired.
    pub fn release(&mut self, path: PathId) {
        self.wanting.retain(|p| *p != path);
        if self.zero_length {
            return;
        }
        if let Some(old) = self.sequence(path) {
            self.drop_held(old);
            self.retire(old);
        }
    }

    /// The path that carries data now. If the peer moved there and has left no
    /// connection ID unused, the path takes over that of another: the one that
    /// has to hear us must not be the one that waits, or neither end could
    /// ever say what the other waits for (RFC 9000 §9.3).
    pub fn set_active(&mut self, path: PathId) {
        if self.cid(path).is_some() {
            return;
        }
        let newest = self.held.iter_mut().rev().find(|c| c.path.is_some());
        if let Some(held) = newest {
            let other = held.path.replace(path);
            self.wanting.retain(|p| *p != path);
            self.wanting.extend(other);
        }
    }

    /// The paths with a connection ID, and those that wait for one.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + '_ {
        let held = self.held.iter().filter_map(|held| held.path);
        held.chain(self.wanting.iter().copied())
    }

    /// Whether another path could get a connection ID now.
    #[must_use]
    pub fn can_assign(&self) -> bool {
        self.zero_length || self.unused() > self.wanting.len()
    }

    /// How many more paths could get a connection ID.
    #[must_use]
    pub fn unused(&self) -> usize {
        self.held.iter().filter(|c| c.path.is_none()).count()
    }

    /// The next RETIRE_CONNECTION_ID frame to send, taken as sent.
    pub fn next_retire(&mut self) -> Option<u64> {
        let next = self.retiring.iter_mut().find(|r| r.due)?;
        next.due = false;
        Some(next.sequence)
    }

    /// Whether [`RemoteCids::next_retire`] has something.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.retiring.iter().any(|r| r.due)
    }

    /// A packet with this RETIRE_CONNECTION_ID frame was acknowledged.
    pub fn on_retire_acked(&mut self, sequence: u64) {
        self.retiring.retain(|r| r.sequence != sequence);
    }

    /// A packet with this RETIRE_CONNECTION_ID frame was lost.
    pub fn on_retire_lost(&mut self, sequence: u64) {
        if let Some(lost) = self.retiring.iter_mut().find(|r| r.sequence == sequence) {
            lost.due = true;
        }
    }

    /// Whether the last 16 bytes of a datagram are a stateless reset of this
    /// connection. Compared in constant time with the token of every
    /// connection ID that we sent to and have not retired, and with no other
    /// (RFC 9000 §10.3.1).
    #[must_use]
    pub(crate) fn is_reset(&self, tail: &[u8; 16]) -> bool {
        self.reset_tokens()
            .fold(Choice::from(0), |found, token| found | token.0.ct_eq(tail))
            .into()
    }

    /// Whether [`RemoteCids::reset_tokens`] may have changed since last asked.
    pub(crate) fn take_tokens_changed(&mut self) -> bool {
        core::mem::take(&mut self.tokens_changed)
    }

    /// The tokens that `is_reset` compares with.
    pub fn reset_tokens(&self) -> impl Iterator<Item = ResetToken> + '_ {
        self.held
            .iter()
            .filter(|c| c.path.is_some())
            .filter_map(|c| c.reset_token)
    }

    /// Bytes allocated.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory::small_vec(&self.held)
            .saturating_add(memory::small_vec(&self.seen))
            .saturating_add(memory::small_vec(&self.retiring))
            .saturating_add(memory::small_vec(&self.wanting))
    }

    fn of(&self, path: PathId) -> Option<&Held> {
        self.held.iter().find(|c| c.path == Some(path))
    }

    /// What can be judged from the frame and what is held.
    fn check(&self, new: &NewCid) -> Result<(), TransportError> {
        let err = |code, reason| Err(TransportError::new(code, reason));
        if self.zero_length {
            return err(
                Code::PROTOCOL_VIOLATION,
                "new connection ID from a peer whose connection IDs are empty",
            );
        }
        if new.retire_prior_to > new.sequence {
            return err(
                Code::FRAME_ENCODING_ERROR,
                "Retire Prior To above the sequence number",
            );
        }
        if new.cid.is_empty() {
            return err(Code::FRAME_ENCODING_ERROR, "empty new connection ID");
        }
        for held in &self.held {
            let same_cid = held.cid == new.cid;
            let same_token = held.reset_token == Some(new.reset_token);
            if held.sequence == new.sequence && !(same_cid && same_token) {
                return err(
                    Code::PROTOCOL_VIOLATION,
                    "two connection IDs or tokens with one sequence number",
                );
            }
            if held.sequence != new.sequence && (same_cid || same_token) {
                return err(
                    Code::PROTOCOL_VIOLATION,
                    "a connection ID or reset token under two sequence numbers",
                );
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), TransportError> {
        let err = |reason| Err(TransportError::new(Code::CONNECTION_ID_LIMIT_ERROR, reason));
        if self.held.len() as u64 > self.limit {
            return err("more connection IDs than active_connection_id_limit");
        }
        let backlog = usize::try_from(self.limit)
            .unwrap_or(usize::MAX)
            .saturating_mul(RETIRE_BACKLOG_PER_CID);
        if self.retiring.len() > backlog {
            return err("more connection IDs to retire than are kept track of");
        }
        Ok(())
    }

    /// Notes a number at or above `retire_prior_to`; false if seen before.
    fn see(&mut self, sequence: u64) -> Result<bool, TransportError> {
        // Below 2^62 (RFC 9000 §16).
        let end = sequence.saturating_add(1);
        let at = self.seen.partition_point(|r| r.1 < sequence);
        match self.seen.get_mut(at) {
            Some(r) if r.0 <= sequence && sequence < r.1 => return Ok(false),
            Some(r) if r.1 == sequence => r.1 = end,
            Some(r) if r.0 == end => r.0 = sequence,
            Some(_) | None => self.seen.insert(at, (sequence, end)),
        }
        // The hole before the next range may be closed now.
        self.seen.dedup_by(|next, range| {
            let touches = range.1 == next.0;
            if touches {
                range.1 = next.1;
            }
            touches
        });
        if self.seen.len() > MAX_HOLES {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "connection ID sequence numbers do not increase by one",
            ));
        }
        Ok(true)
    }

    /// Stops using and retires everything below `prior`.
    fn retire_before(&mut self, prior: u64) {
        self.retire_prior_to = prior;
        while let Some(old) = self.held.first().copied()
            && old.sequence < prior
        {
            self.held.remove(0);
            self.retire(old.sequence);
            if let Some(path) = old.path {
                self.wanting.push(path);
            }
        }
        for range in &mut self.seen {
            range.0 = range.0.max(prior);
        }
        self.seen.retain(|r| r.0 < r.1);
    }

    /// Hands unused connection IDs to the paths without one, `first` before others.
    fn serve_wanting(&mut self, first: PathId) {
        while !self.wanting.is_empty() {
            let Some(free) = self.held.iter_mut().find(|c| c.path.is_none()) else {
                return;
            };
            let at = self.wanting.iter().position(|p| *p == first);
            free.path = Some(self.wanting.remove(at.unwrap_or(0)));
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

    fn drop_held(&mut self, sequence: u64) {
        self.held.retain(|c| c.sequence != sequence);
        self.tokens_changed = true;
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
