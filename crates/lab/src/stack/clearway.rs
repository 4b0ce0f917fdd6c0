//! Clearway's own transport as a stack of the lab.

use core::fmt;
use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clearway_links::{Ecn, Packet, Time};
use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::cid::generator::RandomGenerator;
use clearway_quic::connection::{Config, ConnectOptions, Connection, RecvMeta};
use clearway_quic::crypto::{ReplayFilter, ResetKey, TokenKey};
use clearway_quic::endpoint::{
    ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Limits, ServerConfig,
};
use clearway_quic::event::{Observer, TraceEvent};
use clearway_quic::path::ecn::Mark;
use clearway_quic::rng::Rng;
use clearway_quic::stream::StreamId;
use clearway_recovery::congestion::CongestionControl;
use clearway_recovery::controller::SavedPath;

use super::identity::ConfigPair;
use super::streams::Streams;
use super::{
    ConnId, ConnectionState, Protocol, Read, Role, SERVER_NAME, SenderStats, Stack, StackFactory,
    StackSetup, Stream, Tls, UNIX_ORIGIN, source,
};

/// Maximum number of datagrams in a train, as in a GSO message.
const MAX_TRAIN: usize = 64;

/// Size of a train's buffer, in bytes.
const TRAIN_BYTES: usize = 65_536;

/// The error for a connection that this endpoint does not have.
const NO_CONNECTION: &str = "no such connection";

/// Creates a trace sink for one end of one connection.
pub type ObserverFactory = dyn Fn(&StackSetup) -> Option<Box<dyn Observer>>;

/// A shared [`ObserverFactory`].
#[derive(Clone)]
pub struct SharedObserverFactory(pub Rc<ObserverFactory>);

impl fmt::Debug for SharedObserverFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedObserverFactory")
    }
}

/// Two observers of one connection, called in this order.
#[derive(Debug)]
pub struct Observers(pub Box<dyn Observer>, pub Box<dyn Observer>);

impl Observer for Observers {
    fn on_event(&mut self, now: Instant, event: &TraceEvent<'_>) {
        self.0.on_event(now, event);
        self.1.on_event(now, event);
    }
}

/// Creates endpoints of our own transport.
#[derive(Clone, Debug, Default)]
pub struct ClearwayFactory {
    /// Transport settings.
    pub config: Config,
    /// TLS settings.
    pub tls: Tls,
    /// Creates trace sinks, if there are any.
    pub watcher: Option<SharedObserverFactory>,
    /// What an earlier connection measured of the path of each connection.
    pub resumed: Option<SavedPath>,
}

impl ClearwayFactory {
    /// Default settings with this congestion control.
    #[must_use]
    pub fn with_controller(controller: impl Into<CongestionControl>) -> Self {
        let mut this = Self::default();
        this.config.controller = controller.into();
        this
    }
}

impl StackFactory for ClearwayFactory {
    fn name(&self) -> String {
        self.config.controller.to_string()
    }

    fn speaks(&self, protocol: Protocol) -> bool {
        protocol == self.tls.protocol
    }

    fn build(&self, birth: &StackSetup) -> Box<dyn Stack> {
        Box::new(Clearway::new(self, birth))
    }
}

/// One of our endpoints with its connections.
pub struct Clearway {
    birth: StackSetup,
    address: SocketAddr,
    endpoint: Endpoint,
    tls: ConfigPair,
    protocol: Protocol,
    watcher: Option<SharedObserverFactory>,
    resumed: Option<SavedPath>,
    connections: BTreeMap<ConnectionHandle, LiveConnection>,
    accepted: VecDeque<ConnId>,
    /// Responses that belong to no connection.
    answers: VecDeque<Packet>,
    response: Vec<u8>,
    train: Vec<u8>,
}

/// A connection and its streams.
struct LiveConnection {
    quic: Connection,
    streams: Streams,
}

impl Clearway {
    /// Creates an endpoint at `birth.address`.
    #[must_use]
    pub fn new(factory: &ClearwayFactory, birth: &StackSetup) -> Self {
        let mut rng = Rng::from_seed(seed_bytes(birth));
        let tls = factory.tls.pair();
        let transport = Arc::new(factory.config.clone());
        let config = match birth.role {
            Role::Client => EndpointConfig::client(transport, &mut rng),
            Role::Server => server_config(transport, &tls, &mut rng),
        };
        Self {
            birth: *birth,
            address: birth.address,
            endpoint: Endpoint::new(config, rng.child("endpoint")),
            tls,
            protocol: factory.tls.protocol,
            watcher: factory.watcher.clone(),
            resumed: factory.resumed,
            connections: BTreeMap::new(),
            accepted: VecDeque::new(),
            answers: VecDeque::new(),
            response: Vec::new(),
            train: vec![0; TRAIN_BYTES],
        }
    }

    /// The connection itself, for what [`Stack`] does not offer.
    pub fn connection(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.live(conn).map(|live| &mut live.quic)
    }

    fn live(&mut self, conn: ConnId) -> Option<&mut LiveConnection> {
        self.connections.get_mut(&ConnectionHandle(conn.0))
    }

    fn adopt(&mut self, handle: ConnectionHandle, mut quic: Connection) -> ConnId {
        if let Some(observer) = self.watcher.as_ref().and_then(|w| (w.0)(&self.birth)) {
            quic.set_observer(observer);
        }
        if let Some(saved) = &self.resumed {
            quic.resume_path(saved);
        }
        let streams = Streams::new(self.protocol, &quic, self.birth.seed);
        self.connections
            .insert(handle, LiveConnection { quic, streams });
        ConnId(handle.0)
    }
}

fn seed_bytes(birth: &StackSetup) -> [u8; 32] {
    let role = match birth.role {
        Role::Client => 1,
        Role::Server => 2,
    };
    let mut seed = [0; 32];
    for (chunk, word) in seed
        .chunks_mut(8)
        .zip([birth.seed, birth.index as u64, role, 0])
    {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    seed
}

fn server_config(transport: Arc<Config>, tls: &ConfigPair, rng: &mut Rng) -> EndpointConfig {
    EndpointConfig {
        transport,
        server: Some(ServerConfig {
            crypto: tls.server.clone(),
            token_key: Arc::new(TokenKey::new(&rng.array())),
            replay: Arc::new(Mutex::new(ReplayFilter::new(64))),
            always_retry: false,
            limits: Limits::default(),
            preferred_address: None,
        }),
        reset_key: Arc::new(ResetKey::new(&rng.array())),
        generator: Arc::new(|| Box::new(RandomGenerator::new(8))),
    }
}

const fn instant(now: Time) -> Instant {
    Instant::from_nanos(now.0)
}

const fn received_ecn(ecn: Ecn) -> ReceivedEcn {
    match ecn {
        Ecn::NotEct => ReceivedEcn::NotEct,
        Ecn::Ect0 => ReceivedEcn::Ect0,
        Ecn::Ect1 => ReceivedEcn::Ect1,
        Ecn::Ce => ReceivedEcn::Ce,
    }
}

const fn sent_ecn(mark: Mark) -> Ecn {
    match mark {
        Mark::NotEct => Ecn::NotEct,
        Mark::Ect0 => Ecn::Ect0,
        Mark::Ect1 => Ecn::Ect1,
    }
}

impl Stack for Clearway {
    fn receive(&mut self, now: Time, mut packet: Packet) {
        let from = RecvMeta {
            remote: packet.src,
            local_ip: Some(packet.dst.ip()),
            ecn: received_ecn(packet.ecn),
        };
        let at = instant(now);
        let unix = UNIX_ORIGIN + now.0 / 1_000_000_000;
        let arrival = self
            .endpoint
            .receive(at, unix, from, &packet.data, &mut self.response);
        let handle = match arrival {
            DatagramEvent::Connection(handle) => handle,
            DatagramEvent::Incoming(incoming) => {
                let Ok((handle, connection)) = self.endpoint.accept(at, *incoming) else {
                    return;
                };
                let conn = self.adopt(handle, connection);
                self.accepted.push_back(conn);
                handle
            }
            DatagramEvent::Response => {
                let answer = core::mem::take(&mut self.response);
                self.answers
                    .push_back(Packet::new(packet.dst, packet.src, answer));
                return;
            }
            DatagramEvent::Dropped(_) => return,
        };
        if let Some(live) = self.connections.get_mut(&handle) {
            live.quic.receive(at, from, &mut packet.data);
            live.streams.hear(&mut live.quic);
        }
    }

    fn transmit(&mut self, now: Time, emit: &mut dyn FnMut(Packet)) {
        while let Some(answer) = self.answers.pop_front() {
            emit(answer);
        }
        let now = instant(now);
        for (handle, LiveConnection { quic, streams }) in &mut self.connections {
            streams.flush(now, quic);
            while let Some(sent) = quic.transmit(now, &mut self.train, MAX_TRAIN) {
                let segment = sent.segment.unwrap_or(sent.len).max(1);
                let from = source(sent.local_ip, self.address);
                for datagram in self.train[..sent.len].chunks(segment) {
                    let packet = Packet::new(from, sent.remote, datagram.to_vec());
                    emit(packet.with_ecn(sent_ecn(sent.ecn)));
                }
            }
            while let Some(event) = quic.poll_endpoint_event() {
                self.endpoint.on_event(*handle, event);
            }
            streams.hear(quic);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.connections
            .values()
            .filter_map(|live| live.quic.next_timeout())
            .min()
            .map(|at| Time(at.as_nanos()))
    }

    fn handle_timeout(&mut self, now: Time) {
        let now = instant(now);
        for live in self.connections.values_mut() {
            if live.quic.next_timeout().is_some_and(|at| at <= now) {
                live.quic.handle_timeout(now);
            }
        }
    }

    fn connect(&mut self, now: Time, remote: SocketAddr) -> Result<ConnId, String> {
        let connect = ConnectOptions {
            remote,
            local_ip: None,
            server_name: SERVER_NAME
                .try_into()
                .map_err(|_| "invalid server name".to_owned())?,
            crypto: self.tls.client.clone(),
            sessions: None,
        };
        let (handle, connection) = self
            .endpoint
            .connect(instant(now), connect)
            .map_err(|error| error.to_string())?;
        Ok(self.adopt(handle, connection))
    }

    fn accept(&mut self) -> Option<ConnId> {
        self.accepted.pop_front()
    }

    fn life(&self, conn: ConnId) -> ConnectionState {
        let Some(LiveConnection { quic, .. }) = self.connections.get(&ConnectionHandle(conn.0))
        else {
            return ConnectionState::Closed("its state was already dropped".to_owned());
        };
        if let Some(error) = quic.error() {
            ConnectionState::Closed(error.to_string())
        } else if quic.is_handshaking() {
            ConnectionState::Handshaking
        } else {
            ConnectionState::Connected
        }
    }

    fn open(&mut self, conn: ConnId) -> Option<Stream> {
        let LiveConnection { quic, streams } = self.live(conn)?;
        streams.open(quic).map(|id| Stream(id.as_u64()))
    }

    fn accept_stream(&mut self, conn: ConnId) -> Option<Stream> {
        let LiveConnection { quic, streams } = self.live(conn)?;
        streams.accept(quic).map(|id| Stream(id.as_u64()))
    }

    fn write(&mut self, conn: ConnId, stream: Stream, data: &mut Bytes) -> Result<(), String> {
        let LiveConnection { quic, streams } = self.live(conn).ok_or(NO_CONNECTION)?;
        streams.write(quic, StreamId::from_wire(stream.0), data)
    }

    fn finish(&mut self, conn: ConnId, stream: Stream) -> Result<(), String> {
        let LiveConnection { quic, streams } = self.live(conn).ok_or(NO_CONNECTION)?;
        streams.finish(quic, StreamId::from_wire(stream.0))
    }

    fn read(&mut self, conn: ConnId, stream: Stream) -> Result<Read, String> {
        let LiveConnection { quic, streams } = self.live(conn).ok_or(NO_CONNECTION)?;
        streams.read(quic, StreamId::from_wire(stream.0))
    }

    fn close(&mut self, now: Time, conn: ConnId) {
        if let Some(connection) = self.connection(conn) {
            connection.close(instant(now), 0, b"");
        }
    }

    fn migrate(&mut self, now: Time, conn: ConnId, to: SocketAddr) -> Result<(), String> {
        let connection = self.connection(conn).ok_or(NO_CONNECTION)?;
        connection
            .migrate(instant(now), Some(to.ip()))
            .map_err(|error| error.to_string())?;
        self.address = to;
        Ok(())
    }

    fn figures(&self, now: Time, conn: ConnId) -> SenderStats {
        let Some(LiveConnection { quic, .. }) = self.connections.get(&ConnectionHandle(conn.0))
        else {
            return SenderStats::default();
        };
        let stats = quic.stats(instant(now));
        let counters = stats.counters;
        SenderStats {
            window: stats.window,
            floor: stats.min_window,
            in_flight: stats.in_flight,
            pacing_rate: stats.pacing_rate,
            smoothed_rtt: stats.smoothed_rtt,
            min_rtt: stats.min_rtt,
            mtu: stats.mtu,
            packets_sent: counters.packets_sent,
            packets_lost: counters.packets_lost,
            spurious_losses: counters.spurious_losses,
            bytes_sent: counters.bytes_sent,
            ptos: counters.ptos,
            ce_marks: counters.ce_marks,
            congestion_events: stats.metrics.congestion_events,
            persistent_events: stats.metrics.persistent_events,
            key_updates: counters.key_updates,
            limits: stats.limits,
            has_nothing_to_send: !quic.is_handshaking() && stats.in_flight == 0,
        }
    }

    fn check(&self) {
        for live in self.connections.values() {
            live.quic.check_invariants();
        }
    }
}

impl fmt::Debug for Clearway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clearway")
            .field("address", &self.address)
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}
