//! A client, a server, a clock and a path between them.

use std::time::Duration;

use clearway_links::{Direction, Nat, Packet, Path, Time};
use clearway_quic::connection::ConnectOptions;
use clearway_quic::endpoint::{ConnectionHandle, Endpoint};
use clearway_quic::rng::Rng;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use super::{Application, EventLog, Host, Meter, Setup};

/// Number of steps without progress of the clock that is taken for a busy loop.
const MAX_STALLED: u32 = 1000;

/// Is called with every datagram before it is sent. The datagram is dropped if it returns false.
pub type Filter = Box<dyn FnMut(Direction, &mut Packet) -> bool>;

/// A client, a server, a clock and a path between them.
pub struct World<A = EventLog> {
    /// The configuration of both ends, for connections that begin from now on.
    pub setup: Setup,
    /// Virtual time.
    pub now: Instant,
    /// The client.
    pub client: Host<A>,
    /// The server.
    pub server: Host<A>,
    /// The path between them.
    pub path: Path,
    /// Number of steps so far, to bound a run that does not end.
    pub steps: u64,
    /// Digest of the time, direction and size of every datagram.
    pub digest: u64,
    /// Number of steps since the clock last moved.
    stalled: u32,
    /// The NAT before the client.
    pub nat: Option<Nat>,
    /// Is called with every datagram before it is sent.
    pub filter: Option<Filter>,
    /// Measures the memory of one end after every datagram, timer and flush.
    pub meter: Option<Meter>,
}

impl<A> core::fmt::Debug for World<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Creates a world whose ends record their events.
    #[must_use]
    pub fn new(setup: Setup, path: Path, seed: u64) -> Self {
        Self::with_applications(setup, path, seed, EventLog::default(), EventLog::default())
    }

    /// Restarts the client with the configuration of `setup`. It keeps its address and, as far as
    /// they are in `setup`, its sessions.
    pub fn restart_client(&mut self, seed: u64) {
        let mut rng = rng(seed);
        let config = self.setup.client_endpoint(&mut rng);
        let endpoint = Endpoint::new(config, rng.child("client"));
        let address = self.client.address.to_string();
        self.client = Host::new(&address, endpoint, EventLog::default());
    }

    /// Restarts the server: it loses all state but its configuration, which is that of `setup`.
    pub fn restart_server(&mut self, seed: u64) {
        let endpoint = Endpoint::new(self.setup.server_endpoint(), rng(seed));
        let address = self.server.address.to_string();
        self.server = Host::new(&address, endpoint, EventLog::default());
    }
}

impl<A: Application> World<A> {
    /// Creates a world with an application on each end.
    #[must_use]
    pub fn with_applications(
        setup: Setup,
        path: Path,
        seed: u64,
        client_app: A,
        server_app: A,
    ) -> Self {
        let mut rng = rng(seed);
        let client = setup.client_endpoint(&mut rng);
        let server = setup.server_endpoint();
        Self {
            setup,
            now: Instant::ZERO,
            client: Host::new(
                "10.0.0.1:5000",
                Endpoint::new(client, rng.child("client")),
                client_app,
            ),
            server: Host::new(
                "10.0.0.2:443",
                Endpoint::new(server, rng.child("server")),
                server_app,
            ),
            path,
            steps: 0,
            stalled: 0,
            nat: None,
            digest: 0xcbf2_9ce4_8422_2325,
            filter: None,
            meter: None,
        }
    }

    fn measure(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.measure(match meter.role {
                Role::Client => &self.client,
                Role::Server => &self.server,
            });
        }
    }

    /// Returns one end.
    pub fn host(&mut self, role: Role) -> &mut Host<A> {
        match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        }
    }

    /// Begins a connection of the client.
    ///
    /// # Panics
    /// If the endpoint cannot connect.
    pub fn connect(&mut self) -> ConnectionHandle {
        let (handle, connection) = self
            .client
            .endpoint
            .connect(
                self.now,
                ConnectOptions {
                    remote: self.server.address,
                    local_ip: None,
                    server_name: "localhost".try_into().expect("a name"),
                    crypto: self.setup.client_crypto.clone(),
                    sessions: Some(self.setup.sessions.clone()),
                },
            )
            .expect("connects");
        self.client.begin(handle, connection);
        handle
    }

    /// Sends and receives everything that is due now, then moves the clock to the next event.
    /// Returns false if there is none.
    pub fn step(&mut self) -> bool {
        self.step_to(Instant::from_nanos(u64::MAX))
    }

    /// Same as [`step`](Self::step), but moves the clock no further than `end`.
    ///
    /// # Panics
    /// If the clock has not moved for many steps: an end has a busy timer.
    pub fn step_to(&mut self, end: Instant) -> bool {
        self.steps += 1;
        self.flush();
        let now = Time(self.now.as_nanos());
        let mut next = self.path.next_event();
        for timeout in [self.client.next_timeout(), self.server.next_timeout()] {
            let timeout = timeout.map(|at| Time(at.as_nanos()));
            next = match (next, timeout) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        let Some(next) = next else { return false };
        let next = next.max(now).min(Time(end.as_nanos()));
        self.stalled = if next == now { self.stalled + 1 } else { 0 };
        assert!(
            self.stalled < MAX_STALLED,
            "busy: {:?} client {:?} server {:?}",
            self.now,
            self.client.next_timeout(),
            self.server.next_timeout()
        );
        self.now = Instant::from_nanos(next.0);
        while let Some((direction, packet)) = self.path.poll(next) {
            self.deliver(direction, packet);
        }
        self.client.handle_timeouts(self.now);
        self.server.handle_timeouts(self.now);
        self.measure();
        true
    }

    /// Delivers a datagram now.
    pub fn deliver(&mut self, direction: Direction, mut packet: Packet) {
        let now = Time(self.now.as_nanos());
        if direction == Direction::Down
            && let Some(nat) = &mut self.nat
            && !nat.inward(now, &mut packet)
        {
            return;
        }
        let (host, back) = match direction {
            Direction::Up => (&mut self.server, Direction::Down),
            Direction::Down => (&mut self.client, Direction::Up),
        };
        if let Some(response) = host.receive(self.now, packet) {
            self.send(back, response);
        }
        self.measure();
    }

    fn send(&mut self, direction: Direction, mut packet: Packet) {
        for value in [
            self.now.as_nanos(),
            direction as u64,
            packet.data.len() as u64,
        ] {
            self.digest = (self.digest ^ value).wrapping_mul(0x100_0000_01b3);
        }
        if direction == Direction::Up
            && let Some(nat) = &mut self.nat
        {
            nat.outward(Time(self.now.as_nanos()), &mut packet);
        }
        if let Some(filter) = &mut self.filter
            && !filter(direction, &mut packet)
        {
            return;
        }
        let _ = self.path.send(Time(self.now.as_nanos()), direction, packet);
    }

    /// Sends everything that both ends have to send.
    pub fn flush(&mut self) {
        self.measure();
        let mut out = Vec::new();
        self.client
            .transmit(self.now, |packet| out.push((Direction::Up, packet)));
        self.server
            .transmit(self.now, |packet| out.push((Direction::Down, packet)));
        self.measure();
        for (direction, packet) in out {
            self.send(direction, packet);
        }
    }

    /// Sends everything, then checks the invariants of all connections.
    pub fn check(&mut self) {
        self.flush();
        for host in [&self.client, &self.server] {
            for connection in host.connections.values() {
                connection.check_invariants();
            }
        }
    }

    /// Runs until `done` returns true, for at most `limit` of virtual time. Returns whether it did.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.flush();
            if done(self) {
                return true;
            }
            if self.now >= end || !self.step_to(end) {
                return false;
            }
        }
    }

    /// Runs for `time`.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Opens a stream of the client, writes a few bytes to it and leaves it open.
    ///
    /// # Panics
    /// If the stream cannot be opened.
    pub fn ask(&mut self) -> StreamId {
        let client = self.client.connection();
        let id = client
            .open(Directionality::Bidirectional)
            .expect("a stream");
        client.write(id, b"go").expect("writes");
        id
    }

    /// Connects, and runs until both ends have confirmed the handshake.
    ///
    /// # Panics
    /// If they have not after ten seconds.
    pub fn handshake(&mut self) {
        self.connect();
        let done = self.run_until(Duration::from_secs(10), |world| {
            !world.server.connections.is_empty()
                && world.client.connection().is_confirmed()
                && world.server.connection().is_confirmed()
        });
        assert!(
            done,
            "the handshake did not complete: client {:?}, server {:?}",
            newest_error(&self.client),
            newest_error(&self.server)
        );
    }
}

fn newest_error<A>(host: &Host<A>) -> Option<String> {
    let connection = host.connections.values().next_back()?;
    connection.error().map(ToString::to_string)
}

/// Returns a random number generator for a seed.
fn rng(seed: u64) -> Rng {
    let mut bytes = [0; 32];
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = (seed + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(i as u32 * 13);
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    Rng::from_seed(bytes)
}

/// Returns a path with the same link both ways, from its specification.
///
/// # Panics
/// If the specification is invalid.
#[must_use]
pub fn path(spec: &str, seed: u64) -> Path {
    Path::symmetric(&spec.parse().expect("a link"), seed)
}
