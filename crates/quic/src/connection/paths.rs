//! The paths of a connection: the active one, the one it replaced, and those
//! being probed (RFC 9000 §9).

use std::net::{IpAddr, SocketAddr};

use clearway_recovery::PathId;

use super::Received;
use crate::Instant;
use crate::memory;
use crate::path::amplification::Amplification;
use crate::path::ecn::{Mark, PathEcn};
use crate::path::mtu::MtuDiscovery;
use crate::path::validation::{PathResponses, PathValidation};

/// Paths kept at once. More probing than this is not answered.
pub(crate) const MAX_PATHS: usize = 4;

/// One path: a pair of addresses and what is known of the way between them.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) validation: PathValidation,
    pub(crate) responses: PathResponses,
    pub(crate) amplification: Amplification,
    pub(crate) ecn: PathEcn,
    /// The mark of the train being written: all its datagrams share one, also
    /// if ECN testing ends with a packet in the middle of it.
    pub(crate) train_mark: Mark,
    pub(crate) mtu: MtuDiscovery,
    /// A data packet has left on it since everything was acknowledged.
    pub(crate) busy: bool,
}

impl Path {
    /// Whether path frames wait, which nothing holds back but amplification.
    pub(crate) fn has_frames_due(&self, now: Instant) -> bool {
        self.responses.is_pending() || self.validation.challenge_due(now)
    }

    /// Whether the peer was seen to receive here.
    pub(crate) fn is_validated(&self) -> bool {
        self.amplification.is_validated()
    }

    /// A train begins.
    pub(crate) fn begin_train(&mut self) {
        self.train_mark = self.ecn.mark();
    }

    fn matches(&self, from: &Received) -> bool {
        self.remote == from.remote
            && match (self.local_ip, from.local_ip) {
                (Some(ours), Some(theirs)) => ours == theirs,
                _ => true,
            }
    }
}

/// Every path of a connection. There is always an active one.
#[derive(Debug)]
pub(crate) struct Paths {
    paths: Vec<Path>,
    active: PathId,
    /// The validated path that the active one replaced, to return to if the
    /// new one fails validation (RFC 9000 §9.3.2).
    pub(crate) previous: Option<PathId>,
    next_id: u32,
}

impl Paths {
    pub(crate) fn new(first: Path) -> Self {
        Self {
            active: first.id,
            next_id: first.id.0 + 1,
            paths: vec![first],
            previous: None,
        }
    }

    /// Bytes allocated. What a path holds itself is of fixed size.
    pub(crate) fn memory(&self) -> usize {
        memory::list(&self.paths)
    }

    pub(crate) fn next_id(&self) -> PathId {
        PathId(self.next_id)
    }

    /// Adds a path; `None` if too many are being probed already.
    pub(crate) fn add(&mut self, path: Path) -> Option<PathId> {
        if self.paths.len() >= MAX_PATHS {
            return None;
        }
        self.next_id = path.id.0 + 1;
        let id = path.id;
        self.paths.push(path);
        Some(id)
    }

    pub(crate) fn active_id(&self) -> PathId {
        self.active
    }

    pub(crate) fn active(&self) -> &Path {
        self.get(self.active).expect("the active path exists")
    }

    pub(crate) fn active_mut(&mut self) -> &mut Path {
        let id = self.active;
        self.get_mut(id).expect("the active path exists")
    }

    pub(crate) fn set_active(&mut self, id: PathId) {
        debug_assert!(self.get(id).is_some());
        self.active = id;
    }

    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.paths.iter().find(|path| path.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    /// The path a datagram arrived on. Where addresses cannot tell (a client
    /// that moved to another port of one host does not see its own port), it is
    /// the active one.
    pub(crate) fn find(&self, from: &Received) -> Option<PathId> {
        let active = self.get(self.active).filter(|path| path.matches(from));
        let path = active.or_else(|| self.paths.iter().find(|path| path.matches(from)))?;
        Some(path.id)
    }

    /// Removes a path that is neither active nor to be returned to.
    pub(crate) fn remove(&mut self, id: PathId) {
        debug_assert_ne!(id, self.active);
        self.paths.retain(|path| path.id != id);
        if self.previous == Some(id) {
            self.previous = None;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.paths.iter_mut()
    }

    /// A path that can make room: not active, not the one to return to.
    pub(crate) fn spare(&self) -> Option<PathId> {
        let keep = [Some(self.active), self.previous];
        let path = self
            .paths
            .iter()
            .find(|path| !keep.contains(&Some(path.id)))?;
        Some(path.id)
    }
}
