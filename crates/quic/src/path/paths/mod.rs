//! Which path carries data, which path the connection falls back to, and which others
//! are being validated (RFC 9000 §9).
//!
//! There is always an *active* path, which carries all data. It is either *validated* (the
//! handshake, or a PATH_RESPONSE to a challenge of full size, showed that the peer receives
//! on it) or *unvalidated*. Only in the latter case there is a *fallback*: the validated
//! path that it replaced. Each of them is held by value in its own place, so that no path
//! can be both and none can be missing. Up to `MAX_STANDBY` other paths stand by:
//!
//! | role | meaning | validated |
//! |---|---|---|
//! | `Probe` | the peer sent a PATH_CHALLENGE on it | no |
//! | `Candidate` | becomes the active path once it is validated | no |
//! | `Abandoned` | was active, and was left before it was validated | no |
//! | `Retained` | used or probed before, and kept for packets still in flight | yes |
//!
//! The effect of each event (V: the active path is validated, U: it is unvalidated):
//!
//! | event | on the active path | on the fallback | on a standby path | on an unknown path |
//! |---|---|---|---|---|
//! | newest non-probing packet (server) | stays active; a `Candidate` becomes a `Probe` | becomes active, V; the old path is `Abandoned` | becomes active: V if `Retained`, else U; but at another local address it waits as `Candidate` until validated | the same, as a new path |
//! | the handshake completes (server) | stays active | – | – | becomes active, U; at another local address it waits as `Candidate` until validated |
//! | PATH_CHALLENGE | is answered | the same | the same | the same, as a new `Probe` |
//! | PATH_RESPONSE, full size | V; the fallback is `Retained` | nothing | `Probe` becomes `Retained`; `Candidate` becomes active, V; `Abandoned` becomes the fallback in U, else `Retained` | – |
//! | PATH_RESPONSE, small | its address is validated | nothing | its address is validated | – |
//! | validation fails | U: the fallback becomes active, V; V: nothing | nothing | is removed | – |
//! | its time is over | – | – | `Retained` is removed | – |
//!
//! The client's own moves: [`Paths::migrate`] makes a new path active and unvalidated (the
//! old path becomes the fallback if validated, else `Abandoned`); [`Paths::probe`] adds a
//! new path as `Candidate`. When a validated path replaces the active one, that becomes
//! `Retained`. A server challenges the path that it leaves: if somebody else forwarded the
//! client's packet, the client's answer has an ACK in the same packet, which makes it
//! non-probing, and so leads the server back (§9.3.3).
//!
//! When too many paths stand by, one is removed: a `Retained` before a `Probe` or
//! `Abandoned`, those before a `Candidate`, and the oldest of a kind.
//!
//! Methods return the [`Effect`]s that loss recovery and connection IDs have to follow, so
//! that they know the same paths.

pub(crate) mod path;
mod transitions;

use core::time::Duration;
use std::net::SocketAddr;

use smallvec::SmallVec;

use super::amplification::Amplification;
use super::{Addresses, Path, PathDefaults, PathId};
use crate::{Instant, Role};

/// Most paths kept besides the active one and its fallback. If a peer probes more at a
/// time, the oldest are removed.
pub(crate) const MAX_STANDBY: usize = 2;

/// Most paths of a connection: the active path, its fallback, and standby paths.
pub const MAX_PATHS: usize = 2 + MAX_STANDBY;

/// The reason why a path was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalReason {
    /// Its validation failed.
    Failed,
    /// It was validated, and not used for as long as a validation may take.
    Unused,
    /// Another path needed its place.
    Evicted,
    /// The client moves to another address, or from another address.
    Superseded,
}

/// A change that loss recovery and connection IDs have to follow, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// A path was added. It needs a congestion controller and a connection ID.
    Added {
        /// The new path.
        id: PathId,
        /// The peer's address on it.
        remote: SocketAddr,
    },
    /// A challenge was answered after this time.
    Answered {
        /// The path of the challenge.
        id: PathId,
        /// The time since it was sent.
        after: Duration,
    },
    /// A path was validated in full size.
    Validated {
        /// The path.
        id: PathId,
        /// The peer's address on it.
        remote: SocketAddr,
    },
    /// The path became the active one: data is sent on it from now on.
    Activated {
        /// The path.
        id: PathId,
        /// The peer's address on it.
        remote: SocketAddr,
        /// Whether it is validated.
        validated: bool,
    },
    /// More PATH_CHALLENGE frames arrived than are kept: the oldest will not be answered.
    ChallengeDropped {
        /// The path.
        id: PathId,
    },
    /// A path was removed.
    Removed {
        /// The path.
        id: PathId,
        /// The peer's address on it.
        remote: SocketAddr,
        /// The reason.
        reason: RemovalReason,
    },
}

/// The changes of a call, in order. Only a call in which many timers end has more than fit
/// inline.
pub type Effects = SmallVec<[Effect; 4]>;

/// The reason why a connection cannot migrate now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// Only clients migrate (RFC 9000 §9).
    NotClient,
    /// Not before the handshake is confirmed (RFC 9000 §9).
    NotConfirmed,
}

/// The role of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathRole {
    /// It carries data and is validated.
    ActiveValidated,
    /// It carries data and is not validated yet.
    ActiveUnvalidated,
    /// The connection falls back to it if validation of the active path fails.
    Fallback,
    /// The peer sent a PATH_CHALLENGE on it.
    Probe,
    /// It becomes the active path once it is validated.
    Candidate,
    /// It was active, and was left before it was validated.
    Abandoned,
    /// It is validated and not used.
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
    /// Returns the order of removal when there is no room: the lowest goes first.
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
    role: StandbyRole,
}

/// The paths of a connection. The [module documentation](self) has the table of events and
/// their effects.
///
/// Methods take the time and the connection's current PTO without backoff, which determines
/// how long a validation lasts (RFC 9000 §8.2.4).
#[derive(Clone, Debug)]
pub struct Paths {
    role: Role,
    active: Box<Path>,
    active_state: ActiveState,
    /// In the order in which they were added, empty places last.
    standby: [Option<Box<StandbyPath>>; MAX_STANDBY],
    /// The handshake is confirmed, so a client may migrate.
    confirmed: bool,
    /// Non-probing packets with lower packet numbers are not the newest.
    next_newest_number: u64,
    next_id: u32,
    defaults: PathDefaults,
}

impl Paths {
    /// Creates the path of the handshake. The anti-amplification limit applies to a server
    /// unless `validated`: a token validated the address (RFC 9000 §8.1).
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

    /// Returns the path that carries data.
    #[must_use]
    pub fn active(&self) -> &Path {
        &self.active
    }

    /// Returns the path that carries data.
    pub(crate) fn active_mut(&mut self) -> &mut Path {
        &mut self.active
    }

    /// Returns the ID of the path that carries data.
    #[must_use]
    pub fn active_id(&self) -> PathId {
        self.active.id
    }

    /// Returns whether the active path is validated.
    #[must_use]
    pub fn is_active_validated(&self) -> bool {
        matches!(self.active_state, ActiveState::Validated)
    }

    /// Returns the path with this ID, unless it was removed.
    #[must_use]
    pub fn get(&self, id: PathId) -> Option<&Path> {
        if self.active.id == id {
            return Some(&self.active);
        }
        self.inactive().find(|path| path.id == id)
    }

    /// Returns the path with this ID, unless it was removed.
    pub fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.iter_mut().find(|path| path.id == id)
    }

    /// Returns all paths, the active one first.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        core::iter::once(&*self.active).chain(self.inactive())
    }

    /// Returns all paths except the active one.
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

    /// Returns all paths with their roles, the active one first.
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
            .chain(standby.map(|standby| (&*standby.path, standby.role.role())))
    }

    /// Returns the path of a datagram with these addresses. If they do not identify one (a
    /// client that moved to another port of its host does not see its own port), it is the
    /// active path.
    #[must_use]
    pub fn find(&self, from: &Addresses) -> Option<PathId> {
        self.iter().find(|path| path.matches(from)).map(Path::id)
    }

    /// Returns whether there is a path to this address of the peer. The local address does not
    /// count, since it may not be known yet.
    pub(crate) fn has_remote(&self, remote: SocketAddr) -> bool {
        self.iter().any(|path| path.remote == remote)
    }

    fn find_mut(&mut self, from: &Addresses) -> Option<&mut Path> {
        self.iter_mut().find(|path| path.matches(from))
    }

    /// Returns the bytes allocated.
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
