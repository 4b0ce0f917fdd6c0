//! Two endpoints in virtual time, over a modelled path.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses a part"
)]

pub mod bulk;
pub mod host;
mod meter;
pub mod setup;
pub mod spiral;

use std::time::Duration;

use clearway_links::{Direction, Nat, Packet, Path, Time};
use clearway_quic::connection::ConnectOptions;
use clearway_quic::endpoint::{ConnectionHandle, Endpoint};
use clearway_quic::rng::Rng;
use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};
use clearway_quic::{Instant, Role};

pub use host::Host;
pub use meter::Meter;
pub use setup::Setup;

/// Wall time of virtual time zero, in Unix seconds.
pub const UNIX_ORIGIN: u64 = 1_800_000_000;

/// Steps without the clock moving that mean a busy loop.
const MAX_STALLED: u32 = 1000;

/// Sees every datagram before it is sent; false drops it.
pub type Filter = Box<dyn FnMut(Direction, &mut Packet) -> bool>;

/// A client, a server, and what lies between.
pub struct World {
    pub setup: Setup,
    pub now: Instant,
    pub client: Host,
    pub server: Host,
    pub path: Path,
    /// Steps taken, to bound a run that does not end.
    pub steps: u64,
    /// Digest of every datagram's time, direction and size.
    pub digest: u64,
    /// Steps since the clock moved.
    stalled: u32,
    /// Stands before the client.
    pub nat: Option<Nat>,
    /// Called for every datagram before it is sent: false drops it.
    pub filter: Option<Filter>,
    /// Weighs one end after every datagram, timer and flush.
    pub meter: Option<Meter>,
}

impl World {
    pub fn new(setup: Setup, path: Path, seed: u64) -> Self {
        let mut rng = rng(seed);
        let client = setup.client_endpoint(&mut rng);
        let server = setup.server_endpoint();
        Self {
            setup,
            now: Instant::ZERO,
            client: Host::new("10.0.0.1:5000", Endpoint::new(client, rng.child("client"))),
            server: Host::new("10.0.0.2:443", Endpoint::new(server, rng.child("server"))),
            path,
            steps: 0,
            stalled: 0,
            nat: None,
            digest: 0xcbf2_9ce4_8422_2325,
            filter: None,
            meter: None,
        }
    }

    fn weigh(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.weigh(match meter.role {
                Role::Client => &self.client,
                Role::Server => &self.server,
            });
        }
    }

    /// The server forgets everything but its settings, which are `setup`'s.
    pub fn restart_server(&mut self, seed: u64) {
        let endpoint = Endpoint::new(self.setup.server_endpoint(), rng(seed));
        self.server = Host::new(&self.server.address.to_string(), endpoint);
    }

    /// Begins a client connection.
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
        self.client.connections.insert(handle, connection);
        handle
    }

    /// Lets everything that can happen now happen, then moves the clock to the
    /// next event. False: nothing is left to happen.
    pub fn step(&mut self) -> bool {
        self.step_to(Instant::from_nanos(u64::MAX))
    }

    /// Like `step`, but no further than `end`.
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
        self.weigh();
        true
    }

    /// Hands a datagram to the end it is for, now.
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
        self.weigh();
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

    /// Sends what both ends have to send.
    pub fn flush(&mut self) {
        self.weigh();
        let mut out = Vec::new();
        self.client
            .transmit(self.now, |packet| out.push((Direction::Up, packet)));
        self.server
            .transmit(self.now, |packet| out.push((Direction::Down, packet)));
        self.weigh();
        for (direction, packet) in out {
            self.send(direction, packet);
        }
    }

    /// What must hold once both ends have said all they can say.
    pub fn check(&mut self) {
        self.flush();
        for host in [&self.client, &self.server] {
            for connection in host.connections.values() {
                connection.check_invariants();
            }
        }
    }

    /// Steps until `done`, at most until `limit` of virtual time.
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

    /// Runs for `time`, whatever happens.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// The client asks for something on a stream of its own, which it leaves open.
    pub fn ask(&mut self) -> StreamId {
        let client = self.client.connection();
        let id = client
            .open(Directionality::Bidirectional)
            .expect("a stream");
        client.write(id, b"go").expect("writes");
        id
    }

    /// Connects and runs until both ends have confirmed the handshake.
    pub fn handshake(&mut self) {
        self.connect();
        let done = self.run_until(Duration::from_secs(10), |world| {
            !world.server.connections.is_empty()
                && world.client.connection().is_confirmed()
                && world.server.connection().is_confirmed()
        });
        assert!(
            done,
            "no handshake: client {:?}, server {:?}",
            world_error(&mut self.client),
            world_error(&mut self.server)
        );
    }
}

fn world_error(host: &mut Host) -> Option<String> {
    let connection = host.connections.values().next_back()?;
    connection.error().map(ToString::to_string)
}

fn rng(seed: u64) -> Rng {
    Rng::from_seed(*blake(seed))
}

/// 32 bytes from a number.
fn blake(seed: u64) -> Box<[u8; 32]> {
    let mut out = Box::new([0; 32]);
    for (i, chunk) in out.chunks_mut(8).enumerate() {
        let word = (seed + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(i as u32 * 13);
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// A path from a specification, both ways.
pub fn path(spec: &str, seed: u64) -> Path {
    Path::symmetric(&spec.parse().expect("a link"), seed)
}

/// Downloads `total` bytes on one stream and checks every one of them.
pub fn download(world: &mut World, total: usize, limit: Duration) -> bool {
    download_watched(world, total, limit, |_| {})
}

/// As `download`, with a look at the world after every step.
pub fn download_watched(
    world: &mut World,
    total: usize,
    limit: Duration,
    mut watch: impl FnMut(&mut World),
) -> bool {
    let id = world.ask();
    world.client.connection().finish(id).expect("finishes");
    let (mut written, mut read, mut accepted) = (0, 0, None);
    world.run_until(limit, |world| {
        watch(world);
        let server = world.server.connection();
        accepted = accepted.or_else(|| server.accept(Directionality::Bidirectional));
        if let Some(id) = accepted {
            while written < total {
                let piece: Vec<u8> = (written..total.min(written + 65_536))
                    .map(|i| i as u8)
                    .collect();
                match server.write(id, &piece) {
                    Ok(n) => written += n,
                    Err(WriteError::Blocked) => break,
                    Err(error) => panic!("write: {error:?}"),
                }
                if written == total {
                    server.finish(id).expect("finishes");
                }
            }
        }
        let client = world.client.connection();
        loop {
            match client.read_chunk(id, usize::MAX) {
                Ok(Some(chunk)) => {
                    for byte in chunk {
                        assert_eq!(byte, read as u8, "at {read}");
                        read += 1;
                    }
                }
                Ok(None) => return true,
                Err(ReadError::Blocked) => return false,
                Err(error) => panic!("read: {error:?}"),
            }
        }
    }) && read == total
}
