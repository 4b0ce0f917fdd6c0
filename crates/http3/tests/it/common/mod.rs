//! Two ends in virtual time, over a modelled path, with HTTP/3 on top.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses a part"
)]

mod peer;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{Code, Config, Connection, Event};
use clearway_links::{Direction, Ecn, Packet, Path, Time};
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::cid::generator::RandomGenerator;
use clearway_quic::connection::{self as quic, ConnectOptions, ConnectionError, RecvMeta};
use clearway_quic::crypto::{
    ClientCrypto, ClientSessions, Identity, ReplayFilter, ResetKey, Roots, ServerCrypto, TokenKey,
};
use clearway_quic::endpoint::{
    ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Limits, ServerConfig,
};
use clearway_quic::path::ecn::Mark;
use clearway_quic::rng::Rng;
use clearway_quic::{Instant, Role};

pub use peer::{Heard, Peer};

/// Wall time of virtual time zero, in Unix seconds.
const UNIX_ORIGIN: u64 = 1_800_000_000;

/// Steps without the clock moving that mean a busy loop.
const MAX_STALLED: u32 = 1000;

/// A path without surprises: 10 ms one way.
pub const CALM: &str = "rate=50M delay=10ms queue=250";

/// What both ends agree on before they meet.
#[derive(Clone)]
pub struct Setup {
    pub client_quic: quic::Config,
    pub server_quic: quic::Config,
    pub client: Config,
    pub server: Config,
    client_crypto: Arc<rustls::ClientConfig>,
    server_crypto: Arc<rustls::ServerConfig>,
    sessions: Arc<ClientSessions>,
}

/// A certificate and its key, PEM; one for all tests of a binary.
fn identity() -> &'static (String, String) {
    static IDENTITY: OnceLock<(String, String)> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let cert = rcgen::CertificateParams::new(vec!["localhost".into()])
            .expect("parameters")
            .self_signed(&key)
            .expect("a certificate");
        (cert.pem(), key.serialize_pem())
    })
}

impl Default for Setup {
    fn default() -> Self {
        let (cert, key) = identity();
        let sessions = Arc::new(ClientSessions::new(16));
        let roots = Roots::from_pem(cert.as_bytes()).expect("roots");
        let identity = Identity::from_pem(cert.as_bytes(), key.as_bytes()).expect("identity");
        Self {
            client_quic: quic::Config::default(),
            server_quic: quic::Config::default(),
            client: Config::default(),
            server: Config::default(),
            client_crypto: ClientCrypto::new(roots)
                .alpn(["h3"])
                .sessions(sessions.clone())
                .build()
                .expect("client settings"),
            server_crypto: ServerCrypto::new(identity)
                .alpn(["h3"])
                .early_data(true)
                .build()
                .expect("server settings"),
            sessions,
        }
    }
}

/// What speaks on a connection.
pub enum Application {
    /// HTTP/3 of ours.
    Http(Box<Connection>),
    /// Nothing: the test writes what it likes.
    Raw,
}

/// One end.
pub struct Host {
    pub address: SocketAddr,
    endpoint: Endpoint,
    role: Role,
    config: Arc<Config>,
    /// The newest connection.
    pub quic: Option<quic::Connection>,
    handle: Option<ConnectionHandle>,
    pub http: Application,
    pub events: VecDeque<Event>,
    /// Events of the transport, for raw ends.
    pub quic_events: Vec<quic::Event>,
    pub closed: Option<ConnectionError>,
    response: Vec<u8>,
    train: Vec<u8>,
}

impl Host {
    fn new(address: &str, endpoint: Endpoint, role: Role, config: Config) -> Self {
        Self {
            address: address.parse().expect("an address"),
            endpoint,
            role,
            config: Arc::new(config),
            quic: None,
            handle: None,
            http: Application::Raw,
            events: VecDeque::new(),
            quic_events: Vec::new(),
            closed: None,
            response: Vec::new(),
            train: vec![0; 65_536],
        }
    }

    /// Connections begun from now on have other settings.
    pub fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.config));
    }

    fn begin(&mut self, handle: ConnectionHandle, connection: quic::Connection, raw: bool) {
        self.handle = Some(handle);
        self.quic = Some(connection);
        self.closed = None;
        self.http = if raw {
            Application::Raw
        } else {
            let connection = Connection::new(self.role, self.config.clone(), 0x1234_5678_9abc);
            Application::Http(Box::new(connection))
        };
    }

    /// The HTTP side and the transport below it.
    pub fn split(&mut self) -> (&mut Connection, &mut quic::Connection) {
        let Application::Http(http) = &mut self.http else {
            panic!("a raw end has no HTTP");
        };
        (http, self.quic.as_mut().expect("a connection"))
    }

    pub fn http(&mut self) -> &mut Connection {
        self.split().0
    }

    pub fn quic(&mut self) -> &mut quic::Connection {
        self.quic.as_mut().expect("a connection")
    }

    fn receive(&mut self, now: Instant, mut packet: Packet, raw: bool) -> Option<Packet> {
        let from = RecvMeta {
            remote: packet.src,
            local_ip: Some(packet.dst.ip()),
            ecn: match packet.ecn {
                Ecn::NotEct => ReceivedEcn::NotEct,
                Ecn::Ect0 => ReceivedEcn::Ect0,
                Ecn::Ect1 => ReceivedEcn::Ect1,
                Ecn::Ce => ReceivedEcn::Ce,
            },
        };
        let unix = UNIX_ORIGIN + now.as_nanos() / 1_000_000_000;
        let arrival = self
            .endpoint
            .receive(now, unix, from, &packet.data, &mut self.response);
        match arrival {
            DatagramEvent::Connection(handle) if self.handle == Some(handle) => {}
            DatagramEvent::Incoming(incoming) => {
                let (handle, connection) = self.endpoint.accept(now, *incoming).expect("accepts");
                self.begin(handle, connection, raw);
            }
            DatagramEvent::Connection(_) | DatagramEvent::Dropped(_) => return None,
            DatagramEvent::Response => {
                return Some(Packet::new(packet.dst, packet.src, self.response.clone()));
            }
        }
        self.quic().receive(now, from, &mut packet.data);
        None
    }

    fn next_timeout(&self) -> Option<Instant> {
        let http = match &self.http {
            Application::Http(http) => http.next_timeout(),
            Application::Raw => None,
        };
        let quic = self.quic.as_ref()?.next_timeout();
        [http, quic].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Some(quic) = &mut self.quic else {
            return;
        };
        if quic.next_timeout().is_some_and(|at| at <= now) {
            quic.handle_timeout(now);
        }
        if let Application::Http(http) = &mut self.http {
            http.handle_timeout(now, quic);
        }
    }

    /// Events upward, writes downward, then everything that may leave now.
    fn transmit(&mut self, now: Instant, out: &mut Vec<Packet>) {
        let (Some(quic), Some(handle)) = (&mut self.quic, self.handle) else {
            return;
        };
        while let Some(event) = quic.poll_event() {
            if let quic::Event::Closed(error) = &event {
                self.closed = Some(error.clone());
            }
            match &mut self.http {
                Application::Http(http) => http.on_quic_event(quic, &event),
                Application::Raw => self.quic_events.push(event),
            }
        }
        if let Application::Http(http) = &mut self.http {
            http.flush(now, quic);
            while let Some(event) = http.poll_event() {
                self.events.push_back(event);
            }
        }
        while let Some(sent) = quic.transmit(now, &mut self.train, 64) {
            let segment = sent.segment.unwrap_or(sent.len);
            for datagram in self.train[..sent.len].chunks(segment) {
                let ecn = match sent.ecn {
                    Mark::NotEct => Ecn::NotEct,
                    Mark::Ect0 => Ecn::Ect0,
                    Mark::Ect1 => Ecn::Ect1,
                };
                let packet = Packet::new(self.address, sent.remote, datagram.to_vec());
                out.push(packet.with_ecn(ecn));
            }
        }
        while let Some(event) = quic.poll_endpoint_event() {
            self.endpoint.on_event(handle, event);
        }
    }
}

/// A client, a server, and what lies between.
pub struct World {
    setup: Setup,
    pub now: Instant,
    pub client: Host,
    pub server: Host,
    path: Path,
    /// The peer of the one under test says what the test says.
    pub raw: Option<Role>,
    stalled: u32,
}

impl World {
    pub fn new(setup: Setup, path: &str, seed: u64) -> Self {
        let mut rng = rng(seed);
        let client = EndpointConfig::client(Arc::new(setup.client_quic.clone()), &mut rng);
        let server = EndpointConfig {
            transport: Arc::new(setup.server_quic.clone()),
            server: Some(ServerConfig {
                crypto: setup.server_crypto.clone(),
                token_key: Arc::new(TokenKey::new(&[7; 32])),
                replay: Arc::new(Mutex::new(ReplayFilter::new(1024))),
                always_retry: false,
                limits: Limits::default(),
                preferred_address: None,
            }),
            reset_key: Arc::new(ResetKey::new(&[9; 32])),
            generator: Arc::new(|| Box::new(RandomGenerator::new(8))),
        };
        let client = Endpoint::new(client, rng.child("client"));
        let server = Endpoint::new(server, rng.child("server"));
        Self {
            now: Instant::ZERO,
            client: Host::new("10.0.0.1:5000", client, Role::Client, setup.client.clone()),
            server: Host::new("10.0.0.2:443", server, Role::Server, setup.server.clone()),
            path: Path::symmetric(&path.parse().expect("a link"), seed),
            raw: None,
            stalled: 0,
            setup,
        }
    }

    /// Two ends of ours after the handshake, over a calm path.
    pub fn calm(setup: Setup) -> Self {
        let mut world = Self::new(setup, CALM, 1);
        world.handshake();
        world
    }

    /// One end of ours after the handshake; the other is raw.
    pub fn against(raw: Role, setup: Setup) -> Self {
        let mut world = Self::new(setup, CALM, 1);
        world.raw = Some(raw);
        world.handshake();
        world
    }

    pub fn host(&mut self, role: Role) -> &mut Host {
        match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        }
    }

    /// Begins a client connection.
    pub fn connect(&mut self) {
        let connect = ConnectOptions {
            remote: self.server.address,
            local_ip: None,
            server_name: "localhost".try_into().expect("a name"),
            crypto: self.setup.client_crypto.clone(),
            sessions: Some(self.setup.sessions.clone()),
        };
        let connected = self.client.endpoint.connect(self.now, connect);
        let (handle, connection) = connected.expect("connects");
        let raw = self.raw == Some(Role::Client);
        self.server.closed = None;
        self.client.begin(handle, connection, raw);
    }

    /// Connects, and runs until both ends know of the handshake and of each
    /// other's settings.
    pub fn handshake(&mut self) {
        self.connect();
        let raw = self.raw;
        self.must("a handshake", |world| {
            [Role::Client, Role::Server].into_iter().all(|role| {
                let host = world.host(role);
                let confirmed = host
                    .quic
                    .as_ref()
                    .is_some_and(quic::Connection::is_confirmed);
                let settled =
                    raw.is_some() || host.quic.is_some() && host.http().peer_settings().is_some();
                confirmed && settled
            })
        });
    }

    fn step_to(&mut self, end: Instant) -> bool {
        self.flush();
        let now = Time(self.now.as_nanos());
        let timeouts = [self.client.next_timeout(), self.server.next_timeout()];
        let timeouts = timeouts.into_iter().flatten().map(|at| Time(at.as_nanos()));
        let Some(next) = timeouts.chain(self.path.next_event()).min() else {
            return false;
        };
        let next = next.max(now).min(Time(end.as_nanos()));
        self.stalled = if next == now { self.stalled + 1 } else { 0 };
        assert!(self.stalled < MAX_STALLED, "busy at {:?}", self.now);
        self.now = Instant::from_nanos(next.0);
        while let Some((direction, packet)) = self.path.poll(next) {
            let raw = self.raw == Some(Role::Server);
            let (host, back) = match direction {
                Direction::Up => (&mut self.server, Direction::Down),
                Direction::Down => (&mut self.client, Direction::Up),
            };
            if let Some(response) = host.receive(self.now, packet, raw) {
                let _ = self.path.send(next, back, response);
            }
        }
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        true
    }

    /// Sends what both ends have to send.
    pub fn flush(&mut self) {
        let now = Time(self.now.as_nanos());
        for direction in [Direction::Up, Direction::Down] {
            let mut out = Vec::new();
            match direction {
                Direction::Up => self.client.transmit(self.now, &mut out),
                Direction::Down => self.server.transmit(self.now, &mut out),
            }
            for packet in out {
                let _ = self.path.send(now, direction, packet);
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

    /// Steps until `done`, which must happen within ten minutes of virtual time.
    pub fn must(&mut self, what: &str, done: impl FnMut(&mut Self) -> bool) {
        let happened = self.run_until(Duration::from_secs(600), done);
        assert!(
            happened,
            "{what}: not within ten minutes; client {:?}, server {:?}",
            self.client.closed, self.server.closed
        );
    }

    /// Runs for `time`, whatever happens.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// The code with which `role` closed the connection, by its own account: before
    /// the handshake is complete the other end does not hear it (RFC 9000 §10.2.3).
    pub fn own_close_code(&mut self, role: Role) -> Option<Code> {
        self.run_until(Duration::from_secs(5), |world| {
            world.host(role).closed.is_some()
        });
        match &self.host(role).closed {
            Some(ConnectionError::LocalApplication { code }) => Some(Code(*code)),
            Some(other) => panic!("closed otherwise: {other}"),
            None => None,
        }
    }

    /// The code with which `role` closed the connection, as the other end hears it.
    pub fn close_code(&mut self, role: Role) -> Option<Code> {
        self.run_until(Duration::from_secs(5), |world| {
            world.host(role.peer()).closed.is_some()
        });
        match &self.host(role.peer()).closed {
            Some(ConnectionError::PeerApplication { code, .. }) => Some(Code(*code)),
            Some(other) => panic!("closed otherwise: {other}"),
            None => None,
        }
    }
}

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

/// `len` bytes that tell where they are.
pub fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 + i / 256) as u8).collect()
}
