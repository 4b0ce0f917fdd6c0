//! Which backend a client's datagram goes to.

use std::hash::BuildHasher as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clearway_quic::cid::ConnectionId;
use foldhash::fast::FixedState;

use crate::backend::{BackendId, BackendState};
use crate::header::{Header, HeaderForm};
use crate::limit::NewConnectionLimit;
use crate::lru::LruMap;
use crate::plan::Plan;
use crate::traffic::DropReason;

/// Smallest datagram with a client's Initial packet, in bytes (RFC 9000 §14.1).
const MIN_INITIAL: usize = 1_200;

/// Longest connection ID of a version that is known, in bytes.
const MAX_CID: usize = 20;

/// Seed of the hash for [`Maglev`](crate::Maglev): every balancer in front of the same backends
/// decides alike.
const HASH_SEED: u64 = 0x7175_6963_6c62;

/// The addresses of a client's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Where it came from.
    pub client: SocketAddr,
    /// The address of this host that it was sent to, where the system reports it.
    pub service: Option<IpAddr>,
}

/// Bounds of a shard's tables and rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterLimits {
    /// Entries of each of the three tables.
    pub entries: usize,
    /// How long an entry is kept without being used.
    pub idle: Duration,
    /// New connections per second, and other datagrams of clients that nothing is known about;
    /// 0 = no limit.
    pub new_connections: u32,
    /// New connections per second from one address, or one 64-bit IPv6 prefix; 0 = no limit.
    pub new_connections_by_source: u32,
}

impl Default for RouterLimits {
    /// Tables of 262,144 entries, about 30 MB each, hold the connections of two minutes at the
    /// rate of new ones; two minutes are longer than the idle timeouts in use.
    fn default() -> Self {
        Self {
            entries: 1 << 18,
            idle: Duration::from_secs(120),
            new_connections: 20_000,
            new_connections_by_source: 2_000,
        }
    }
}

/// Which step of the routing order decided (draft-ietf-quic-load-balancers §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteStep {
    /// The connection ID contains a server ID.
    ServerId,
    /// The addresses and the source connection ID of a long header are known.
    Handshake,
    /// The destination connection ID is known.
    ConnectionId,
    /// The addresses are known.
    Addresses,
    /// It was assigned by [`Maglev`](crate::Maglev).
    Assigned,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The backend.
    pub backend: BackendId,
    /// Which step decided.
    pub step: RouteStep,
    /// Bytes of the datagram that following datagrams of the same train must share to be for the
    /// same connection ID: where it starts and how long it is. `None` if its length is unknown.
    pub cid: Option<(usize, usize)>,
}

/// What is known about a connection ID.
#[derive(Clone, Copy, Debug)]
struct KnownCid {
    backend: BackendId,
    /// The backend has chosen it, and not a client for its first packets, as anybody can.
    is_backends: bool,
}

/// Routes the datagrams of clients. Not shared between threads.
#[derive(Debug)]
pub struct Router {
    plan: Arc<Plan>,
    limits: RouterLimits,
    by_handshake: LruMap<(Tuple, ConnectionId), BackendId>,
    by_cid: LruMap<ConnectionId, KnownCid>,
    by_tuple: LruMap<Tuple, BackendId>,
    /// Lengths that backends' connection IDs in `by_cid` have had, as bits: a short header does
    /// not contain its length.
    cid_lengths: u32,
    new_connections: NewConnectionLimit,
    hasher: FixedState,
}

impl Router {
    /// Creates a router with empty tables.
    #[must_use]
    pub fn new(plan: Arc<Plan>, limits: RouterLimits) -> Self {
        Self {
            plan,
            limits,
            by_handshake: LruMap::new(limits.entries),
            by_cid: LruMap::new(limits.entries),
            by_tuple: LruMap::new(limits.entries),
            cid_lengths: 0,
            new_connections: NewConnectionLimit::new(
                limits.new_connections,
                limits.new_connections_by_source,
            ),
            hasher: FixedState::with_seed(HASH_SEED),
        }
    }

    /// Returns the plan in use.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Routes by another plan from now on. Entries for backends that it does not have, or that
    /// are down, are ignored.
    pub fn set_plan(&mut self, plan: Arc<Plan>) {
        self.plan = plan;
    }

    /// Decides on the backend of a client's datagram. `now` is the time since any fixed moment.
    ///
    /// # Errors
    /// Why the datagram is to be dropped.
    pub fn route(
        &mut self,
        now: Duration,
        from: Tuple,
        datagram: &[u8],
    ) -> Result<Route, DropReason> {
        if datagram.is_empty() {
            return Err(DropReason::Empty);
        }
        let header = Header::parse(datagram).ok_or(DropReason::Malformed)?;
        if matches!(header, Header::Long { version: 0, .. }) {
            return Err(DropReason::UnexpectedNegotiation);
        }
        let form = header.form();
        if form == HeaderForm::Initial && datagram.len() < MIN_INITIAL {
            return Err(DropReason::SmallInitial);
        }
        if let Some((backend, len)) = self.plan.decode(header.dcid())
            && self.may_name(now, from, &header, backend)
        {
            return Ok(route(backend, RouteStep::ServerId, &header, Some(len)));
        }
        if let Some(known) = self.find(now, from, &header, form) {
            return Ok(known);
        }
        self.assign(now, from, &header)
    }

    /// Returns whether a connection ID that names `backend` is followed. The one of a new connection is
    /// random and names a backend by chance, so that a draining one gets Initial packets of
    /// handshakes only that are known to be with it.
    fn may_name(
        &mut self,
        now: Duration,
        from: Tuple,
        header: &Header<'_>,
        backend: BackendId,
    ) -> bool {
        let state = self.plan.backend(backend).map(|backend| backend.state);
        match (header.form(), state) {
            (_, None | Some(BackendState::Down)) => false,
            (HeaderForm::Initial, Some(BackendState::Draining)) => {
                let Header::Long { scid, .. } = *header else {
                    return false;
                };
                let key = ConnectionId::new(scid).map(|scid| (from, scid));
                let known = key.and_then(|key| self.by_handshake.get(now, &key));
                known.is_some_and(|known| *known == backend)
            }
            (_, Some(BackendState::Active | BackendState::Draining)) => true,
        }
    }

    /// Looks the datagram up in the tables.
    fn find(
        &mut self,
        now: Duration,
        from: Tuple,
        header: &Header<'_>,
        form: HeaderForm,
    ) -> Option<Route> {
        let plan = &self.plan;
        let serves = |backend: &BackendId| plan.serves_connections(*backend);
        match *header {
            Header::Long { dcid, scid, .. } => {
                let key = ConnectionId::new(scid).map(|scid| (from, scid));
                let handshake = key.and_then(|key| self.by_handshake.get(now, &key).copied());
                if let Some(backend) = handshake.filter(serves) {
                    return Some(route(backend, RouteStep::Handshake, header, None));
                }
                let dcid = ConnectionId::new(dcid).filter(|dcid| !dcid.is_empty());
                let known = dcid.and_then(|dcid| self.by_cid.get(now, &dcid));
                if let Some(backend) = known.map(|known| known.backend).filter(serves) {
                    return Some(route(backend, RouteStep::ConnectionId, header, None));
                }
            }
            Header::Short { rest } => {
                let lengths = (1..=MAX_CID).filter(|len| self.cid_lengths >> len & 1 == 1);
                for len in lengths {
                    let cid = rest.get(..len).and_then(ConnectionId::new);
                    // Short headers have connection IDs that backends chose (RFC 9000 §7.2).
                    let known = cid.and_then(|cid| self.by_cid.get(now, &cid));
                    let known = known.filter(|known| known.is_backends);
                    if let Some(backend) = known.map(|known| known.backend).filter(serves) {
                        let step = RouteStep::ConnectionId;
                        return Some(route(backend, step, header, Some(len)));
                    }
                }
            }
        }
        let backend = *self.by_tuple.get(now, &from)?;
        // A new connection from the same port does not follow the old one to a backend that
        // takes no more.
        let state = plan.backend(backend)?.state;
        let taken = match (form, state) {
            (_, BackendState::Active) => true,
            (HeaderForm::Initial, BackendState::Draining) | (_, BackendState::Down) => false,
            (HeaderForm::Other | HeaderForm::Unknown, BackendState::Draining) => true,
        };
        taken.then(|| route(backend, RouteStep::Addresses, header, None))
    }

    /// Returns the backend for new connections from these addresses, if one takes any.
    #[must_use]
    pub fn preferred(&self, from: Tuple) -> Option<BackendId> {
        self.plan.maglev().get(self.hasher.hash_one(from))
    }

    /// Assigns a backend, and remembers it.
    fn assign(
        &mut self,
        now: Duration,
        from: Tuple,
        header: &Header<'_>,
    ) -> Result<Route, DropReason> {
        // Also what only looks like a packet of an old connection: it takes room in the tables.
        if !self.new_connections.admit(now, from.client.ip()) {
            return Err(DropReason::InitialLimit);
        }
        let backend = self.preferred(from).ok_or(DropReason::NoBackend)?;
        self.expire(now);
        // Anybody can send an Initial packet with a client's address. It does not change where the
        // client's other connections are, whose backend is draining.
        let former = self.by_tuple.peek(&from);
        if !former.is_some_and(|former| self.plan.serves_connections(*former)) {
            self.by_tuple.insert(now, from, backend);
        }
        if let Header::Long { dcid, scid, .. } = *header {
            if let Some(scid) = ConnectionId::new(scid) {
                self.by_handshake.insert(now, (from, scid), backend);
            }
            let is_backends = false;
            let known = KnownCid {
                backend,
                is_backends,
            };
            self.remember_cid(now, dcid, known);
        }
        Ok(route(backend, RouteStep::Assigned, header, None))
    }

    /// Remembers the connection ID that a backend chose, if it does not contain a server ID.
    /// Returns whether that was so: then a migration of the client can be followed only while
    /// the client keeps this connection ID. `datagram` is one that the backend sent.
    pub fn learn(&mut self, now: Duration, backend: BackendId, datagram: &[u8]) -> bool {
        let Some(header @ Header::Long { scid, .. }) = Header::parse(datagram) else {
            return false;
        };
        // Only versions that are known have connection IDs where this expects them to be used.
        if header.form() == HeaderForm::Unknown || scid.is_empty() {
            return false;
        }
        if self
            .plan
            .decode(scid)
            .is_some_and(|(named, _)| named == backend)
        {
            return false;
        }
        self.expire(now);
        let is_backends = true;
        let known = KnownCid {
            backend,
            is_backends,
        };
        self.remember_cid(now, scid, known);
        true
    }

    fn remember_cid(&mut self, now: Duration, cid: &[u8], known: KnownCid) {
        let Some(cid) = ConnectionId::new(cid).filter(|cid| !cid.is_empty()) else {
            return;
        };
        // One backend cannot take connections from another.
        let is_taken = self.by_cid.peek(&cid).is_some_and(|former| {
            former.is_backends
                && former.backend != known.backend
                && self.plan.serves_connections(former.backend)
        });
        if !is_taken {
            self.cid_lengths |= u32::from(known.is_backends) << cid.len();
            self.by_cid.insert(now, cid, known);
        }
    }

    /// Forgets entries that were not used for long: two for each that is added, so that the
    /// work is bounded and the tables shrink.
    fn expire(&mut self, now: Duration) {
        for _ in 0..2 {
            self.by_handshake.remove_expired(now, self.limits.idle);
            self.by_cid.remove_expired(now, self.limits.idle);
            self.by_tuple.remove_expired(now, self.limits.idle);
        }
        if self.by_cid.is_empty() {
            self.cid_lengths = 0;
        }
    }

    /// Returns the number of entries in all tables.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.by_handshake.len() + self.by_cid.len() + self.by_tuple.len()
    }
}

/// `len` is that of the connection ID, if a short header has it and it is known.
fn route(backend: BackendId, step: RouteStep, header: &Header<'_>, len: Option<usize>) -> Route {
    let cid = match *header {
        // First byte, version, length.
        Header::Long { dcid, .. } => Some((6, dcid.len())),
        Header::Short { .. } => len.map(|len| (1, len)),
    };
    Route { backend, step, cid }
}

#[cfg(test)]
mod tests;
