//! One end of a world.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clearway_links::Packet;
use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{Connection, Event, RecvMeta};
use clearway_quic::endpoint::{ConnectionHandle, DatagramEvent, Endpoint};
use clearway_quic::path::ecn::Mark;

use super::UNIX_ORIGIN;

/// What the socket makes of a train that it does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFault {
    /// It is gone, as after ENETUNREACH.
    Lost,
    /// EMSGSIZE: its datagrams are larger than the first link takes.
    TooLarge,
}

/// One end: an endpoint and its connections.
pub struct Host {
    pub address: SocketAddr,
    pub endpoint: Endpoint,
    pub connections: BTreeMap<ConnectionHandle, Connection>,
    pub events: BTreeMap<ConnectionHandle, Vec<Event>>,
    /// Accept clients (servers), else leave them without an answer.
    pub accepting: bool,
    /// Refuse clients instead.
    pub refusing: bool,
    /// So many of the next trains meet an error of the socket.
    pub faults: (u8, SocketFault),
    response: Vec<u8>,
    train: Vec<u8>,
}

impl Host {
    pub(super) fn new(address: &str, endpoint: Endpoint) -> Self {
        Self {
            address: address.parse().expect("an address"),
            endpoint,
            connections: BTreeMap::new(),
            events: BTreeMap::new(),
            accepting: true,
            refusing: false,
            faults: (0, SocketFault::Lost),
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
        let from = RecvMeta {
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
        while let Some(late) = self.endpoint.next_overdue(now) {
            if let Some(connection) = self.connections.get_mut(&late) {
                connection.expire_handshake(now);
            }
        }
        let handle = match arrival {
            DatagramEvent::Connection(handle) => handle,
            DatagramEvent::Incoming(incoming) if self.refusing => {
                self.endpoint.refuse(&incoming, &mut self.response);
                return Some(Packet::new(packet.dst, packet.src, self.response.clone()));
            }
            DatagramEvent::Incoming(incoming) if self.accepting => {
                let (handle, connection) = self.endpoint.accept(now, *incoming).expect("accepts");
                self.connections.insert(handle, connection);
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

    /// Bytes of memory of everything here, routes included.
    pub fn memory(&self) -> usize {
        let connections = self.connections.values().map(Connection::memory);
        let counts = self.endpoint.admission().memory();
        self.endpoint.memory() + counts + connections.sum::<usize>()
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.connections
            .values()
            .filter_map(Connection::next_timeout)
            .min()
    }

    pub(super) fn handle_timeouts(&mut self, now: Instant) {
        for connection in self.connections.values_mut() {
            if connection.next_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
        }
    }

    /// Everything that may leave now.
    pub(super) fn transmit(&mut self, now: Instant, mut emit: impl FnMut(Packet)) {
        for (handle, connection) in &mut self.connections {
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
