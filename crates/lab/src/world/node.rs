//! A host: a stack, its applications, and its addresses.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use clearway_links::{Nat, Packet, Time};

use super::AddressChanges;
use crate::app::{Application, Conn, Next};
use crate::stack::{ConnId, ConnectionState, Stack};

/// Creates the application of each connection that a server accepts.
pub(super) type Applications = Box<dyn FnMut() -> Box<dyn Application>>;

/// The side of the shared path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// A running application.
struct RunningApplication {
    conn: ConnId,
    application: Box<dyn Application>,
    next: Next,
}

/// The address changes that a client still has to make.
struct PendingChanges {
    remote: SocketAddr,
    /// When to connect; `None` once it has.
    connect_at: Option<Time>,
    application: Option<Box<dyn Application>>,
    /// Later moves, the next one last.
    migrations: Vec<Time>,
}

pub(super) struct Node {
    pub(super) stack: Box<dyn Stack>,
    pub(super) address: SocketAddr,
    pub(super) position: Side,
    /// Addresses with links of their own, each with the index of the first of its two links.
    pub(super) legs: Vec<(SocketAddr, usize)>,
    pub(super) dirty: bool,
    nat: Option<Nat>,
    applications: Option<Applications>,
    plan: Option<PendingChanges>,
    works: Vec<RunningApplication>,
    finished: bool,
    pub(super) largest_burst: u64,
}

impl Node {
    pub(super) fn server(
        stack: Box<dyn Stack>,
        address: SocketAddr,
        applications: Applications,
    ) -> Self {
        Self {
            applications: Some(applications),
            ..Self::bare(stack, address, Side::Server)
        }
    }

    pub(super) fn client(
        stack: Box<dyn Stack>,
        address: SocketAddr,
        remote: SocketAddr,
        moves: &AddressChanges,
        application: Box<dyn Application>,
    ) -> Self {
        let at = |after: &Duration| Time::ZERO + *after;
        let mut migrations: Vec<Time> = moves.migrate.iter().map(at).collect();
        migrations.sort_unstable_by(|a, b| b.cmp(a));
        let plan = PendingChanges {
            remote,
            connect_at: Some(at(&moves.starts)),
            application: Some(application),
            migrations,
        };
        Self {
            nat: nat(address, &moves.rebind),
            plan: Some(plan),
            ..Self::bare(stack, address, Side::Client)
        }
    }

    fn bare(stack: Box<dyn Stack>, address: SocketAddr, position: Side) -> Self {
        Self {
            stack,
            address,
            position,
            legs: Vec::new(),
            dirty: false,
            nat: None,
            applications: None,
            plan: None,
            works: Vec::new(),
            finished: false,
            largest_burst: 0,
        }
    }

    pub(super) fn newest(&self) -> Option<ConnId> {
        self.works.last().map(|work| work.conn)
    }

    /// Whether a client's connection is established.
    pub(super) fn has_asked(&self) -> bool {
        self.position == Side::Client
            && self
                .newest()
                .is_some_and(|conn| self.stack.life(conn) == ConnectionState::Connected)
    }

    /// Runs the applications; returns true once, when a client is done.
    pub(super) fn act(&mut self, now: Time) -> bool {
        if let Some(applications) = &mut self.applications {
            while let Some(conn) = self.stack.accept() {
                self.works.push(RunningApplication {
                    conn,
                    application: applications(),
                    next: Next::Wait,
                });
            }
        }
        for work in &mut self.works {
            if work.next != Next::Done {
                let mut conn = Conn::new(&mut *self.stack, work.conn, now);
                work.next = work.application.poll(&mut conn, now);
            }
        }
        let done = self.position == Side::Client
            && !self.finished
            && !self.works.is_empty()
            && self.works.iter().all(|work| work.next == Next::Done);
        self.finished |= done;
        done
    }

    /// Counts what is sent at one instant. Long headers belong to the handshake.
    pub(super) fn note_burst(&mut self, packets: &[Packet]) {
        const LONG_HEADER: u8 = 0x80;
        let is_short = |packet: &&Packet| packet.data.first().is_some_and(|b| b & LONG_HEADER == 0);
        let short = packets.iter().filter(is_short);
        let bytes = short.map(|packet| packet.data.len() as u64).sum();
        self.largest_burst = self.largest_burst.max(bytes);
    }

    /// When it has to be called next.
    pub(super) fn next_wake(&self) -> Option<Time> {
        let applications = self.works.iter().filter_map(|work| match work.next {
            Next::At(at) => Some(at),
            Next::Wait | Next::Done => None,
        });
        let plan = self.plan.as_ref();
        let moves = plan.and_then(|plan| plan.migrations.last().copied());
        let connect = plan.and_then(|plan| plan.connect_at);
        applications
            .chain(self.stack.next_timeout())
            .chain(moves)
            .chain(connect)
            .min()
    }

    /// Handles the time of `next_wake`; returns the addresses it has from now on.
    pub(super) fn wake(&mut self, now: Time) -> Option<SocketAddr> {
        if self.stack.next_timeout().is_some_and(|at| at <= now) {
            self.stack.handle_timeout(now);
        }
        let plan = self.plan.as_mut()?;
        if plan.connect_at.is_some_and(|at| at <= now) {
            plan.connect_at = None;
            let application = plan.application.take()?;
            match self.stack.connect(now, plan.remote) {
                Ok(conn) => self.works.push(RunningApplication {
                    conn,
                    application,
                    next: Next::Wait,
                }),
                Err(_) => self.finished = true,
            }
        }
        if plan.migrations.last().is_some_and(|&at| at <= now) {
            plan.migrations.pop();
            return self.migrate(now);
        }
        None
    }

    /// Moves to its next address.
    fn migrate(&mut self, now: Time) -> Option<SocketAddr> {
        let conn = self.newest()?;
        let to = self.next_address();
        // If that is refused, it stays where it is.
        self.stack.migrate(now, conn, to).ok()?;
        self.address = to;
        Some(to)
    }

    /// The address it moves to next.
    pub(super) fn next_address(&self) -> SocketAddr {
        let ip = match self.address.ip() {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                IpAddr::from([a, b.wrapping_add(1), c, d])
            }
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits().wrapping_add(1))),
        };
        SocketAddr::new(ip, self.address.port())
    }

    /// The first of the two links of one of its addresses. Packets that come through a router have
    /// the outside address, which is then the only one.
    pub(super) fn leg(&self, address: &SocketAddr) -> Option<usize> {
        let of = |(at, leg): &(SocketAddr, usize)| (at == address).then_some(*leg);
        let through = self.nat.as_ref().and(self.legs.first());
        self.legs
            .iter()
            .find_map(of)
            .or(through.map(|(_, leg)| *leg))
    }

    /// All outside addresses that a router in front of it ever uses.
    pub(super) fn outside_addresses(&self) -> Vec<SocketAddr> {
        let Some(_) = &self.nat else {
            return Vec::new();
        };
        (0..OUTSIDE_PORTS)
            .map(|n| outside(self.address, n))
            .collect()
    }

    pub(super) fn translate_outward(&mut self, now: Time, packet: &mut Packet) {
        if let Some(nat) = &mut self.nat {
            nat.outward(now, packet);
        }
    }

    /// False if the packet goes to an address that it no longer has.
    pub(super) fn translate_inward(&mut self, now: Time, packet: &mut Packet) -> bool {
        match &mut self.nat {
            Some(nat) => nat.inward(now, packet),
            // An address it moved away from stays usable: make before break.
            None => true,
        }
    }
}

/// Maximum number of rebindings of a client.
const OUTSIDE_PORTS: u16 = 64;

/// The `n`th outside address of a client.
fn outside(inside: SocketAddr, n: u16) -> SocketAddr {
    SocketAddr::new(inside.ip(), 20_000 + n)
}

fn nat(inside: SocketAddr, rebind: &[Duration]) -> Option<Nat> {
    if rebind.is_empty() {
        return None;
    }
    let first = Nat::new(outside(inside, 0));
    let changes = rebind.iter().zip(1..OUTSIDE_PORTS);
    Some(changes.fold(first, |nat, (&at, n)| {
        nat.rebind(Time::ZERO + at, outside(inside, n))
    }))
}
