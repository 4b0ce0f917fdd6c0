//! Upstream ports: which of the balancer's addresses a client's datagrams are sent from, and which
//! client a backend's replies belong to.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clearway_quic::cid::ConnectionId;
use foldhash::fast::RandomState;

use crate::backend::BackendId;
use crate::lru::LruMap;
use crate::router::Tuple;
use crate::traffic::DropReason;

mod client_ports;

use client_ports::ClientPorts;

/// How long a flow is kept that the backend has not answered yet. Spoofed addresses make such
/// flows, so they must not take ports for long.
const UNANSWERED: Duration = Duration::from_secs(10);

/// What a flow belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The client's addresses.
    pub tuple: Tuple,
    /// The backend.
    pub backend: BackendId,
}

/// One of the balancer's ports, and the address that its datagrams are sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// The number of the socket.
    pub socket: u32,
    /// The number of the source address in [`FlowCapacity::sources`].
    pub source: u32,
}

/// A flow's upstream port, and whether it is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The port.
    pub upstream: Upstream,
    /// The client's datagrams have not been sent from it before.
    pub is_new: bool,
}

/// How many flows there can be.
#[derive(Clone, Debug)]
pub struct FlowCapacity {
    /// Source addresses; `None` stands for the one that the system chooses.
    pub sources: Vec<Option<IpAddr>>,
    /// Most sockets that may be opened.
    pub sockets: u32,
    /// Most flows in all.
    pub flows: usize,
    /// How long a flow is kept without a datagram of its client.
    pub idle: Duration,
    /// In transparent mode, the service's address. Datagrams to backends have the addresses and
    /// ports of their clients then: an upstream socket's number is its port, and `sources` is
    /// not used.
    pub transparent: Option<IpAddr>,
}

/// The flows of a shard.
///
/// A flow is one client's four addresses and one backend: a client that only changes its
/// connection ID keeps it, and a client whose address changes gets another, which the backend then
/// validates as it would the client's own new address. So nothing that is not authenticated by
/// the backend changes where its datagrams go.
#[derive(Debug)]
pub struct Flows {
    capacity: FlowCapacity,
    /// Flows whose clients exist at their addresses: they have used a connection ID that the backend
    /// sent there.
    proven: LruMap<FlowKey, FlowState>,
    /// Others that the backend has answered. Servers answer spoofed addresses too; but a client
    /// that has moved cannot be told from those, because what it sends is encrypted.
    answered: LruMap<FlowKey, FlowState>,
    unanswered: LruMap<FlowKey, FlowState>,
    /// Keyed, so that nobody can find a connection ID with the same hash.
    hasher: RandomState,
    /// The numbers of the source addresses.
    source_numbers: HashMap<IpAddr, u32, RandomState>,
    clients: HashMap<(BackendId, Upstream), Tuple, RandomState>,
    ports: HashMap<BackendId, Ports, RandomState>,
    /// In transparent mode.
    client_ports: ClientPorts,
}

/// What is known about a flow.
#[derive(Clone, Copy, Debug)]
struct FlowState {
    upstream: Upstream,
    /// The connection ID that the client used last, as far as its length was known.
    cid: Option<ConnectionId>,
    /// The hash of the connection ID that the backend has sent to the client.
    offered: Option<u64>,
}

/// The ports of one backend.
#[derive(Debug, Default)]
struct Ports {
    /// How many have been used at least once: all with lower numbers.
    used: u64,
    /// Used ones that are free again, the longest free first, so that late datagrams of the
    /// former flow have passed.
    free: VecDeque<Upstream>,
}

impl Flows {
    /// Creates an empty table.
    #[must_use]
    pub fn new(mut capacity: FlowCapacity) -> Self {
        if capacity.sources.is_empty() {
            capacity.sources.push(None);
        }
        let sources = capacity.sources.iter();
        let source_numbers = (0..).zip(sources);
        let source_numbers =
            source_numbers.filter_map(|(number, source)| Some(((*source)?, number)));
        Self {
            source_numbers: source_numbers.collect(),
            proven: LruMap::new(capacity.flows),
            answered: LruMap::new(capacity.flows),
            unanswered: LruMap::new(capacity.flows),
            hasher: RandomState::default(),
            capacity,
            clients: HashMap::default(),
            ports: HashMap::default(),
            client_ports: ClientPorts::default(),
        }
    }

    /// Returns the number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.proven.len() + self.answered.len() + self.unanswered.len()
    }

    /// Returns whether there are no flows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the backend has sent something to the client.
    #[must_use]
    pub(crate) fn is_answered(&self, key: &FlowKey) -> bool {
        self.proven.peek(key).is_some() || self.answered.peek(key).is_some()
    }

    /// Returns the source address of an upstream port.
    #[must_use]
    pub fn source(&self, upstream: Upstream) -> Option<IpAddr> {
        *self.capacity.sources.get(upstream.source as usize)?
    }

    /// Returns the source address of a client's datagrams to a backend: its own in transparent
    /// mode, otherwise that of the upstream port.
    #[must_use]
    pub fn source_for(&self, upstream: Upstream, client: IpAddr) -> Option<IpAddr> {
        match self.capacity.transparent {
            Some(_) => Some(client),
            None => self.source(upstream),
        }
    }

    /// Returns the numbers of sockets that no flow uses any more, each once. Only in transparent
    /// mode, where there would be one for every port that a client ever had.
    pub fn take_unused_sockets(&mut self) -> Vec<u32> {
        self.client_ports.take_unused()
    }

    /// Returns the number of a source address that a reply was sent to.
    fn source_number(&self, local: Option<IpAddr>) -> Option<u32> {
        if let [None] = self.capacity.sources.as_slice() {
            return Some(0);
        }
        self.source_numbers.get(&local?).copied()
    }

    /// Returns the share of a backend's upstream ports that are in use, from 0 to 1, of the
    /// backend with the greatest.
    #[must_use]
    pub fn usage(&self) -> f64 {
        let in_use = |ports: &Ports| ports.used.saturating_sub(ports.free.len() as u64);
        let most = match self.capacity.transparent {
            Some(_) => self.client_ports.len() as u64,
            None => self.ports.values().map(in_use).max().unwrap_or(0),
        };
        let flows = self.len() as f64 / self.capacity.flows.max(1) as f64;
        (most as f64 / self.most_ports().max(1) as f64).max(flows)
    }

    fn most_ports(&self) -> u64 {
        let sources = match self.capacity.transparent {
            Some(_) => 1,
            None => self.capacity.sources.len() as u64,
        };
        u64::from(self.capacity.sockets) * sources
    }

    /// Returns the upstream port for a client's datagram to a backend. Sockets are numbered from
    /// 0, and a higher number than before means that one has to be opened.
    ///
    /// # Errors
    /// [`DropReason::NoUpstreamPort`] if all are in use, by clients that have proven to exist or by
    /// flows that were used just now.
    pub fn upstream(&mut self, now: Duration, key: FlowKey) -> Result<Flow, DropReason> {
        self.upstream_of(now, key, None)
    }

    /// As [`upstream`](Self::upstream); `cid` is the destination connection ID of the datagram, if
    /// it has a short header and the length of the connection ID is known.
    ///
    /// # Errors
    /// As [`upstream`](Self::upstream).
    pub fn upstream_of(
        &mut self,
        now: Duration,
        key: FlowKey,
        cid: Option<ConnectionId>,
    ) -> Result<Flow, DropReason> {
        let known = self.proven.get(now, &key);
        let known = known.or_else(|| self.answered.get(now, &key));
        if let Some(known) = known.or_else(|| self.unanswered.get(now, &key)) {
            known.cid = cid.or(known.cid);
            let (upstream, is_new) = (known.upstream, false);
            return Ok(Flow { upstream, is_new });
        }
        self.expire(now, 2);
        // Flows with spoofed addresses take each other's place, never that of an answered one.
        if self.unanswered.len() >= self.capacity.flows / 2
            && let Some((key, former)) = self.unanswered.remove_oldest()
        {
            self.release(key, former.upstream);
        }
        if self.len() >= self.capacity.flows && !self.evict(now, |_| true) {
            return Err(DropReason::NoUpstreamPort);
        }
        let upstream = match self.capacity.transparent {
            Some(_) => self.client_port(now, key.tuple.client.port())?,
            None => {
                let upstream = self.free_port(now, key.backend)?;
                self.clients.insert((key.backend, upstream), key.tuple);
                upstream
            }
        };
        self.unanswered
            .insert(now, key, FlowState::new(upstream, cid));
        let is_new = true;
        Ok(Flow { upstream, is_new })
    }

    fn free_port(&mut self, now: Duration, backend: BackendId) -> Result<Upstream, DropReason> {
        let most = self.most_ports();
        let sources = self.capacity.sources.len() as u64;
        if let Some(port) = self.ports.entry(backend).or_default().take(most, sources) {
            return Ok(port);
        }
        // All at once, because little else can help.
        self.expire(now, usize::MAX);
        let is_free = |ports: &Ports| ports.used < most || !ports.free.is_empty();
        if !self.ports.get(&backend).is_some_and(is_free) {
            self.evict(now, |key| key.backend == backend);
        }
        let ports = self.ports.entry(backend).or_default();
        ports.take(most, sources).ok_or(DropReason::NoUpstreamPort)
    }

    /// Removes a flow that may have a spoofed address, the one unused for longest, so that such flows
    /// take each other's place and never that of a client which has proven to exist. Returns whether
    /// there was one among the first.
    fn evict(&mut self, now: Duration, is_wanted: impl Fn(&FlowKey) -> bool) -> bool {
        let unused = |flows: &LruMap<FlowKey, FlowState>| {
            let first = flows.oldest_first().take(EVICTION_SCAN);
            let mut old = first.take_while(|(_, used)| used.saturating_add(EVICTABLE) <= now);
            old.find(|(key, _)| is_wanted(key)).map(|(key, _)| *key)
        };
        let key = unused(&self.unanswered).or_else(|| unused(&self.answered));
        let Some(key) = key else {
            return false;
        };
        let former = self.unanswered.remove(&key);
        if let Some(former) = former.or_else(|| self.answered.remove(&key)) {
            self.release(key, former.upstream);
        }
        true
    }

    /// Returns the socket with the client's port, for one more flow.
    fn client_port(&mut self, now: Duration, port: u16) -> Result<Upstream, DropReason> {
        let upstream = Upstream {
            socket: port.into(),
            source: 0,
        };
        let most = self.capacity.sockets as usize;
        if self.client_ports.take(port, most) {
            return Ok(upstream);
        }
        // All at once, because little else can help.
        self.expire(now, usize::MAX);
        // Flows with spoofed ports take each other's place, never that of an answered one.
        for _ in 0..EVICTIONS {
            if self.client_ports.take(port, most) {
                return Ok(upstream);
            }
            if !self.evict(now, |_| true) {
                break;
            }
        }
        if self.client_ports.take(port, most) {
            return Ok(upstream);
        }
        Err(DropReason::NoUpstreamPort)
    }

    /// Removes up to `count` flows of each kind whose time is over.
    pub fn expire(&mut self, now: Duration, count: usize) {
        for _ in 0..count {
            let idle = self.capacity.idle;
            let expired = [
                self.proven.remove_expired(now, idle),
                self.answered.remove_expired(now, idle),
                self.unanswered.remove_expired(now, UNANSWERED.min(idle)),
            ];
            if expired.iter().all(Option::is_none) {
                return;
            }
            for (key, former) in expired.into_iter().flatten() {
                self.release(key, former.upstream);
            }
        }
    }

    fn release(&mut self, key: FlowKey, upstream: Upstream) {
        if self.capacity.transparent.is_some() {
            self.client_ports.release(key.tuple.client.port());
            return;
        }
        self.clients.remove(&(key.backend, upstream));
        let ports = self.ports.entry(key.backend).or_default();
        ports.free.push_back(upstream);
    }

    /// Returns all flows, each with the connection ID that the client used last, as far as it is
    /// known.
    pub(crate) fn clients(&self) -> impl Iterator<Item = (FlowKey, ConnectionId)> {
        let answered = self.proven.iter().chain(self.answered.iter());
        // A client that has just changed its address was not answered there yet.
        let flows = answered.chain(self.unanswered.iter());
        flows.filter_map(|(key, flow)| Some((*key, flow.cid?)))
    }

    /// Notes the connection ID that the backend has sent to the client, in a long header of a version
    /// that the server speaks: only one who receives it knows it.
    pub(crate) fn offer(&mut self, key: &FlowKey, cid: &[u8]) {
        let offered = self.hasher.hash_one(cid);
        if let Some(flow) = self.answered.peek_mut(key)
            && cid.len() >= UNGUESSABLE
        {
            flow.offered = Some(offered);
        }
    }

    /// Notes that the client has sent a long header with this destination connection ID.
    pub(crate) fn confirm(&mut self, now: Duration, key: &FlowKey, cid: &[u8]) {
        let offered = self.answered.peek(key).and_then(|flow| flow.offered);
        if offered.is_some_and(|offered| offered == self.hasher.hash_one(cid))
            && let Some(flow) = self.answered.remove(key)
        {
            self.proven.insert(now, *key, flow);
        }
    }

    /// Returns the client that a backend's datagram belongs to. `local` is the address of this
    /// host that it was sent to. It does not extend the flow's time: only its client does.
    ///
    /// # Errors
    /// [`DropReason::UnknownFlow`] if there is none.
    pub fn client(
        &mut self,
        backend: BackendId,
        socket: u32,
        local: Option<IpAddr>,
    ) -> Result<Tuple, DropReason> {
        let (tuple, upstream) = match self.capacity.transparent {
            Some(service) => transparent_client(service, socket, local)?,
            None => {
                let source = self.source_number(local).ok_or(DropReason::UnknownFlow)?;
                let upstream = Upstream { socket, source };
                let client = self.clients.get(&(backend, upstream));
                (*client.ok_or(DropReason::UnknownFlow)?, upstream)
            }
        };
        let key = FlowKey { tuple, backend };
        if !self.unanswered.is_empty()
            && let Some(used) = self.unanswered.used(&key)
        {
            let cid = self.unanswered.remove(&key).and_then(|flow| flow.cid);
            self.answered
                .insert(used, key, FlowState::new(upstream, cid));
        }
        Ok(tuple)
    }
}

/// Returns the client that a backend's datagram was sent to, and its socket. The datagram says it
/// itself, so that it needs no flow: another process may have had it.
fn transparent_client(
    service: IpAddr,
    socket: u32,
    local: Option<IpAddr>,
) -> Result<(Tuple, Upstream), DropReason> {
    let address = local.ok_or(DropReason::UnknownFlow)?;
    let port = u16::try_from(socket).map_err(|_| DropReason::UnknownFlow)?;
    let tuple = Tuple {
        client: SocketAddr::new(address, port),
        service: Some(service),
    };
    Ok((tuple, Upstream { socket, source: 0 }))
}

impl FlowState {
    fn new(upstream: Upstream, cid: Option<ConnectionId>) -> Self {
        Self {
            upstream,
            cid,
            offered: None,
        }
    }
}

impl Ports {
    /// Takes a port that was never used, or else the one that has been free for longest. Ports
    /// of one socket come first, so that few sockets are opened.
    fn take(&mut self, most: u64, sources: u64) -> Option<Upstream> {
        if self.used < most && self.free.len() < REUSE_AFTER {
            let number = self.used;
            self.used += 1;
            return Some(Upstream {
                socket: u32::try_from(number / sources).ok()?,
                source: u32::try_from(number % sources).ok()?,
            });
        }
        self.free.pop_front()
    }
}

/// Most flows that one new flow removes to have a socket.
const EVICTIONS: usize = 16;

/// Flows that are looked at to find one that may be removed.
const EVICTION_SCAN: usize = 64;

/// How long a flow is left alone after its client's last datagram: longer than a round trip, so that
/// clients which exist can prove it while more of them come than there are ports.
const EVICTABLE: Duration = Duration::from_millis(300);

/// Shortest connection ID in bytes that proves anything: as long as those that RFC 9000 §7.2
/// asks to be unpredictable.
const UNGUESSABLE: usize = 8;

/// Free ports that are kept before one of them is used again, as long as there are unused ones.
const REUSE_AFTER: usize = 64;

#[cfg(test)]
mod tests;
