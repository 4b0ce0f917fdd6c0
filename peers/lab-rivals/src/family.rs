//! quinn-proto and its fork noq-proto in the lab: one text, compiled for each.
//!
//! The module that includes it names the crate `proto` and holds what the two do differently.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use clearway_lab::stack::{Read, Role, SERVER_NAME, SenderStats, StackSetup};
use clearway_links::{Ecn, Packet};

use super::proto::congestion::{Controller, ControllerFactory, CubicConfig, NewRenoConfig};
use super::proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use super::proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionEvent, ConnectionHandle, ConnectionId,
    ConnectionIdGenerator, DatagramEvent, Dir, EcnCodepoint, Endpoint, EndpointConfig,
    MtuDiscoveryConfig, ReadError, ReadableError, ServerConfig, StreamId, TimeSource, Transmit,
    TransportConfig, VarInt, WriteError,
};
use crate::clock;
use crate::engine::{Arrival, Engine, Sent};
use crate::probe::Probe;
use crate::seed::{CID_LEN, Seeded};
use crate::settings::{self, Settings};

/// The kind of randomness, apart for each use.
const ENDPOINT: u64 = 1;
const OWN_CIDS: u64 = 2;
const FIRST_CIDS: u64 = 3;

/// The engine with one of its controllers.
pub(crate) struct Proto {
    endpoint: Endpoint,
    client: ClientConfig,
    controller: settings::Controller,
    probes: Arc<Probes>,
    /// Whose probe is whose.
    own: BTreeMap<usize, Arc<Probe>>,
}

/// What a path's statistics say.
pub(super) struct Path {
    pub(super) window: u64,
    pub(super) mtu: u16,
    pub(super) pacing_rate: Option<u64>,
    pub(super) smoothed_rtt: Duration,
    pub(super) packets_sent: u64,
    pub(super) packets_lost: u64,
    pub(super) bytes_sent: u64,
    pub(super) congestion_events: u64,
}

/// Makes controllers in their cases, and keeps the newest probe: a connection
/// makes its controller before anything else is made.
struct Probes {
    inner: Arc<dyn ControllerFactory + Send + Sync>,
    newest: Mutex<Arc<Probe>>,
}

impl Probes {
    fn new(controller: settings::Controller) -> Self {
        let inner: Arc<dyn ControllerFactory + Send + Sync> = match controller {
            settings::Controller::NewReno => Arc::new(NewRenoConfig::default()),
            settings::Controller::Cubic => Arc::new(CubicConfig::default()),
            settings::Controller::Bbr => Arc::new(super::Bbr::default()),
        };
        Self {
            inner,
            newest: Mutex::default(),
        }
    }

    fn newest(&self) -> Arc<Probe> {
        let newest = self.newest.lock();
        newest.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ControllerFactory for Probes {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let probe = Arc::new(Probe::default());
        let newest = self.newest.lock();
        *newest.unwrap_or_else(PoisonError::into_inner) = probe.clone();
        Box::new(Cased {
            inner: self.inner.clone().build(now, current_mtu),
            probe,
        })
    }
}

/// A controller that is watched; how, is its trait's business.
pub(super) struct Cased {
    pub(super) inner: Box<dyn Controller>,
    pub(super) probe: Arc<Probe>,
}

impl fmt::Debug for Cased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cased").finish_non_exhaustive()
    }
}

/// Connection IDs of the lab.
pub(super) struct Cids(pub(super) Seeded);

impl ConnectionIdGenerator for Cids {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.bytes::<CID_LEN>())
    }

    fn cid_len(&self) -> usize {
        CID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The lab's wall clock.
struct Wall;

impl TimeSource for Wall {
    fn now(&self) -> SystemTime {
        clock::wall()
    }
}

fn transport(settings: &Settings, probes: &Arc<Probes>) -> TransportConfig {
    let mut config = TransportConfig::default();
    config.congestion_controller_factory(probes.clone());
    if let Some(window) = settings.window.and_then(|n| VarInt::from_u64(n).ok()) {
        config.stream_receive_window(window).receive_window(window);
    }
    if let Some(timeout) = settings.idle_timeout {
        config.max_idle_timeout(timeout.try_into().ok());
    }
    if let Some(rtt) = settings.initial_rtt {
        config.initial_rtt(rtt);
    }
    if let Some(mtu) = settings.max_mtu {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(mtu);
        config.mtu_discovery_config(Some(discovery));
    }
    if let Some(threshold) = settings.ack_threshold {
        let mut asked = AckFrequencyConfig::default();
        asked.ack_eliciting_threshold(threshold.into());
        config.ack_frequency_config(Some(asked));
    }
    config
}

fn endpoint(settings: &Settings, birth: &StackSetup, transport: Arc<TransportConfig>) -> Endpoint {
    let mut config = EndpointConfig::default();
    config.rng_seed(Some(Seeded::new(birth, ENDPOINT).bytes()));
    let cids = Seeded::new(birth, OWN_CIDS);
    super::generate_cids(&mut config, cids);
    let server = (birth.role == Role::Server).then(|| {
        let crypto = QuicServerConfig::try_from(settings.server.clone())
            .expect("the lab's TLS has the suite of Initial packets");
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server
            .transport_config(transport)
            .time_source(Arc::new(Wall));
        Arc::new(server)
    });
    super::endpoint(Arc::new(config), server)
}

fn client(
    settings: &Settings,
    birth: &StackSetup,
    transport: Arc<TransportConfig>,
) -> ClientConfig {
    let crypto = QuicClientConfig::try_from(settings.client.clone())
        .expect("the lab's TLS has the suite of Initial packets");
    let mut config = ClientConfig::new(Arc::new(crypto));
    let cids = Mutex::new(Seeded::new(birth, FIRST_CIDS));
    config.transport_config(transport);
    config.initial_dst_cid_provider(Arc::new(move || {
        let mut cids = cids.lock().unwrap_or_else(PoisonError::into_inner);
        ConnectionId::new(&cids.bytes::<CID_LEN>())
    }));
    config
}

const fn received_ecn(ecn: Ecn) -> Option<EcnCodepoint> {
    match ecn {
        Ecn::NotEct => None,
        Ecn::Ect0 => Some(EcnCodepoint::Ect0),
        Ecn::Ect1 => Some(EcnCodepoint::Ect1),
        Ecn::Ce => Some(EcnCodepoint::Ce),
    }
}

const fn sent_ecn(ecn: Option<EcnCodepoint>) -> Ecn {
    match ecn {
        None => Ecn::NotEct,
        Some(EcnCodepoint::Ect0) => Ecn::Ect0,
        Some(EcnCodepoint::Ect1) => Ecn::Ect1,
        Some(EcnCodepoint::Ce) => Ecn::Ce,
    }
}

fn sent(transmit: &Transmit) -> Sent {
    Sent {
        remote: transmit.destination,
        source: transmit.src_ip,
        ecn: sent_ecn(transmit.ecn),
        len: transmit.size,
        segment: transmit.segment_size,
    }
}

fn stream_id(stream: u64) -> StreamId {
    // Numbers that are too large belong to no stream.
    VarInt::from_u64(stream).unwrap_or(VarInt::MAX).into()
}

impl Engine for Proto {
    type Connection = Connection;
    type Event = ConnectionEvent;

    fn new(settings: &Settings, birth: &StackSetup) -> Self {
        let probes = Arc::new(Probes::new(settings.controller));
        let transport = Arc::new(transport(settings, &probes));
        Self {
            endpoint: endpoint(settings, birth, transport.clone()),
            client: client(settings, birth, transport),
            controller: settings.controller,
            probes,
            own: BTreeMap::new(),
        }
    }

    fn receive(&mut self, now: Instant, packet: &Packet, buf: &mut Vec<u8>) -> Arrival<Self> {
        let data = BytesMut::from(&packet.data[..]);
        let ecn = received_ecn(packet.ecn);
        match super::handle(&mut self.endpoint, now, packet, ecn, data, buf) {
            None => Arrival::Nothing,
            Some(DatagramEvent::ConnectionEvent(handle, event)) => Arrival::Known(handle.0, event),
            Some(DatagramEvent::Response(answer)) => Arrival::Answer(sent(&answer)),
            Some(DatagramEvent::NewConnection(incoming)) => {
                match self.endpoint.accept(incoming, now, buf, None) {
                    Ok((handle, conn)) => {
                        self.own.insert(handle.0, self.probes.newest());
                        Arrival::New(handle.0, conn)
                    }
                    Err(error) => error
                        .response
                        .map_or(Arrival::Nothing, |answer| Arrival::Answer(sent(&answer))),
                }
            }
        }
    }

    fn connect(&mut self, now: Instant, remote: SocketAddr) -> Result<(usize, Connection), String> {
        let config = self.client.clone();
        let (handle, conn) = self
            .endpoint
            .connect(now, config, remote, SERVER_NAME)
            .map_err(|error| error.to_string())?;
        self.own.insert(handle.0, self.probes.newest());
        Ok((handle.0, conn))
    }

    fn settle(&mut self, handle: usize, conn: &mut Connection) {
        while let Some(event) = conn.poll_endpoint_events() {
            let answer = self.endpoint.handle_event(ConnectionHandle(handle), event);
            if let Some(answer) = answer {
                conn.handle_event(answer);
            }
        }
    }

    fn on_event(conn: &mut Connection, event: ConnectionEvent) {
        conn.handle_event(event);
    }

    fn transmit(conn: &mut Connection, now: Instant, buf: &mut Vec<u8>) -> Option<Sent> {
        super::poll_transmit(conn, now, buf).as_ref().map(sent)
    }

    fn timeout(conn: &mut Connection) -> Option<Instant> {
        conn.poll_timeout()
    }

    fn on_timeout(conn: &mut Connection, now: Instant) {
        conn.handle_timeout(now);
    }

    fn lost(conn: &mut Connection) -> Option<String> {
        let mut lost = None;
        while let Some(event) = conn.poll() {
            lost = super::reason(event).or(lost);
        }
        lost
    }

    fn is_handshaking(conn: &Connection) -> bool {
        conn.is_handshaking()
    }

    fn open(conn: &mut Connection) -> Option<u64> {
        conn.streams().open(Dir::Bi).map(u64::from)
    }

    fn accept(conn: &mut Connection) -> Option<u64> {
        conn.streams().accept(Dir::Bi).map(u64::from)
    }

    fn write(conn: &mut Connection, stream: u64, data: &mut Bytes) -> Result<usize, String> {
        let mut stream = conn.send_stream(stream_id(stream));
        match super::write(&mut stream, data) {
            Ok(written) => Ok(written),
            Err(WriteError::Blocked) => Ok(0),
            Err(error) => Err(error.to_string()),
        }
    }

    fn finish(conn: &mut Connection, stream: u64) -> Result<(), String> {
        let mut stream = conn.send_stream(stream_id(stream));
        stream.finish().map_err(|error| error.to_string())
    }

    fn read(conn: &mut Connection, stream: u64) -> Result<Read, String> {
        let mut stream = conn.recv_stream(stream_id(stream));
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(error @ (ReadableError::ClosedStream | ReadableError::IllegalOrderedRead)) => {
                return Err(error.to_string());
            }
        };
        let read = match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => Ok(Read::Data(chunk.bytes)),
            Ok(None) => Ok(Read::End),
            Err(ReadError::Blocked) => Ok(Read::Blocked),
            Err(error @ ReadError::Reset(_)) => Err(error.to_string()),
        };
        // Whether credit is due shows at the next transmit.
        let _ = chunks.finalize();
        read
    }

    fn close(conn: &mut Connection, now: Instant) {
        conn.close(now, VarInt::from_u32(0), Bytes::new());
    }

    fn moved(conn: &mut Connection, now: Instant) {
        super::moved(conn, now);
    }

    fn figures(&self, handle: usize, conn: &mut Connection) -> SenderStats {
        let path = super::path(conn);
        let probe = self.own.get(&handle).cloned().unwrap_or_default();
        SenderStats {
            window: path.window,
            floor: self.controller.floor() * u64::from(path.mtu),
            in_flight: probe.in_flight(),
            pacing_rate: path.pacing_rate.unwrap_or(0),
            smoothed_rtt: path.smoothed_rtt,
            min_rtt: probe.min_rtt(),
            mtu: path.mtu,
            packets_sent: path.packets_sent,
            packets_lost: path.packets_lost,
            bytes_sent: path.bytes_sent,
            congestion_events: path.congestion_events,
            persistent_events: probe.persistent_events(),
            has_nothing_to_send: !conn.is_handshaking() && probe.in_flight() == 0,
            ..SenderStats::default()
        }
    }
}
