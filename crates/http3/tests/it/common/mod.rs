//! HTTP/3 over two QUIC endpoints in virtual time.
#![allow(dead_code, reason = "not every module uses everything")]

mod application;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{Code, Config, Connection, Event};
use clearway_quic::connection::{self as quic, ConnectionError};
use clearway_quic::endpoint::ConnectionHandle;
use clearway_quic::{Instant, Role};
use clearway_testing::{Application, path};

pub(crate) use application::{StreamLog, TestApplication};

/// A path without loss: 10 ms one way.
pub(crate) const CLEAN_PATH: &str = "rate=50M delay=10ms queue=250";

/// The configuration of both ends.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub(crate) client_quic: quic::Config,
    pub(crate) server_quic: quic::Config,
    pub(crate) client: Config,
    pub(crate) server: Config,
}

impl Setup {
    /// Both ends take up to four sessions of WebTransport.
    pub(crate) fn for_sessions() -> Self {
        let mut setup = Self::default();
        for config in [&mut setup.client, &mut setup.server] {
            config.datagrams = true;
            config.extended_connect = true;
            config.webtransport_sessions = 4;
        }
        for config in [&mut setup.client_quic, &mut setup.server_quic] {
            config.datagram_buffer = 1 << 20;
        }
        setup
    }
}

/// HTTP/3 on the newest connection of a host, or nothing: then the test writes what it likes.
pub(crate) struct HttpApp {
    role: Role,
    config: Arc<Config>,
    raw: bool,
    newest: Option<ConnectionHandle>,
    http: Option<Box<Connection>>,
    pub(crate) events: VecDeque<Event>,
    /// Events of the transport, for raw ends.
    pub(crate) quic_events: Vec<quic::Event>,
    pub(crate) closed: Option<ConnectionError>,
}

impl HttpApp {
    fn new(role: Role, config: Config) -> Self {
        Self {
            role,
            config: Arc::new(config),
            raw: false,
            newest: None,
            http: None,
            events: VecDeque::new(),
            quic_events: Vec::new(),
            closed: None,
        }
    }

    /// Changes the configuration of connections that begin from now on.
    pub(crate) fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.config));
    }
}

impl Deref for HttpApp {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.http.as_ref().expect("a raw end has no HTTP")
    }
}

impl DerefMut for HttpApp {
    fn deref_mut(&mut self) -> &mut Connection {
        self.http.as_mut().expect("a raw end has no HTTP")
    }
}

impl Application for HttpApp {
    fn on_connection(&mut self, handle: ConnectionHandle) {
        self.newest = Some(handle);
        self.closed = None;
        self.http = (!self.raw).then(|| {
            let connection = Connection::new(self.role, self.config.clone(), 0x1234_5678_9abc);
            Box::new(connection)
        });
    }

    fn on_event(
        &mut self,
        handle: ConnectionHandle,
        quic: &mut quic::Connection,
        event: quic::Event,
    ) {
        if self.newest != Some(handle) {
            return;
        }
        if let quic::Event::Closed(error) = &event {
            self.closed = Some(error.clone());
        }
        match &mut self.http {
            Some(http) => http.on_quic_event(quic, &event),
            None => self.quic_events.push(event),
        }
    }

    fn before_transmit(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        quic: &mut quic::Connection,
    ) {
        if self.newest != Some(handle) {
            return;
        }
        if let Some(http) = &mut self.http {
            http.flush(now, quic);
            self.events
                .extend(core::iter::from_fn(|| http.poll_event()));
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.http.as_ref()?.next_timeout()
    }

    fn handle_timeout(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        quic: &mut quic::Connection,
    ) {
        if self.newest == Some(handle)
            && let Some(http) = &mut self.http
        {
            http.handle_timeout(now, quic);
        }
    }
}

/// One end.
pub(crate) type Host = clearway_testing::Host<HttpApp>;

/// A client and a server with HTTP/3, and a path between them.
pub(crate) struct World {
    transport: clearway_testing::World<HttpApp>,
}

impl Deref for World {
    type Target = clearway_testing::World<HttpApp>;

    fn deref(&self) -> &Self::Target {
        &self.transport
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.transport
    }
}

impl World {
    pub(crate) fn new(setup: Setup, spec: &str, seed: u64) -> Self {
        let transport = clearway_testing::Setup {
            client: setup.client_quic,
            server: setup.server_quic,
            ..clearway_testing::Setup::with_alpn("h3")
        };
        let client = HttpApp::new(Role::Client, setup.client);
        let server = HttpApp::new(Role::Server, setup.server);
        let path = path(spec, seed);
        let transport =
            clearway_testing::World::with_applications(transport, path, seed, client, server);
        Self { transport }
    }

    /// Creates two ends of ours after the handshake, over a calm path.
    pub(crate) fn connected(setup: Setup) -> Self {
        let mut world = Self::new(setup, CLEAN_PATH, 1);
        world.handshake();
        world
    }

    /// Creates one end of ours and a raw one after the handshake.
    pub(crate) fn against(raw: Role, setup: Setup) -> Self {
        let mut world = Self::new(setup, CLEAN_PATH, 1);
        world.set_raw(raw);
        world.handshake();
        world
    }

    /// Leaves the connections of `role` that begin from now on to the test, without HTTP.
    pub(crate) fn set_raw(&mut self, role: Role) {
        self.host(role).app.raw = true;
    }

    /// Begins a connection of the client. Those that were there are dropped at both ends.
    pub(crate) fn connect(&mut self) {
        self.client.connections.clear();
        self.server.connections.clear();
        self.server.app.closed = None;
        self.transport.connect();
    }

    /// Connects, and runs until both ends have completed the handshake and received each other's
    /// settings.
    pub(crate) fn handshake(&mut self) {
        self.connect();
        let raw = self.client.app.raw || self.server.app.raw;
        self.must("a handshake", |world| {
            [Role::Client, Role::Server].into_iter().all(|role| {
                let host = world.host(role);
                !host.connections.is_empty()
                    && host.connection().is_confirmed()
                    && (raw || host.app.peer_settings().is_some())
            })
        });
    }

    /// Runs until `done` returns true, for at most `limit` of virtual time. Returns whether it did.
    pub(crate) fn run_until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
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

    /// Runs until `done` returns true, which must happen within ten minutes of virtual time.
    pub(crate) fn must(&mut self, what: &str, done: impl FnMut(&mut Self) -> bool) {
        let happened = self.run_until(Duration::from_secs(600), done);
        assert!(
            happened,
            "{what}: did not happen within ten minutes; client {:?}, server {:?}",
            self.client.app.closed, self.server.app.closed
        );
    }

    /// Returns the code with which `role` closed the connection, by its own account: before the
    /// handshake is complete the other end does not receive it (RFC 9000 §10.2.3).
    pub(crate) fn own_close_code(&mut self, role: Role) -> Option<Code> {
        self.run_until(Duration::from_secs(5), |world| {
            world.host(role).app.closed.is_some()
        });
        match &self.host(role).app.closed {
            Some(ConnectionError::LocalApplication { code }) => Some(Code(*code)),
            Some(other) => panic!("closed in another way: {other}"),
            None => None,
        }
    }

    /// Returns the code with which `role` closed the connection, as the other end receives it.
    pub(crate) fn close_code(&mut self, role: Role) -> Option<Code> {
        self.run_until(Duration::from_secs(5), |world| {
            world.host(role.peer()).app.closed.is_some()
        });
        match &self.host(role.peer()).app.closed {
            Some(ConnectionError::PeerApplication { code, .. }) => Some(Code(*code)),
            Some(other) => panic!("closed in another way: {other}"),
            None => None,
        }
    }
}

/// Returns `len` bytes whose values depend on their offset.
pub(crate) fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 + i / 256) as u8).collect()
}
