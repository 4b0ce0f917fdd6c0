//! Upstream ports: which of the balancer's addresses a client's datagrams are sent from, and which
//! client a backend's replies belong to.

use std::collections::{HashMap, VecDeque};
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
    /// Flows that the backend has answered.
    answered: LruMap<FlowKey, FlowState>,
    unanswered: LruMap<FlowKey, FlowState>,
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
            answered: LruMap::new(capacity.flows),
            unanswered: LruMap::new(capacity.flows),
            capacity,
            clients: HashMap::default(),
            ports: HashMap::default(),
            client_ports: ClientPorts::default(),
        }
    }

    /// Returns the number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.answered.len() + self.unanswered.len()
    }

    /// Returns whether there are no flows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the backend has sent something to the client.
    #[must_use]
    pub(crate) fn is_answered(&self, key: &FlowKey) -> bool {
        self.answered.used(key).is_some()
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
    /// [`DropReason::NoUpstreamPort`] if all are in use, by flows that the backend has answered
    /// or that are new.
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
        let known = match self.answered.get(now, &key) {
            Some(known) => Some(known),
            None => self.unanswered.get(now, &key),
        };
        if let Some(known) = known {
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
        if self.len() >= self.capacity.flows {
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
            .insert(now, key, FlowState { upstream, cid });
        let is_new = true;
        Ok(Flow { upstream, is_new })
    }

    fn free_port(&mut self, now: Duration, backend: BackendId) -> Result<Upstream, DropReason> {
        let most = self.most_ports();
        let sources = self.capacity.sources.len() as u64;
        if let Some(port) = self.ports.entry(backend).or_default().take(most, sources) {
            return Ok(port);
        }
        // All at once, because nothing else can help.
        self.expire(now, usize::MAX);
        let ports = self.ports.entry(backend).or_default();
        ports.take(most, sources).ok_or(DropReason::NoUpstreamPort)
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
            let Some((key, former)) = self.unanswered.remove_oldest() else {
                break;
            };
            self.release(key, former.upstream);
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
            let answered = self.answered.remove_expired(now, idle);
            let unanswered = self.unanswered.remove_expired(now, UNANSWERED.min(idle));
            if answered.is_none() && unanswered.is_none() {
                return;
            }
            for (key, former) in answered.into_iter().chain(unanswered) {
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

    /// Returns the clients of a backend, each with the connection ID that it used last, as far as
    /// it is known. Looks at all flows.
    pub fn clients_of(&self, backend: BackendId) -> impl Iterator<Item = (Tuple, ConnectionId)> {
        // A client that has just changed its address was not answered there yet.
        let flows = self.answered.iter().chain(self.unanswered.iter());
        let flows = flows.filter(move |(key, _)| key.backend == backend);
        flows.filter_map(|(key, flow)| Some((key.tuple, flow.cid?)))
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
            self.answered.insert(used, key, FlowState { upstream, cid });
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

/// Most flows without an answer that one new flow removes to have a socket.
const EVICTIONS: usize = 16;

/// Free ports that are kept before one of them is used again, as long as there are unused ones.
const REUSE_AFTER: usize = 64;

#[cfg(test)]
mod tests;
