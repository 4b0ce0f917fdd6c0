//! Two endpoints in virtual time, over a modelled path.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses a part"
)]

pub mod bulk;
pub mod spiral;

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use clearway_links::{Direction, Nat, Packet, Path, Time};
use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::cid::generator::RandomGenerator;
use clearway_quic::connection::{Config, Connect, Connection, Event, Received};
use clearway_quic::crypto::{
    ClientCrypto, ClientSessions, Identity, ReplayFilter, ResetKey, Roots, ServerCrypto, TokenKey,
};
use clearway_quic::endpoint::{Arrival, Endpoint, EndpointConfig, Handle, Limits, ServerConfig};
use clearway_quic::path::ecn::Mark;
use clearway_quic::rng::Rng;
use clearway_quic::stream::{Directionality, ReadError, WriteError};

/// Wall time of virtual time zero, in Unix seconds.
pub const UNIX_ORIGIN: u64 = 1_800_000_000;

/// Steps without the clock moving that mean a busy loop.
const MAX_STALLED: u32 = 1000;

/// What both ends agree on before they meet.
#[derive(Clone)]
pub struct Setup {
    pub client: Config,
    pub server: Config,
    pub client_crypto: Arc<rustls::ClientConfig>,
    pub server_crypto: Arc<rustls::ServerConfig>,
    pub sessions: Arc<ClientSessions>,
    pub always_retry: bool,
    pub limits: Limits,
    pub preferred: Option<SocketAddrV4>,
}

/// A certificate and its key, PEM; one for all tests of a binary.
pub fn identity() -> (String, String) {
    static IDENTITY: OnceLock<(String, String)> = OnceLock::new();
    IDENTITY.get_or_init(make_identity).clone()
}

fn make_identity() -> (String, String) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let cert = rcgen::CertificateParams::new(vec!["localhost".into()])
        .expect("parameters")
        .self_signed(&key)
        .expect("a certificate");
    (cert.pem(), key.serialize_pem())
}

impl Setup {
    pub fn new() -> Self {
        let (cert, key) = identity();
        let sessions = Arc::new(ClientSessions::new(16));
        let roots = Roots::from_pem(cert.as_bytes()).expect("roots");
        let identity = Identity::from_pem(cert.as_bytes(), key.as_bytes()).expect("identity");
        Self {
            client: Config::default(),
            server: Config::default(),
            client_crypto: ClientCrypto::new(roots)
                .alpn(["test"])
                .sessions(sessions.clone())
                .build()
                .expect("client settings"),
            server_crypto: ServerCrypto::new(identity)
                .alpn(["test"])
                .early_data(true)
                .build()
                .expect("server settings"),
            sessions,
            always_retry: false,
            limits: Limits::default(),
            preferred: None,
        }
    }

    /// A server with other certificates than `new` gives:
    /// `chain` and the key of its first, all PEM.
    pub fn with_identity(root: &str, chain: &str, key: &str) -> Self {
        let mut this = Self::new();
        let roots = Roots::from_pem(root.as_bytes()).expect("roots");
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).expect("identity");
        this.client_crypto = ClientCrypto::new(roots)
            .alpn(["test"])
            .build()
            .expect("client settings");
        this.server_crypto = ServerCrypto::new(identity)
            .alpn(["test"])
            .build()
            .expect("server settings");
        this
    }

    fn server_endpoint(&self) -> EndpointConfig {
        EndpointConfig {
            transport: Arc::new(self.server.clone()),
            server: Some(ServerConfig {
                crypto: self.server_crypto.clone(),
                token_key: Arc::new(TokenKey::new(&[7; 32])),
                replay: Arc::new(Mutex::new(ReplayFilter::new(1024))),
                always_retry: self.always_retry,
                limits: self.limits,
                preferred_address: self.preferred.map(|v4| (Some(v4), None)),
            }),
            reset_key: Arc::new(ResetKey::new(&[9; 32])),
            generator: Arc::new(|| Box::new(RandomGenerator::new(8))),
        }
    }
}

/// One end: an endpoint and its connections.
pub struct Host {
    pub address: SocketAddr,
    pub endpoint: Endpoint,
    pub connections: BTreeMap<Handle, Connection>,
    pub events: BTreeMap<Handle, Vec<Event>>,
    /// Accept clients (servers), else leave them without an answer.
    pub accepting: bool,
    response: Vec<u8>,
    train: Vec<u8>,
}

impl Host {
    fn new(address: &str, endpoint: Endpoint) -> Self {
        Self {
            address: address.parse().expect("an address"),
            endpoint,
            connections: BTreeMap::new(),
            events: BTreeMap::new(),
            accepting: true,
            response: Vec::new(),
            train: vec![0; 65_536],
        }
    }

    /// The first connection, where stray packets may have begun others.
    pub fn first(&mut self) -> Option<&mut Connection> {
        self.connections.values_mut().next()
    }

    /// The only connection, or the newest.
    pub fn connection(&mut self) -> &mut Connection {
        self.connections
            .values_mut()
            .next_back()
            .expect("a connection")
    }

    pub fn receive(&mut self, now: Instant, mut packet: Packet) -> Option<Packet> {
        let from = Received {
            remote: packet.src,
            local_ip: Some(packet.dst.ip()),
            ecn: match packet.ecn {
                clearway_links::Ecn::NotEct => ReceivedEcn::NotEct,
                clearway_links::Ecn::Ect0 => ReceivedEcn::Ect0,
                clearway_links::Ecn::Ect1 => ReceivedEcn::Ect1,
                clearway_links::Ecn::Ce => ReceivedEcn::Ce,
            },
        };
        let unix = UNIX_ORIGIN + now.as_nanos() / 1_000_000_000;
        let arrival = self
            .endpoint
            .receive(now, unix, from, &packet.data, &mut self.response);
        let handle = match arrival {
            Arrival::Connection(handle) => handle,
            Arrival::Incoming(incoming) if self.accepting => {
                let (handle, connection) = self.endpoint.accept(now, &incoming).expect("accepts");
                self.connections.insert(handle, connection);
                handle
            }
            Arrival::Incoming(_) | Arrival::Dropped(_) => return None,
            Arrival::Respond => {
                return Some(Packet::new(packet.dst, packet.src, self.response.clone()));
            }
        };
        if let Some(connection) = self.connections.get_mut(&handle) {
            connection.receive(now, from, &mut packet.data);
        }
        None
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.connections
            .values()
            .filter_map(Connection::next_timeout)
            .min()
    }

    fn handle_timeouts(&mut self, now: Instant) {
        for connection in self.connections.values_mut() {
            if connection.next_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
        }
    }

    /// Everything that may leave now.
    fn transmit(&mut self, now: Instant, mut emit: impl FnMut(Packet)) {
        for (handle, connection) in &mut self.connections {
            while let Some(sent) = connection.transmit(now, &mut self.train, 64) {
                let segment = sent.segment.unwrap_or(sent.len);
                for datagram in self.train[..sent.len].chunks(segment) {
                    let ecn = match sent.ecn {
                        Mark::NotEct => clearway_links::Ecn::NotEct,
                        Mark::Ect0 => clearway_links::Ecn::Ect0,
                        Mark::Ect1 => clearway_links::Ecn::Ect1,
                    };
                    let src = SocketAddr::new(
                        sent.local_ip.unwrap_or(self.address.ip()),
                        self.address.port(),
                    );
                    emit(Packet::new(src, sent.remote, datagram.to_vec()).with_ecn(ecn));
                }
            }
            while let Some(event) = connection.poll_endpoint_event() {
                self.endpoint.on_event(*handle, event);
            }
            while let Some(event) = connection.poll_event() {
                self.events.entry(*handle).or_default().push(event);
            }
        }
    }
}

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
}

impl World {
    pub fn new(setup: Setup, path: Path, seed: u64) -> Self {
        let mut rng = rng(seed);
        let client = EndpointConfig::client(Arc::new(setup.client.clone()), &mut rng);
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
        }
    }

    /// The server forgets everything but its settings, which are `setup`'s.
    pub fn restart_server(&mut self, seed: u64) {
        let endpoint = Endpoint::new(self.setup.server_endpoint(), rng(seed));
        self.server = Host::new(&self.server.address.to_string(), endpoint);
    }

    /// Begins a client connection.
    pub fn connect(&mut self) -> Handle {
        let (handle, connection) = self
            .client
            .endpoint
            .connect(
                self.now,
                Connect {
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
        let mut out = Vec::new();
        self.client
            .transmit(self.now, |packet| out.push((Direction::Up, packet)));
        self.server
            .transmit(self.now, |packet| out.push((Direction::Down, packet)));
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
    let id = world
        .client
        .connection()
        .open(Directionality::Bidirectional)
        .expect("a stream");
    world.client.connection().write(id, b"go").expect("writes");
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
