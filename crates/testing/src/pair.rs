//! Two connections joined in memory, for benches.

use std::sync::Arc;
use std::time::Duration;

use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{Config, ConnectOptions, Connection, RecvMeta};
use clearway_quic::endpoint::{DatagramEvent, Endpoint};
use clearway_quic::rng::Rng;
use clearway_quic::{Instant, Role};
use clearway_recovery::congestion::Algorithm;

use super::Setup;

/// Two connections whose datagrams are handed over in memory, with a fixed delay and no link, so that a
/// bench measures the transport alone.
#[derive(Debug)]
pub struct DirectPair {
    /// Virtual time. Each exchange takes 20 µs.
    pub now: Instant,
    /// The client's connection.
    pub client: Connection,
    /// The server's connection.
    pub server: Connection,
    train: Vec<u8>,
    /// Number of datagrams handed over so far.
    pub packets: u64,
}

/// Time that an exchange in one direction takes.
const ONE_WAY: Duration = Duration::from_micros(20);

impl DirectPair {
    /// Connects two ends whose transport configuration `change` has adjusted.
    ///
    /// # Panics
    /// If the handshake fails.
    #[must_use]
    pub fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut transport = Config::default();
        // A window that fits the caches, as on a real path of this length.
        transport.controller = Algorithm::Fixed(512 << 10).into();
        change(&mut transport);
        let setup = Setup {
            client: transport.clone(),
            server: transport,
            ..Setup::new()
        };
        let mut rng = Rng::from_seed([1; 32]);
        let client = setup.client_endpoint(&mut rng);
        let mut client = Endpoint::new(client, rng.child("client"));
        let mut server = Endpoint::new(setup.server_endpoint(), rng.child("server"));
        let now = Instant::from_nanos(1);
        let connect = ConnectOptions {
            remote: ([10, 0, 0, 2], 443).into(),
            local_ip: None,
            server_name: "localhost".try_into().expect("a name"),
            crypto: Arc::clone(&setup.client_crypto),
            sessions: None,
        };
        let (_, mut client) = client.connect(now, connect).expect("connects");
        let mut train = vec![0; 65_536];
        let server = accept(&mut server, &mut client, &mut train, now);
        let mut pair = Self {
            now,
            client,
            server,
            train,
            packets: 0,
        };
        while !(pair.client.is_confirmed() && pair.server.is_confirmed()) {
            pair.send_from(Role::Server);
            pair.send_from(Role::Client);
        }
        pair
    }

    /// Hands everything that one end may send to the other. Returns whether there was anything.
    pub fn send_from(&mut self, sender: Role) -> bool {
        self.now += ONE_WAY;
        let (sender, receiver, remote) = match sender {
            Role::Server => (&mut self.server, &mut self.client, ([10, 0, 0, 2], 443)),
            Role::Client => (&mut self.client, &mut self.server, ([10, 0, 0, 1], 5000)),
        };
        if sender.next_timeout().is_some_and(|at| at <= self.now) {
            sender.handle_timeout(self.now);
        }
        let mut any = false;
        while let Some(sent) = sender.transmit(self.now, &mut self.train, 64) {
            any = true;
            let segment = sent.segment.unwrap_or(sent.len);
            for datagram in self.train[..sent.len].chunks_mut(segment) {
                self.packets += 1;
                receiver.receive(self.now, received(remote), datagram);
            }
        }
        any
    }
}

/// Hands the client's first flight to the server, which accepts it.
fn accept(
    endpoint: &mut Endpoint,
    client: &mut Connection,
    train: &mut [u8],
    now: Instant,
) -> Connection {
    let from = received(([10, 0, 0, 1], 5000));
    let mut server = None;
    while let Some(sent) = client.transmit(now, train, 64) {
        let segment = sent.segment.unwrap_or(sent.len);
        for datagram in train[..sent.len].chunks_mut(segment) {
            let server = server.get_or_insert_with(|| {
                let arrival = endpoint.receive(now, 0, from, datagram, &mut Vec::new());
                let DatagramEvent::Incoming(incoming) = arrival else {
                    panic!("the server does not accept the client: {arrival:?}");
                };
                endpoint.accept(now, *incoming).expect("accepts").1
            });
            server.receive(now, from, datagram);
        }
    }
    server.expect("the client sends an Initial")
}

fn received(remote: ([u8; 4], u16)) -> RecvMeta {
    RecvMeta {
        remote: remote.into(),
        local_ip: None,
        ecn: ReceivedEcn::NotEct,
    }
}
