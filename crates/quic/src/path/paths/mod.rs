//! Which path carries data, what the connection returns to if that fails, and
//! what else is being tried (RFC 9000 §9).
//!
//! There is always an *active* path, which all data goes to. It is either
//! *proven* (the handshake, or a PATH_RESPONSE of full size, showed that the peer
//! receives there) or *on trial*; then, and only then, there is a *fallback*, the
//! proven path that it replaced. Each of them is held by value in its own place,
//! so that no path can be two of them and none can be missing. Up to
//! [`MAX_STANDBY`] others stand by:
//!
//! | standing by | what it is | proven |
//! |---|---|---|
//! | `Probe` | the peer sent a PATH_CHALLENGE there | no |
//! | `Join` | becomes the active path once it is proven | no |
//! | `Left` | was active on trial and was left before it was proven | no |
//! | `Spare` | used or probed before; kept for packets on their way | yes |
//!
//! What happens then (P: the active path is proven, T: it is on trial):
//!
//! | event | on the active path | on the fallback | on one standing by | from elsewhere |
//! |---|---|---|---|---|
//! | newest non-probing packet (server) | stays; a `Join` becomes a `Probe` | is active, P; the old one is `Left` | is active: P if `Spare`, else T; at another address of ours it waits as `Join` until proven | the same, on a new path |
//! | PATH_CHALLENGE | is owed an answer | the same | the same | the same, on a new `Probe` |
//! | PATH_RESPONSE in full size | P; the fallback is `Spare` | nothing | `Probe` is `Spare`; `Join` is active, P; `Left` is the fallback in T, else `Spare` | – |
//! | PATH_RESPONSE in small size | its address is validated | nothing | its address is validated | – |
//! | validation fails | T: the fallback is active, P; P: nothing | nothing | is forgotten | – |
//! | its time is over | – | – | a `Spare` is forgotten | – |
//!
//! The client's own moves: [`Paths::migrate`] makes a new path active on trial
//! (the old one is the fallback if proven, else `Left`); [`Paths::probe`] probes a
//! new path as `Join`. When a path stops being active in favour of a proven one
//! it is `Spare`. A server challenges the path that it leaves: a client whose
//! packet somebody else forwarded answers with an ACK in the same packet, which is
//! not only probing, and so leads it back (§9.3.3).
//!
//! Where too many stand by, one is forgotten: a `Spare` before a `Probe` or
//! `Left`, those before a `Join`, and the oldest of a kind.
//!
//! Methods answer with the [`Effect`]s that others have to follow: loss recovery
//! and connection IDs know the same paths as this.

mod transitions;

use std::net::SocketAddr;

use smallvec::SmallVec;

use super::amplification::Amplification;
use super::{Addresses, Path, PathDefaults, PathId};
use crate::{Instant, Role};

/// Paths kept besides the active one and its fallback. A peer that probes more
/// at a time loses the oldest.
pub(crate) const MAX_STANDBY: usize = 2;

/// Most paths of a connection: the active one, its fallback, those standing by.
pub const MAX_PATHS: usize = 2 + MAX_STANDBY;

/// Why a path is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalReason {
    /// It did not answer in time.
    Failed,
    /// It was proven, and not used for as long as an unproven one may take.
    Unused,
    /// Another needed its place.
    Evicted,
    /// The client goes elsewhere, or there from elsewhere.
    Superseded,
}

/// What a call changed that others have to follow, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// A path is new: it needs a congestion controller and a connection ID.
    Added {
        /// The new path.
        id: PathId,
        /// The peer's address on it.
        remote: SocketAddr,
    },
    /// The peer answered in full size on a path that was not proven.
    Validated {
        /// The path.
        id: PathId,
        /// The peer's address on it.
        remote: SocketAddr,
    },
    /// Data goes to this path from now on.
    Activated {
        /// The path.
        id: PathId,
        /// The peer's address on it.
        remote: SocketAddr,
        /// It is proven; else it is on trial.
        proven: bool,
    },
    /// More PATH_CHALLENGE frames came than are kept: the oldest goes without an
    /// answer.
    ChallengeDropped {
        /// The path.
        id: PathId,
    },
    /// A path is no more.
    Removed {
        /// The path.
        id: PathId,
        /// The peer's address on it.
        remote: SocketAddr,
        /// Why.
        reason: RemovalReason,
    },
}

/// What a call changed, in order. No call has more effects than fit but one
/// that many timers end in.
pub type Effects = SmallVec<[Effect; 4]>;

/// A move that a client can't make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// Only clients migrate (RFC 9000 §9).
    NotClient,
    /// Not before the handshake is confirmed (RFC 9000 §9).
    NotConfirmed,
}

/// Where a path is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathRole {
    /// It carries data, and the peer was seen to receive there.
    ActiveValidated,
    /// It carries data, and the peer was not seen to receive there yet.
    ActiveUnvalidated,
    /// The connection returns to it if the active path fails.
    Fallback,
    /// The peer sent a PATH_CHALLENGE there.
    Probe,
    /// It becomes the active path once it is proven.
    Candidate,
    /// It was active on trial and was left before it was proven.
    Abandoned,
    /// It is proven and not used.
    Retained,
}

#[derive(Clone, Debug)]
enum ActiveState {
    Validated,
    Unvalidated { fallback: Box<Path> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StandbyRole {
    Probe,
    Candidate,
    Abandoned,
    Retained { until: Instant },
}

impl StandbyRole {
    /// Who goes last when there is no room.
    fn eviction_rank(self) -> u8 {
        match self {
            Self::Retained { .. } => 0,
            Self::Probe | Self::Abandoned => 1,
            Self::Candidate => 2,
        }
    }

    fn role(self) -> PathRole {
        match self {
            Self::Probe => PathRole::Probe,
            Self::Candidate => PathRole::Candidate,
            Self::Abandoned => PathRole::Abandoned,
            Self::Retained { .. } => PathRole::Retained,
        }
    }
}

#[derive(Clone, Debug)]
struct StandbyPath {
    path: Box<Path>,
    purpose: StandbyRole,
}

/// Every path of a connection. See the [module](self) for what happens when.
///
/// Calls take the time and the connection's current PTO without backoff, which
/// is how long paths that do not answer are given (RFC 9000 §8.2.4).
#[derive(Clone, Debug)]
pub struct Paths {
    role: Role,
    active: Box<Path>,
    active_state: ActiveState,
    /// In the order in which they came, the empty places last.
    standby: [Option<Box<StandbyPath>>; MAX_STANDBY],
    /// The handshake is confirmed: a client may move.
    confirmed: bool,
    /// Non-probing packets with lower numbers are not the newest.
    next_newest_number: u64,
    next_id: u32,
    defaults: PathDefaults,
}

impl Paths {
    /// The path of the handshake. A client sends to it without limit; a server
    /// if `validated`, when a token proved the address (RFC 9000 §8.1).
    #[must_use]
    pub fn new(role: Role, addresses: Addresses, validated: bool, defaults: PathDefaults) -> Self {
        let amplification = if validated || role == Role::Client {
            Amplification::validated()
        } else {
            Amplification::new()
        };
        let path = Path::new(PathId(0), addresses, amplification, &defaults);
        Self {
            role,
            active: Box::new(path),
            active_state: ActiveState::Validated,
            standby: [const { None }; MAX_STANDBY],
            confirmed: false,
            next_newest_number: 0,
            next_id: 1,
            defaults,
        }
    }

    /// The path that carries data.
    #[must_use]
    pub fn active(&self) -> &Path {
        &self.active
    }

    /// The path that carries data.
    pub(crate) fn active_mut(&mut self) -> &mut Path {
        &mut self.active
    }

    /// Which path carries data.
    #[must_use]
    pub fn active_id(&self) -> PathId {
        self.active.id
    }

    /// Whether the peer was seen to receive on the active path.
    #[must_use]
    pub fn is_active_validated(&self) -> bool {
        matches!(self.active_state, ActiveState::Validated)
    }

    /// A path, if it still is one.
    #[must_use]
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.iter().find(|path| path.id == id)
    }

    /// A path, if it still is one.
    pub fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.iter_mut().find(|path| path.id == id)
    }

    /// All paths, the active one first.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        core::iter::once(&*self.active).chain(self.inactive())
    }

    /// All paths but the active one.
    pub(crate) fn inactive(&self) -> impl Iterator<Item = &Path> {
        let fallback = match &self.active_state {
            ActiveState::Validated => None,
            ActiveState::Unvalidated { fallback } => Some(&**fallback),
        };
        let standby = self.standby.iter().flatten().map(|standby| &*standby.path);
        fallback.into_iter().chain(standby)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        let fallback = match &mut self.active_state {
            ActiveState::Validated => None,
            ActiveState::Unvalidated { fallback } => Some(&mut **fallback),
        };
        let standby = self.standby.iter_mut().flatten();
        core::iter::once(&mut *self.active)
            .chain(fallback)
            .chain(standby.map(|standby| &mut *standby.path))
    }

    /// All paths and where they are held, the active one first.
    pub fn roles(&self) -> impl Iterator<Item = (&Path, PathRole)> {
        let (active, fallback) = match &self.active_state {
            ActiveState::Validated => (PathRole::ActiveValidated, None),
            ActiveState::Unvalidated { fallback } => {
                (PathRole::ActiveUnvalidated, Some(&**fallback))
            }
        };
        let fallback = fallback.map(|path| (path, PathRole::Fallback));
        let standby = self.standby.iter().flatten();
        core::iter::once((&*self.active, active))
            .chain(fallback)
            .chain(standby.map(|standby| (&*standby.path, standby.purpose.role())))
    }

    /// The path of a datagram with these addresses. Where they cannot tell (a
    /// client that moved to another port of one host does not see its own port),
    /// it is the active one.
    #[must_use]
    pub fn find(&self, from: &Addresses) -> Option<PathId> {
        self.iter().find(|path| path.matches(from)).map(Path::id)
    }

    fn find_mut(&mut self, from: &Addresses) -> Option<&mut Path> {
        self.iter_mut().find(|path| path.matches(from))
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        let standby = self
            .standby
            .iter()
            .flatten()
            .map(|_| size_of::<StandbyPath>());
        self.iter()
            .map(Path::memory)
            .chain(standby)
            .fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests;
