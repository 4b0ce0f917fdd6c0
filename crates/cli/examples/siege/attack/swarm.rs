//! Many hostile connections on one thread: connections of the transport without an event
//! loop, which can be made to break the protocol at any time.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{
    Config, ConnectOptions, Connection, EndpointEvent, Event, Forgery, RecvMeta,
};
use clearway_quic::crypto::{ClientCrypto, ClientSessions, ServerName};
use clearway_quic::endpoint::{ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig};
use clearway_quic::rng::Rng;
use clearway_quic::stream::{Directionality, StreamEvent, StreamId};
use clearway_quic::wire::PacketKind;

use super::http3;
use super::sockets::{Sockets, Traffic};
use super::wire::put_varint;

/// Default limit of concurrent handshakes.
const HANDSHAKES: usize = 64;

/// Interval at which all timers are checked. A hostile connection may be a little late,
/// and checking ten thousand of them every turn would take too long.
const SWEEP: Duration = Duration::from_millis(20);

/// Connections checked in one turn for being due for a PING.
const LOOK: usize = 1024;

/// Largest train of datagrams that is written at once, bytes.
const TRAIN: usize = 16 << 10;

/// The client's unidirectional streams that attackers write to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http3Streams {
    pub(crate) control: StreamId,
    pub(crate) encoder: StreamId,
}

/// A connection and its attacker's state about it.
pub(crate) struct Member<T> {
    pub(crate) connection: Connection,
    pub(crate) http3_streams: Option<Http3Streams>,
    /// Nothing is sent that the connection itself wants to send, such as ACKs.
    pub(crate) mute: bool,
    pub(crate) state: T,
    socket: usize,
    established: bool,
    pinged: Wall,
}

impl<T> Member<T> {
    /// Opens a request stream, writes to it, and finishes it if `end`.
    pub(crate) fn request(&mut self, bytes: &[u8], end: bool) -> Option<StreamId> {
        let id = self.connection.open(Directionality::Bidirectional)?;
        self.write(id, bytes);
        if end {
            let _ = self.connection.finish(id);
        }
        Some(id)
    }

    /// Writes as much as flow control allows and returns how much.
    pub(crate) fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        // Nothing without credit, or if the server has stopped the stream.
        self.connection.write(id, bytes).unwrap_or(0)
    }

    /// Opens a unidirectional stream and writes its type and `bytes`.
    pub(crate) fn announce(&mut self, kind: u64, bytes: &[u8]) -> Option<StreamId> {
        let id = self.connection.open(Directionality::Unidirectional)?;
        let mut first = Vec::new();
        put_varint(&mut first, kind);
        first.extend_from_slice(bytes);
        self.write(id, &first);
        Some(id)
    }
}

/// The hostile connections of one attacker.
pub(crate) struct Swarm<T> {
    pub(crate) sockets: Sockets,
    server: SocketAddr,
    endpoint: Endpoint,
    crypto: Arc<rustls::ClientConfig>,
    sessions: Option<Arc<ClientSessions>>,
    began: Wall,
    members: HashMap<ConnectionHandle, Member<T>>,
    /// Established connections, for taking turns. Closed ones are removed when it is
    /// their turn.
    turns: Vec<ConnectionHandle>,
    next_turn: usize,
    next_socket: usize,
    established: usize,
    handshakes: usize,
    /// Limit of concurrent handshakes.
    pub(crate) max_handshakes: usize,
    /// Whether data that the server sends on streams is read and discarded.
    pub(crate) reads: bool,
    /// Handshakes completed.
    pub(crate) completed: u64,
    /// Connections that the server closed or that timed out.
    ended: u64,
    /// Why the last of them ended.
    last_end: Option<String>,
    swept: Wall,
    touched: Vec<ConnectionHandle>,
    response: Vec<u8>,
    train: Vec<u8>,
}

impl<T: Default> Swarm<T> {
    /// Creates a swarm that connects to `server` from these sockets.
    pub(crate) fn new(server: SocketAddr, sockets: Sockets, config: Config) -> io::Result<Self> {
        Self::with_sessions(server, sockets, config, None)
    }

    /// Like [`new`](Self::new), and keeps tickets in `sessions`.
    pub(crate) fn with_sessions(
        server: SocketAddr,
        sockets: Sockets,
        config: Config,
        sessions: Option<Arc<ClientSessions>>,
    ) -> io::Result<Self> {
        // Verifying certificates would only cost the attacker time.
        let mut crypto = ClientCrypto::dangerous_accept_any_certificate().alpn(["h3"]);
        if let Some(sessions) = &sessions {
            crypto = crypto.sessions(sessions.clone());
        }
        let crypto = crypto.build().map_err(io::Error::other)?;
        let mut rng = Rng::from_seed(seed());
        let config = EndpointConfig::client(Arc::new(config), &mut rng);
        let now = Wall::now();
        Ok(Self {
            sockets,
            server,
            endpoint: Endpoint::new(config, rng),
            crypto,
            sessions,
            began: now,
            members: HashMap::new(),
            turns: Vec::new(),
            next_turn: 0,
            next_socket: 0,
            established: 0,
            handshakes: 0,
            max_handshakes: HANDSHAKES,
            reads: true,
            completed: 0,
            ended: 0,
            last_end: None,
            swept: now,
            touched: Vec::new(),
            response: Vec::new(),
            train: vec![0; TRAIN],
        })
    }

    /// The transport's current time.
    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed()
    }

    /// What was sent so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.sockets.traffic
    }

    /// Number of established connections.
    pub(crate) fn established(&self) -> usize {
        self.established
    }

    /// Describes how many connections were closed, and why the last one was.
    pub(crate) fn closures(&self) -> String {
        match &self.last_end {
            None => "no connection closed".to_owned(),
            Some(why) => format!("{} connections closed, the last with \"{why}\"", self.ended),
        }
    }

    /// Begins new connections until there are `count`, within the limit of concurrent
    /// handshakes.
    pub(crate) fn keep(&mut self, count: usize) {
        while self.members.len() < count && self.handshakes < self.max_handshakes {
            if self.connect().is_none() {
                return;
            }
        }
    }

    /// Begins a connection from the next source address.
    pub(crate) fn connect(&mut self) -> Option<ConnectionHandle> {
        let socket = self.next_socket;
        self.next_socket = (socket + 1) % self.sockets.len();
        let (handle, connection) = self.begin(self.now())?;
        let member = Member {
            connection,
            http3_streams: None,
            mute: false,
            state: T::default(),
            socket,
            established: false,
            pinged: Wall::now(),
        };
        self.members.insert(handle, member);
        self.handshakes += 1;
        self.speak(handle);
        Some(handle)
    }

    fn begin(&mut self, now: Instant) -> Option<(ConnectionHandle, Connection)> {
        let connect = ConnectOptions {
            remote: self.server,
            local_ip: None,
            server_name: ServerName::try_from("localhost").ok()?,
            crypto: self.crypto.clone(),
            sessions: self.sessions.clone(),
        };
        self.endpoint.connect(now, connect).ok()
    }

    /// The connection, unless it was closed.
    pub(crate) fn get(&mut self, handle: ConnectionHandle) -> Option<&mut Member<T>> {
        self.members.get_mut(&handle)
    }

    /// The next established connection, taking turns.
    pub(crate) fn next_ready(&mut self) -> Option<ConnectionHandle> {
        while !self.turns.is_empty() {
            self.next_turn %= self.turns.len();
            let handle = self.turns[self.next_turn];
            if self.members.contains_key(&handle) {
                self.next_turn += 1;
                return Some(handle);
            }
            self.turns.swap_remove(self.next_turn);
        }
        None
    }

    /// Processes received datagrams and due timers, and sends what the connections want
    /// to send.
    pub(crate) fn step(&mut self) {
        self.receive();
        if self.swept.elapsed() >= SWEEP {
            self.swept = Wall::now();
            self.sweep();
        }
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for handle in touched.drain(..) {
            self.speak(handle);
        }
        self.touched = touched;
    }

    fn receive(&mut self) {
        let now = self.now();
        let Self {
            sockets,
            endpoint,
            members,
            touched,
            response,
            ..
        } = self;
        sockets.receive(|_, remote, datagram| {
            let from = RecvMeta {
                remote,
                local_ip: None,
                ecn: ReceivedEcn::NotEct,
            };
            let DatagramEvent::Connection(handle) =
                endpoint.receive(now, 0, from, datagram, response)
            else {
                return;
            };
            if let Some(member) = members.get_mut(&handle) {
                member.connection.receive(now, from, datagram);
                touched.push(handle);
            }
        });
    }

    fn sweep(&mut self) {
        let now = self.now();
        for (handle, member) in &mut self.members {
            let due = member.connection.next_timeout().is_some_and(|at| at <= now);
            if due {
                member.connection.handle_timeout(now);
                self.touched.push(*handle);
            }
        }
    }

    /// Processes the connection's events, sends what it wants to send unless it is mute,
    /// and removes it if it was closed.
    pub(crate) fn speak(&mut self, handle: ConnectionHandle) {
        let now = self.now();
        let Some(member) = self.members.get_mut(&handle) else {
            return;
        };
        loop {
            while let Some(event) = member.connection.poll_endpoint_event() {
                self.endpoint.on_event(handle, event);
            }
            while let Some(event) = member.connection.poll_event() {
                match event {
                    Event::Connected => {
                        open_http3_streams(member);
                        member.established = true;
                        self.turns.push(handle);
                        self.established += 1;
                        self.handshakes -= 1;
                        self.completed += 1;
                    }
                    Event::Stream(StreamEvent::Readable(id)) if self.reads => {
                        discard(&mut member.connection, id);
                    }
                    Event::Stream(StreamEvent::Opened(kind)) if self.reads => {
                        while let Some(id) = member.connection.accept(kind) {
                            discard(&mut member.connection, id);
                        }
                    }
                    _ => {}
                }
            }
            if member.mute && member.established {
                break;
            }
            let Some(sent) = member.connection.transmit(now, &mut self.train, 16) else {
                break;
            };
            let segment = sent.segment.unwrap_or(sent.len);
            for datagram in self.train[..sent.len].chunks(segment) {
                self.sockets.send(member.socket, self.server, datagram);
            }
        }
        if let Some(error) = member.connection.error() {
            self.last_end = Some(error.to_string());
            self.ended += 1;
            self.forget(handle);
        }
    }

    /// Sends a PING on each established connection once per `every`, at most `packets`
    /// of them now.
    pub(crate) fn refresh(&mut self, every: Duration, packets: u64) {
        let mut left = packets;
        for _ in 0..LOOK.min(self.turns.len()) {
            if left == 0 {
                return;
            }
            let Some(handle) = self.next_ready() else {
                return;
            };
            let Some(member) = self.members.get_mut(&handle) else {
                return;
            };
            if member.pinged.elapsed() >= every {
                member.pinged = Wall::now();
                member.connection.ping();
                self.speak(handle);
                left -= 1;
            }
        }
    }

    /// Returns the first datagrams of a new connection without sending them, with this
    /// request in 0-RTT if there is a ticket.
    pub(crate) fn first_flight(&mut self, request: &[u8]) -> Vec<Vec<u8>> {
        let now = self.now();
        let Some((handle, mut connection)) = self.begin(now) else {
            return Vec::new();
        };
        if connection.has_zero_rtt()
            && let Some(id) = connection.open(Directionality::Bidirectional)
        {
            // The request is complete.
            let _ = connection.write(id, request);
            let _ = connection.finish(id);
        }
        let mut flight = Vec::new();
        while let Some(sent) = connection.transmit(now, &mut self.train, 16) {
            let segment = sent.segment.unwrap_or(sent.len);
            flight.extend(self.train[..sent.len].chunks(segment).map(<[u8]>::to_vec));
        }
        self.endpoint.on_event(handle, EndpointEvent::Drained);
        flight
    }

    /// Drops a connection without telling the server.
    pub(crate) fn forget(&mut self, handle: ConnectionHandle) {
        if let Some(member) = self.members.remove(&handle) {
            if member.established {
                self.established -= 1;
            } else {
                self.handshakes -= 1;
            }
            self.endpoint.on_event(handle, EndpointEvent::Drained);
        }
    }

    /// Sends a 1-RTT packet with any payload, sealed with the connection's keys.
    pub(crate) fn forge(&mut self, handle: ConnectionHandle, payload: &[u8]) {
        if let Some(datagram) = self.sealed(handle, payload) {
            self.send_own(handle, &datagram);
        }
    }

    /// Returns such a packet without sending it.
    pub(crate) fn sealed(&mut self, handle: ConnectionHandle, payload: &[u8]) -> Option<Vec<u8>> {
        let now = self.now();
        let member = self.members.get_mut(&handle)?;
        let forgery = Forgery::new(PacketKind::OneRtt, payload);
        member.connection.forge(now, &forgery)
    }

    /// Sends a datagram from the connection's address.
    pub(crate) fn send_own(&mut self, handle: ConnectionHandle, datagram: &[u8]) {
        if let Some(member) = self.members.get(&handle) {
            self.sockets.send(member.socket, self.server, datagram);
        }
    }

    /// Sends a datagram from another socket.
    pub(crate) fn send_from(&mut self, socket: &UdpSocket, datagram: &[u8]) {
        self.sockets.send_with(socket, self.server, datagram);
    }
}

/// Reads and discards what has arrived on a stream.
fn discard(connection: &mut Connection, id: StreamId) {
    while let Ok(Some(_)) = connection.read_chunk(id, usize::MAX) {}
}

/// Opens the client's control stream and QPACK streams.
fn open_http3_streams<T>(member: &mut Member<T>) {
    let settings = http3::control_stream();
    let control = member.connection.open(Directionality::Unidirectional);
    if let Some(control) = control {
        member.write(control, &settings);
        let encoder = member.announce(http3::QPACK_ENCODER, &[]);
        member.announce(http3::QPACK_DECODER, &[]);
        member.http3_streams = encoder.map(|encoder| Http3Streams { control, encoder });
    }
}

/// A random seed: connection IDs of two attackers must differ.
fn seed() -> [u8; 32] {
    use std::hash::{BuildHasher as _, RandomState};
    let mut seed = [0; 32];
    for chunk in seed.chunks_mut(8) {
        let random = RandomState::new().hash_one(Wall::now());
        chunk.copy_from_slice(&random.to_be_bytes());
    }
    seed
}
