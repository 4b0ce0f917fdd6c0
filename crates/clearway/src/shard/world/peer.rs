//! A client of the shard: the transport alone, driven by hand.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{ConnectOptions, Connection, RecvMeta};
use clearway_quic::crypto::ServerName;
use clearway_quic::endpoint::{DatagramEvent, Endpoint, EndpointConfig};
use clearway_quic::rng::Rng;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use crate::ClientConfig;

pub(super) struct Peer {
    pub(super) address: SocketAddr,
    endpoint: Endpoint,
    pub(super) connection: Connection,
    /// Datagrams of the server that it has not received yet.
    pub(super) inbox: VecDeque<Vec<u8>>,
    stream: Option<StreamId>,
}

impl Peer {
    pub(super) fn new(n: u8, now: Instant, server: SocketAddr, config: &ClientConfig) -> Self {
        // Never the server's, which would choose the same connection IDs.
        let mut seed = [n; 32];
        seed[0] = !n;
        let mut rng = Rng::from_seed(seed);
        let settings = EndpointConfig::client(config.transport_config(), &mut rng);
        let mut endpoint = Endpoint::new(settings, rng);
        let connect = ConnectOptions {
            remote: server,
            local_ip: None,
            server_name: ServerName::try_from("localhost").expect("a name"),
            crypto: config.tls().expect("TLS settings"),
            sessions: None,
        };
        let (_, connection) = endpoint.connect(now, connect).expect("begins");
        Self {
            address: SocketAddr::from(([10, 0, 0, 10 + n], 5000)),
            endpoint,
            connection,
            inbox: VecDeque::new(),
            stream: None,
        }
    }

    /// Receives the datagrams that wait.
    pub(super) fn receive_all(&mut self, now: Instant, server: SocketAddr) {
        let from = RecvMeta {
            remote: server,
            local_ip: None,
            ecn: ReceivedEcn::NotEct,
        };
        while let Some(mut datagram) = self.inbox.pop_front() {
            let mut response = Vec::new();
            let arrival = self
                .endpoint
                .receive(now, 0, from, &datagram, &mut response);
            if let DatagramEvent::Connection(_) = arrival {
                self.connection.receive(now, from, &mut datagram);
            }
        }
        while let Some(event) = self.connection.poll_endpoint_event() {
            self.endpoint
                .on_event(clearway_quic::endpoint::ConnectionHandle(0), event);
        }
        while self.connection.poll_event().is_some() {}
        while let Some(id) = self.connection.accept(Directionality::Unidirectional) {
            // Reads nothing, so that the server reaches the limits.
            let _ = id;
        }
    }

    /// Reads what has arrived on the server's stream. Returns the number of bytes, and whether the
    /// stream ended.
    pub(super) fn read_all(&mut self) -> (usize, bool) {
        let id = StreamId::new(Role::Server, Directionality::Unidirectional, 0);
        let (mut len, mut buffer) = (0, vec![0; 1_000]);
        while let Ok(read) = self.connection.read(id, &mut buffer) {
            match read {
                Some(read) => len += read,
                None => return (len, true),
            }
        }
        (len, false)
    }

    /// Writes a few bytes on its one stream.
    pub(super) fn write(&mut self) {
        if self.stream.is_none() {
            self.stream = self.connection.open(Directionality::Bidirectional);
        }
        if let Some(id) = self.stream {
            // This fails once the connection or the stream has ended.
            let _ = self.connection.write(id, b"abc");
        }
    }

    /// Returns the datagrams that it sends now.
    pub(super) fn flush(&mut self, now: Instant) -> Vec<Vec<u8>> {
        if self.connection.next_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        let mut datagrams = Vec::new();
        let mut buffer = vec![0; 1_500];
        while let Some(transmit) = self.connection.transmit(now, &mut buffer, 1) {
            datagrams.push(buffer.get(..transmit.len).expect("written").to_vec());
        }
        datagrams
    }
}
