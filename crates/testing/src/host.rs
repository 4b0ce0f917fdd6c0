//! One end of a world.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clearway_links::{Ecn, Packet};
use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{Connection, Event, RecvMeta};
use clearway_quic::endpoint::{ConnectionHandle, DatagramEvent, Endpoint};
use clearway_quic::path::ecn::Mark;

use super::UNIX_ORIGIN;

/// How a socket fails to send a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFault {
    /// The train is lost, as after ENETUNREACH.
    Lost,
    /// EMSGSIZE: its datagrams are larger than the first link allows.
    TooLarge,
}

/// What runs on the connections of a host.
pub trait Application {
    /// Called when a connection begins.
    fn on_connection(&mut self, handle: ConnectionHandle) {
        let _ = handle;
    }

    /// Called for every event of a connection.
    fn on_event(&mut self, handle: ConnectionHandle, connection: &mut Connection, event: Event);

    /// Called for every connection before it sends.
    fn before_transmit(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        connection: &mut Connection,
    ) {
        let _ = (now, handle, connection);
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// Called for every connection whenever the clock has moved.
    fn handle_timeout(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        connection: &mut Connection,
    ) {
        let _ = (now, handle, connection);
    }
}

/// An application that records the events of each connection.
#[derive(Debug, Default)]
pub struct EventLog {
    /// The events by connection, in order.
    pub events: BTreeMap<ConnectionHandle, Vec<Event>>,
}

impl Application for EventLog {
    fn on_event(&mut self, handle: ConnectionHandle, _: &mut Connection, event: Event) {
        self.events.entry(handle).or_default().push(event);
    }
}

/// One end: an endpoint, its connections, and the application on them.
#[derive(Debug)]
pub struct Host<A = EventLog> {
    /// The address that it sends from.
    pub address: SocketAddr,
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Its connections. A test may remove those that it no longer needs.
    pub connections: BTreeMap<ConnectionHandle, Connection>,
    /// The application on the connections.
    pub app: A,
    /// Whether a server accepts clients. Otherwise they get no answer.
    pub accepting: bool,
    /// Whether a server refuses clients.
    pub refusing: bool,
    /// Whether a server postpones the decision about clients, and makes it anew at once.
    pub postponing: bool,
    /// How many clients a server has accepted whose address a token had validated.
    pub validated: u64,
    /// How many of the next trains fail, and how.
    pub faults: (u8, SocketFault),
    response: Vec<u8>,
    train: Vec<u8>,
}

impl<A> Host<A> {
    pub(super) fn new(address: &str, endpoint: Endpoint, app: A) -> Self {
        Self {
            address: address.parse().expect("an address"),
            endpoint,
            connections: BTreeMap::new(),
            app,
            accepting: true,
            refusing: false,
            postponing: false,
            validated: 0,
            faults: (0, SocketFault::Lost),
            response: Vec::new(),
            train: vec![0; 65_536],
        }
    }

    /// Returns the first connection, if there is one. Stray packets may have begun others.
    pub fn first(&mut self) -> Option<&mut Connection> {
        self.connections.values_mut().next()
    }

    /// Returns the newest connection.
    ///
    /// # Panics
    /// If there is none.
    pub fn connection(&mut self) -> &mut Connection {
        self.split().1
    }

    /// Returns the application and the newest connection.
    ///
    /// # Panics
    /// If there is no connection.
    pub fn split(&mut self) -> (&mut A, &mut Connection) {
        let newest = self.connections.values_mut().next_back();
        (&mut self.app, newest.expect("a connection"))
    }

    /// Returns the memory of the endpoint and its connections in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let connections = self.connections.values().map(Connection::memory);
        let counts = self.endpoint.admission().memory();
        self.endpoint.memory() + counts + connections.sum::<usize>()
    }
}

impl<A: Application> Host<A> {
    pub(super) fn begin(&mut self, handle: ConnectionHandle, connection: Connection) {
        self.connections.insert(handle, connection);
        self.app.on_connection(handle);
    }

    /// Handles a datagram. Returns the endpoint's response, if it has one.
    ///
    /// # Panics
    /// If the endpoint does not accept a client that it has announced.
    pub fn receive(&mut self, now: Instant, mut packet: Packet) -> Option<Packet> {
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
        while let Some(late) = self.endpoint.next_overdue(now) {
            if let Some(connection) = self.connections.get_mut(&late) {
                connection.expire_handshake(now);
            }
        }
        let arrival = match arrival {
            DatagramEvent::Incoming(incoming) if self.postponing => {
                let postponed = incoming.postpone();
                self.endpoint.reconsider(now, postponed, &mut self.response)
            }
            arrival => arrival,
        };
        let handle = match arrival {
            DatagramEvent::Connection(handle) => handle,
            DatagramEvent::Incoming(incoming) if self.refusing => {
                self.endpoint.refuse(&incoming, &mut self.response);
                return Some(Packet::new(packet.dst, packet.src, self.response.clone()));
            }
            DatagramEvent::Incoming(incoming) if self.accepting => {
                self.validated += u64::from(incoming.is_validated());
                let (handle, connection) = self.endpoint.accept(now, *incoming).expect("accepts");
                self.begin(handle, connection);
                handle
            }
            DatagramEvent::Incoming(_) | DatagramEvent::Dropped(_) => return None,
            DatagramEvent::Response => {
                return Some(Packet::new(packet.dst, packet.src, self.response.clone()));
            }
        };
        if let Some(connection) = self.connections.get_mut(&handle) {
            connection.receive(now, from, &mut packet.data);
        }
        None
    }

    /// Returns the earliest timeout of the connections and the application.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let connections = self.connections.values();
        connections
            .filter_map(Connection::next_timeout)
            .chain(self.app.next_timeout())
            .min()
    }

    pub(super) fn handle_timeouts(&mut self, now: Instant) {
        for (handle, connection) in &mut self.connections {
            if connection.next_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
            self.app.handle_timeout(now, *handle, connection);
        }
    }

    /// Passes events to the application, lets it write, and emits all datagrams that may be sent
    /// now.
    pub(super) fn transmit(&mut self, now: Instant, mut emit: impl FnMut(Packet)) {
        for (handle, connection) in &mut self.connections {
            while let Some(event) = connection.poll_event() {
                self.app.on_event(*handle, connection, event);
            }
            self.app.before_transmit(now, *handle, connection);
            while let Some(sent) = connection.transmit(now, &mut self.train, 64) {
                let segment = sent.segment.unwrap_or(sent.len);
                if self.faults.0 > 0 {
                    self.faults.0 -= 1;
                    match self.faults.1 {
                        SocketFault::Lost => {}
                        SocketFault::TooLarge => connection.on_datagram_too_large(now, segment),
                    }
                    continue;
                }
                for datagram in self.train[..sent.len].chunks(segment) {
                    let ecn = match sent.ecn {
                        Mark::NotEct => Ecn::NotEct,
                        Mark::Ect0 => Ecn::Ect0,
                        Mark::Ect1 => Ecn::Ect1,
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
                self.app.on_event(*handle, connection, event);
            }
        }
    }
}
