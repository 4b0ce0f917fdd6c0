//! The virtual network: hosts, links and one clock.

mod agenda;
mod amplification;
mod busy_loop;
mod digest;
mod network;
mod node;
mod tap;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use clearway_links::{Direction, Link, LinkStats, Packet, Time, Verdict, mix};
use rustc_hash::FxHashMap;

use crate::app::Application;
use crate::stack::{ConnId, Role, SenderStats, StackFactory, StackSetup};
use agenda::{Agenda, Source};
use amplification::Amplification;
pub use busy_loop::BusyLoop;
pub use digest::Digest;
pub use network::{AccessLink, ClockStart, Network, NetworkError};
use node::{Node, Side};
pub use tap::{Fate, Tap, TapRecord};

/// A host of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// The start time, addresses and links of a client.
#[derive(Clone, Debug, Default)]
pub struct AddressChanges {
    /// A link of its own between it and the shared path.
    pub leg: Option<AccessLink>,
    /// The link of the first address that it moves to.
    pub next_leg: Option<AccessLink>,
    /// When the router in front of it changes its outside port.
    pub rebind: Vec<Duration>,
    /// When it moves to another address of its own.
    pub migrate: Vec<Duration>,
    /// When it connects.
    pub starts: Duration,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every client application was done.
    Done,
    /// The time limit was reached.
    TimeOver,
    /// There were no events left.
    Silence,
}

/// Hosts and links in virtual time.
///
/// Everything is determined by the network, the stacks and the seed: two worlds created alike have
/// the same [`World::digest`].
pub struct World {
    now: Time,
    seed: u64,
    agenda: Agenda,
    nodes: Vec<Node>,
    links: Vec<Link>,
    addresses: FxHashMap<SocketAddr, NodeId>,
    clock: ClockStart,
    strays: u64,
    unfinished: usize,
    dirty: Vec<NodeId>,
    digest: Digest,
    amplification: Vec<Amplification>,
    tap: Option<Box<dyn Tap>>,
    events: u64,
    /// Reused by every flush.
    outbox: Vec<Packet>,
}

/// Indices of the shared links; the access links follow.
const UP: usize = 0;
const DOWN: usize = 1;

impl World {
    /// Creates a world without hosts around `network`, with all randomness derived from `seed`.
    #[must_use]
    pub fn new(network: &Network, seed: u64) -> Self {
        let links = vec![
            Link::new(network.up.clone(), Direction::Up.seed(seed)),
            Link::new(network.down.clone(), Direction::Down.seed(seed)),
        ];
        Self {
            now: Time::ZERO,
            seed,
            agenda: Agenda::new(links.len()),
            nodes: Vec::new(),
            links,
            addresses: FxHashMap::default(),
            clock: network.clock,
            strays: 0,
            unfinished: 0,
            dirty: Vec::new(),
            digest: Digest::default(),
            amplification: Vec::new(),
            tap: None,
            events: 0,
            outbox: Vec::new(),
        }
    }

    /// Shows every datagram to `tap` from now on.
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Adds a host that accepts connections; `application` creates the application of each.
    pub fn server<A: Application + 'static>(
        &mut self,
        stack: &dyn StackFactory,
        mut application: impl FnMut() -> A + 'static,
    ) -> NodeId {
        let index = self.nodes.len();
        let [high, low] = ((index / 2) as u16).to_be_bytes();
        let address = SocketAddr::from((Ipv4Addr::new(10, 1, high, low.wrapping_add(1)), 443));
        let birth = self.birth(address, Role::Server);
        let node = Node::server(
            stack.build(&birth),
            address,
            Box::new(move || Box::new(application())),
        );
        self.add(node)
    }

    /// Adds a host that connects to `server`.
    pub fn client(
        &mut self,
        stack: &dyn StackFactory,
        server: NodeId,
        application: impl Application + 'static,
    ) -> NodeId {
        self.client_that_moves(stack, server, &AddressChanges::default(), application)
    }

    /// Adds a host that connects to `server`, with a link of its own, a late start, or changing
    /// addresses.
    pub fn client_that_moves(
        &mut self,
        stack: &dyn StackFactory,
        server: NodeId,
        moves: &AddressChanges,
        application: impl Application + 'static,
    ) -> NodeId {
        let index = self.nodes.len();
        let [high, low] = ((index / 2) as u16).to_be_bytes();
        let address = SocketAddr::from((Ipv4Addr::new(10, 2, high, low.wrapping_add(1)), 5000));
        let birth = self.birth(address, Role::Client);
        let remote = self.nodes[server.0].address;
        let mut node = Node::client(
            stack.build(&birth),
            address,
            remote,
            moves,
            Box::new(application),
        );
        let seed = mix(self.seed, 100 + index as u64);
        let next = node.next_address();
        for (number, leg, at) in [(1, &moves.leg, address), (3, &moves.next_leg, next)] {
            let Some(leg) = leg else { continue };
            node.legs.push((at, self.links.len()));
            let up = Link::new(leg.up.clone(), mix(seed, number));
            let down = Link::new(leg.down.clone(), mix(seed, number + 1));
            self.links.extend([up, down]);
            self.agenda.grow_links(2);
        }
        for outside in node.outside_addresses() {
            self.addresses.insert(outside, NodeId(index));
        }
        self.unfinished += 1;
        self.add(node)
    }

    fn birth(&self, address: SocketAddr, role: Role) -> StackSetup {
        StackSetup {
            address,
            role,
            seed: self.seed,
            index: self.nodes.len(),
        }
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len());
        self.addresses.insert(node.address, id);
        self.nodes.push(node);
        self.amplification.push(Amplification::default());
        self.agenda.grow_nodes(1);
        self.mark(id);
        id
    }

    /// The virtual time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Number of events processed so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The digest of every datagram's time, direction, size and fate so far.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Counters of the shared link of one direction.
    #[must_use]
    pub fn link_stats(&self, direction: Direction) -> &LinkStats {
        self.link(direction).stats()
    }

    /// The shared link of one direction.
    #[must_use]
    pub fn link(&self, direction: Direction) -> &Link {
        match direction {
            Direction::Up => &self.links[UP],
            Direction::Down => &self.links[DOWN],
        }
    }

    /// Statistics of a host's newest connection, if it has one.
    #[must_use]
    pub fn figures(&self, node: NodeId) -> Option<SenderStats> {
        let node = &self.nodes[node.0];
        let conn = node.newest()?;
        Some(node.stack.figures(self.now, conn))
    }

    /// A host's newest connection.
    #[must_use]
    pub fn connection(&self, node: NodeId) -> Option<ConnId> {
        self.nodes[node.0].newest()
    }

    /// The most bytes that a host sent at the same instant, without the handshake.
    #[must_use]
    pub fn largest_burst(&self, node: NodeId) -> u64 {
        self.nodes[node.0].largest_burst
    }

    /// The largest ratio of bytes sent to bytes received by a server, times 1,000, before address
    /// validation (RFC 9000 §8.1: 3,000).
    #[must_use]
    pub fn amplification_permille(&self) -> u64 {
        let worst = self.amplification.iter().map(Amplification::worst_permille);
        worst.max().unwrap_or(0)
    }

    /// Violations of conservation: packets that no link can account for.
    #[must_use]
    pub fn unbalanced(&self) -> Option<String> {
        self.links.iter().enumerate().find_map(|(index, link)| {
            let stats = link.stats();
            let came = stats.sent + stats.duplicated;
            let gone = stats.delivered + stats.dropped() + link.in_transit() as u64;
            (came != gone).then(|| {
                format!("link {index}: {came} packets sent or duplicated, {gone} accounted for")
            })
        })
    }

    /// Asks every stack to check itself; see [`crate::stack::Stack::check`].
    pub fn check(&self) {
        for node in &self.nodes {
            node.stack.check();
        }
    }

    /// Runs until every client is done, no events are left, or `limit` has passed.
    ///
    /// # Errors
    /// If hosts keep acting without time advancing.
    pub fn run(&mut self, limit: Duration) -> Result<RunEnd, BusyLoop> {
        self.run_to(self.now + limit)
    }

    /// Runs until `end` at the latest; see [`World::run`].
    ///
    /// # Errors
    /// Like [`World::run`].
    pub fn run_to(&mut self, end: Time) -> Result<RunEnd, BusyLoop> {
        loop {
            self.flush();
            if self.unfinished == 0 {
                return Ok(RunEnd::Done);
            }
            let Some(next) = self.agenda.next_time() else {
                self.now = end;
                return Ok(RunEnd::Silence);
            };
            if next > end {
                self.now = end;
                return Ok(RunEnd::TimeOver);
            }
            match self.agenda.move_to(self.now, next) {
                Ok(now) => self.now = now,
                Err(stalled) => return Err(self.busy(stalled.calls)),
            }
            while let Some(source) = self.agenda.pop_due(self.now) {
                self.events += 1;
                match source {
                    Source::Link(index) => self.poll_link(index),
                    Source::Node(index) => self.wake(NodeId(index)),
                }
            }
        }
    }

    /// Time does not advance: the source that is due now is the cause.
    fn busy(&mut self, calls: u32) -> BusyLoop {
        let host = match self.agenda.pop_due(self.now) {
            Some(Source::Node(index)) => Some(NodeId(index)),
            Some(Source::Link(_)) | None => None,
        };
        BusyLoop {
            at: self.now,
            host,
            calls,
        }
    }

    fn mark(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.0];
        if !node.dirty {
            node.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Lets every host on which something happened act and send.
    fn flush(&mut self) {
        let mut dirty = core::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let node = &mut self.nodes[id.0];
            node.dirty = false;
            let mut outbox = core::mem::take(&mut self.outbox);
            let mut emit = |packet| outbox.push(packet);
            // As behind a socket: the transport has responded before an application, which runs
            // elsewhere, is notified. A request does not share a datagram with the end of the
            // handshake.
            node.stack.transmit(self.now, &mut emit);
            if node.act(self.now) {
                self.unfinished -= 1;
            }
            node.stack.transmit(self.now, &mut emit);
            self.start_clock(id, !outbox.is_empty());
            self.nodes[id.0].note_burst(&outbox);
            for packet in outbox.drain(..) {
                self.depart(id, packet);
            }
            self.outbox = outbox;
            let at = self.nodes[id.0].next_wake();
            self.agenda.schedule(Source::Node(id.0), at);
        }
        debug_assert!(self.dirty.is_empty(), "a flush marks nobody");
        self.dirty = dirty;
    }

    fn wake(&mut self, id: NodeId) {
        let now = self.now;
        let node = &mut self.nodes[id.0];
        match node.next_wake() {
            Some(at) if at <= now => {
                if let Some(address) = node.wake(now) {
                    self.addresses.insert(address, id);
                }
                self.mark(id);
            }
            later => self.agenda.schedule(Source::Node(id.0), later),
        }
    }

    /// Starts the explicit clocks of the links once there is data to lose.
    fn start_clock(&mut self, id: NodeId, sends: bool) {
        if self.clock == ClockStart::Explicit {
            return;
        }
        let due = match self.clock {
            ClockStart::Explicit => false,
            ClockStart::FirstDatagram => sends,
            ClockStart::FirstRequest => self.nodes[id.0].has_asked(),
        };
        if due {
            for link in &mut self.links {
                if link.windows_started().is_none() {
                    link.start_windows_at(self.now);
                }
            }
            self.clock = ClockStart::Explicit;
        }
    }

    /// Sends a datagram from its host.
    fn depart(&mut self, id: NodeId, mut packet: Packet) {
        let node = &mut self.nodes[id.0];
        let (direction, link) = match node.position {
            Side::Client => {
                let leg = node.leg(&packet.src);
                node.translate_outward(self.now, &mut packet);
                (Direction::Up, leg.unwrap_or(UP))
            }
            Side::Server => {
                self.amplification[id.0].on_sent(packet.data.len());
                (Direction::Down, DOWN)
            }
        };
        self.digest.add(self.now, direction, packet.data.len());
        self.offer(link, direction, packet);
    }

    fn offer(&mut self, link: usize, direction: Direction, packet: Packet) {
        let shown = self.tap.is_some().then(|| packet.clone());
        let verdict = self.links[link].send(self.now, packet);
        let fate = match verdict {
            Verdict::Accepted => Fate::Sent,
            Verdict::QueueFull => Fate::QueueFull,
            Verdict::DroppedEarly | Verdict::Policed => Fate::Dropped,
        };
        self.digest.decide(fate);
        if let Some(packet) = shown
            && (link == UP || link == DOWN)
        {
            self.show(direction, fate, &packet);
        }
        let at = self.links[link].next_event();
        self.agenda.schedule(Source::Link(link), at);
    }

    fn show(&mut self, direction: Direction, fate: Fate, packet: &Packet) {
        if let Some(tap) = &mut self.tap {
            tap.see(&TapRecord {
                at: self.now,
                direction,
                fate,
                packet,
            });
        }
    }

    fn poll_link(&mut self, index: usize) {
        while let Some(packet) = self.links[index].poll(self.now) {
            self.forward(index, packet);
        }
        let at = self.links[index].next_event();
        self.agenda.schedule(Source::Link(index), at);
    }

    /// Moves a datagram from a link into the next one, or to a host.
    fn forward(&mut self, link: usize, mut packet: Packet) {
        let direction = if link % 2 == UP {
            Direction::Up
        } else {
            Direction::Down
        };
        if direction == Direction::Up && link != UP {
            self.offer(UP, direction, packet);
            return;
        }
        let Some(&id) = self.addresses.get(&packet.dst) else {
            self.strays += 1;
            return;
        };
        let node = &mut self.nodes[id.0];
        if link == DOWN
            && let Some(leg) = node.leg(&packet.dst)
        {
            self.offer(leg + 1, direction, packet);
            return;
        }
        if !node.translate_inward(self.now, &mut packet) {
            self.strays += 1;
            return;
        }
        self.digest.add(self.now, direction, packet.data.len());
        if direction == Direction::Up {
            self.amplification[id.0].on_received(&packet.data);
        }
        self.show(direction, Fate::Arrived, &packet);
        self.nodes[id.0].stack.receive(self.now, packet);
        self.mark(id);
    }
}
