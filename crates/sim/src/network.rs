//! Hosts by IP address, the links between them, and the sockets on them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway::udp::{Events, Readiness};
use clearway_links::{Direction, Link, LinkConfig, Packet, SpecError, Time, Verdict, mix};
use tokio::sync::Notify;

use crate::socket::Inbox;

/// The first port that is given to sockets bound to port 0.
const FIRST_FREE_PORT: u16 = 49_152;

/// A network or a socket on it could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A link's description cannot be parsed.
    #[error("invalid link: {0}")]
    Link(#[from] SpecError),
    /// Another socket has the address.
    #[error("the address {0} is in use on the simulated network")]
    AddressInUse(SocketAddr),
    /// All ports of the host are in use.
    #[error("no free port on {0} on the simulated network")]
    NoFreePort(IpAddr),
}

/// What has happened on a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Datagrams that reached a socket's queue.
    pub delivered: u64,
    /// Datagrams to an address without a socket.
    pub unreachable: u64,
    /// Datagrams that met a full queue at a link, or were dropped there on arrival.
    pub refused_by_link: u64,
    /// Datagrams that met a full receive buffer.
    pub receive_buffer_full: u64,
    /// A hash of every delivery: its time, addresses and size. Equal runs have equal hashes.
    pub digest: u64,
}

/// A network of links, shared by its sockets.
#[derive(Clone, Debug)]
pub struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something was sent, which may be due before what was on its way.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    default: LinkConfig,
    seed: u64,
    /// Links by sender and receiver.
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    sockets: BTreeMap<SocketAddr, Arc<Attached>>,
    /// Sockets that become ready by themselves, by time and in the order of their calls.
    ready_at: BTreeMap<(Time, u64), (Arc<Readiness>, Events)>,
    calls: u64,
    stats: NetworkStats,
}

/// The part of a socket that the network fills.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) readiness: Arc<Readiness>,
}

impl Network {
    /// Creates a network where every two hosts are joined by links like `default`, one in each
    /// direction ([`LinkConfig`]'s notation).
    ///
    /// # Errors
    /// If the link is not valid.
    pub fn new(default: &str, seed: u64) -> Result<Self, SimError> {
        let state = Mutex::new(State {
            default: default.parse()?,
            seed,
            links: BTreeMap::new(),
            sockets: BTreeMap::new(),
            ready_at: BTreeMap::new(),
            calls: 0,
            stats: NetworkStats::default(),
        });
        let changed = Notify::new();
        Ok(Self(Arc::new(Shared { state, changed })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notified when something was sent.
    pub(crate) fn changed(&self) -> &Notify {
        &self.0.changed
    }

    /// Sets the link that leads from one host to another, in place of the default. Packets on
    /// the link it replaces are lost.
    ///
    /// # Errors
    /// If the link is not valid.
    pub fn set_link(&self, from: IpAddr, to: IpAddr, link: &str) -> Result<(), SimError> {
        let config = link.parse()?;
        let mut state = self.state();
        let seed = state.link_seed(from, to);
        state.links.insert((from, to), Link::new(config, seed));
        Ok(())
    }

    /// Reserves an address for a socket; port 0 is the next free one.
    pub(crate) fn attach(
        &self,
        address: SocketAddr,
    ) -> Result<(SocketAddr, Arc<Attached>), SimError> {
        let mut state = self.state();
        let mut at = address;
        if address.port() == 0 {
            let mut ports = FIRST_FREE_PORT..=u16::MAX;
            let free = ports.find(|&port| {
                at.set_port(port);
                !state.sockets.contains_key(&at)
            });
            free.ok_or(SimError::NoFreePort(address.ip()))?;
        } else if state.sockets.contains_key(&at) {
            return Err(SimError::AddressInUse(at));
        }
        let attached = Arc::new(Attached {
            inbox: Mutex::default(),
            readiness: Arc::default(),
        });
        attached.readiness.set(Events::WRITABLE);
        state.sockets.insert(at, attached.clone());
        Ok((at, attached))
    }

    pub(crate) fn detach(&self, address: SocketAddr) {
        self.state().sockets.remove(&address);
    }

    /// Puts a datagram on the link to its receiver.
    pub(crate) fn send(&self, now: Time, packet: Packet) {
        let mut state = self.state();
        let hosts = (packet.src.ip(), packet.dst.ip());
        if !state.links.contains_key(&hosts) {
            let seed = state.link_seed(hosts.0, hosts.1);
            let link = Link::new(state.default.clone(), seed);
            state.links.insert(hosts, link);
        }
        let Some(link) = state.links.get_mut(&hosts) else {
            return;
        };
        match link.send(now, packet) {
            Verdict::Accepted => {}
            Verdict::QueueFull | Verdict::DroppedEarly | Verdict::Policed => {
                state.stats.refused_by_link += 1;
            }
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Makes a socket ready at `at`.
    pub(crate) fn set_ready_at(&self, at: Time, readiness: Arc<Readiness>, events: Events) {
        let mut state = self.state();
        state.calls += 1;
        let key = (at, state.calls);
        state.ready_at.insert(key, (readiness, events));
        drop(state);
        self.0.changed.notify_one();
    }

    /// Returns when the next datagram arrives somewhere.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.state().next_event()
    }

    /// Delivers all datagrams that are due by `now`, in the order of their arrival.
    pub fn advance(&self, now: Time) {
        let mut state = self.state();
        while let Some(next) = state.next_event()
            && next <= now
        {
            while let Some(entry) = state.ready_at.first_entry()
                && entry.key().0 <= next
            {
                let (readiness, events) = entry.remove();
                readiness.set(events);
            }
            let mut due = Vec::new();
            for link in state.links.values_mut() {
                while let Some((at, packet)) = link.poll_timed(next) {
                    due.push((at, packet));
                }
            }
            for (at, packet) in due {
                state.deliver(at, packet);
            }
        }
    }

    /// Returns what has happened so far.
    #[must_use]
    pub fn stats(&self) -> NetworkStats {
        self.state().stats
    }
}

impl State {
    fn next_event(&self) -> Option<Time> {
        let links = self.links.values().filter_map(Link::next_event);
        let ready = self.ready_at.keys().next().map(|key| key.0);
        links.chain(ready).min()
    }

    /// Each link draws for itself, whatever the order in which links are used first.
    fn link_seed(&self, from: IpAddr, to: IpAddr) -> u64 {
        let number = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u64::from(u32::from(ip)),
            IpAddr::V6(ip) => {
                let bits = u128::from(ip);
                (bits >> 64) as u64 ^ bits as u64
            }
        };
        let pair = mix(number(from), number(to));
        mix(Direction::Up.seed(self.seed), pair)
    }

    fn deliver(&mut self, at: Time, packet: Packet) {
        let Some(socket) = self.sockets.get(&packet.dst) else {
            self.stats.unreachable += 1;
            return;
        };
        let port = |address: SocketAddr| u64::from(address.port());
        for part in [
            at.as_nanos(),
            port(packet.src) << 32 | port(packet.dst),
            packet.data.len() as u64 | u64::from(packet.ecn.bits()) << 32,
        ] {
            self.stats.digest = mix(self.stats.digest, part);
        }
        let mut inbox = socket.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = inbox.push(packet);
        drop(inbox);
        if taken {
            self.stats.delivered += 1;
            socket.readiness.set(Events::READABLE);
        } else {
            self.stats.receive_buffer_full += 1;
        }
    }
}
