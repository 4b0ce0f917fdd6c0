//! Several endpoints of one server, which share their limits.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clearway_links::Packet;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{Connection, EndpointEvent, RecvMeta};
use clearway_quic::endpoint::{
    AdmissionControl, ConnectionHandle, DatagramEvent, Endpoint, Incoming, Limits,
};
use clearway_quic::rng::Rng;

use crate::hostile::pair::first_flight;
use clearway_testing::{Setup, UNIX_ORIGIN, World, path};

const SHARDS: usize = 4;

/// Shards of a server, and clients that never finish their handshakes.
struct Server {
    world: World,
    admission: Arc<AdmissionControl>,
    shards: Vec<Endpoint>,
    connections: Vec<(usize, ConnectionHandle, Connection)>,
    response: Vec<u8>,
}

/// What became of a client's first datagram.
enum Outcome {
    Incoming(Box<Incoming>),
    Answered,
}

impl Server {
    fn new(change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
        let mut rng = Rng::from_seed([4; 32]);
        let setup = Setup::new();
        let admission = Arc::new(AdmissionControl::new(limits, &mut rng));
        let shards = (0..SHARDS).map(|_| {
            let rng = rng.child("shard");
            Endpoint::with_admission(setup.server_endpoint(), admission.clone(), rng)
        });
        Self {
            shards: shards.collect(),
            admission,
            world: World::new(setup.clone(), path("rate=10M delay=15ms queue=25", 1), 1),
            connections: Vec::new(),
            response: Vec::new(),
        }
    }

    /// A client at `ip` begins at this shard.
    fn begin(&mut self, shard: usize, ip: IpAddr) -> Outcome {
        let Packet { data, .. } = first_flight(&mut self.world).swap_remove(0);
        let from = received(ip);
        let endpoint = &mut self.shards[shard];
        let now = self.world.now;
        match endpoint.receive(now, UNIX_ORIGIN, from, &data, &mut self.response) {
            DatagramEvent::Incoming(incoming) => Outcome::Incoming(incoming),
            DatagramEvent::Response => Outcome::Answered,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a client at `ip` is accepted by this shard.
    fn accepts(&mut self, shard: usize, ip: IpAddr) -> bool {
        match self.begin(shard, ip) {
            Outcome::Incoming(incoming) => {
                let accepted = self.shards[shard].accept(self.world.now, *incoming);
                let (handle, connection) = accepted.expect("its own settings");
                self.connections.push((shard, handle, connection));
                true
            }
            Outcome::Answered => false,
        }
    }

    /// A connection is gone.
    fn end(&mut self, index: usize) {
        let (shard, handle, _) = self.connections.swap_remove(index);
        self.shards[shard].on_event(handle, EndpointEvent::Drained);
    }
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn received(ip: IpAddr) -> RecvMeta {
    RecvMeta {
        remote: SocketAddr::new(ip, 5_000),
        local_ip: None,
        ecn: ReceivedEcn::NotEct,
    }
}

#[test]
fn connection_limit_holds_over_all_shards() {
    // Evenly, and all at one shard with the others taking what is left.
    for order in [[0, 1, 2, 3], [2, 2, 2, 1]] {
        let mut server = Server::new(|limits| limits.connections = 10);
        let mut places = order.into_iter().cycle();
        let mut next = || places.next().expect("endless");
        for n in 0..10 {
            assert!(server.accepts(next(), ip(n)), "{n}");
        }
        for shard in 0..SHARDS {
            assert!(!server.accepts(shard, ip(100)), "{shard}");
            let refused = server.shards[shard].counters().refused_connections;
            assert_eq!(refused, 1, "{shard}");
        }
        // A place that is free is free for every shard, once.
        for shard in 0..SHARDS {
            server.end(0);
            assert!(server.accepts(shard, ip(101)), "{shard}");
            assert!(!server.accepts((shard + 1) % SHARDS, ip(102)), "{shard}");
        }
        assert_eq!(server.admission.connections(), 10);
    }
}

#[test]
fn handshake_limits_hold_over_all_shards() {
    let mut server = Server::new(|limits| {
        limits.retry_above = 6;
        limits.per_source = 3;
    });
    for n in 0..3 {
        assert!(server.accepts(n, ip(1)), "{n}");
    }
    // Its source is asked to prove its address, at a shard that knows nothing of it too.
    assert!(!server.accepts(3, ip(1)));
    assert_eq!(server.shards[3].counters().retries, 1);
    for n in 0..3 {
        assert!(server.accepts(3, ip(10 + n)), "{n}");
    }
    assert!(!server.accepts(0, ip(20)), "a Retry for everybody");
    assert_eq!(server.admission.handshakes(), 6);
    while !server.connections.is_empty() {
        server.end(0);
    }
    assert_eq!(server.admission.handshakes(), 0);
    assert_eq!(server.admission.connections(), 0);
    assert!(server.accepts(0, ip(20)));
}

#[test]
fn pending_incoming_connection_counts_until_dropped() {
    let mut server = Server::new(|limits| limits.connections = 1);
    let Outcome::Incoming(incoming) = server.begin(0, ip(1)) else {
        panic!("there is a place");
    };
    assert!(!server.accepts(1, ip(2)));
    server.shards[0].refuse(&incoming, &mut Vec::new());
    drop(incoming);
    assert!(server.accepts(1, ip(2)));
}

#[test]
fn postponed_client_counts_towards_no_limit_and_is_refused_if_one_is_reached_meanwhile() {
    let mut server = Server::new(|limits| limits.connections = 1);
    let postpone = |server: &mut Server, last| {
        let Outcome::Incoming(incoming) = server.begin(0, ip(last)) else {
            panic!("there is a place");
        };
        incoming.postpone()
    };
    let [first, second] = [1, 2].map(|last| postpone(&mut server, last));
    assert_eq!(server.admission.connections(), 0);
    assert!(server.accepts(1, ip(3)));
    let now = server.world.now;
    let endpoint = &mut server.shards[0];
    let refused = endpoint.reconsider(now, first, &mut server.response);
    assert!(matches!(refused, DatagramEvent::Response), "{refused:?}");
    server.end(0);
    let endpoint = &mut server.shards[0];
    let admitted = endpoint.reconsider(now, second, &mut server.response);
    let DatagramEvent::Incoming(admitted) = admitted else {
        panic!("{admitted:?}");
    };
    assert_eq!(admitted.remote().ip(), ip(2));
}

#[test]
fn postponed_client_whose_connection_has_begun_meanwhile_gets_that_one() {
    let mut server = Server::new(|_| {});
    let flight = first_flight(&mut server.world).swap_remove(0).data;
    let now = server.world.now;
    let [first, second] = [(), ()].map(|()| {
        let (shard, response) = (&mut server.shards[0], &mut server.response);
        let event = shard.receive(now, UNIX_ORIGIN, received(ip(1)), &flight, response);
        let DatagramEvent::Incoming(incoming) = event else {
            panic!("{event:?}");
        };
        *incoming
    });
    let postponed = first.postpone();
    let endpoint = &mut server.shards[0];
    let (handle, _connection) = endpoint.accept(now, second).expect("its own settings");
    let event = endpoint.reconsider(now, postponed, &mut server.response);
    assert!(matches!(event, DatagramEvent::Connection(found) if found == handle));
}

#[test]
fn connections_of_ended_shard_are_not_counted() {
    let mut server = Server::new(|limits| limits.connections = 8);
    for n in 0..8 {
        assert!(server.accepts(usize::from(n) % SHARDS, ip(n)), "{n}");
    }
    // Somebody still holds the one, and nobody the other.
    server.shards[1].forget_all();
    assert!(server.shards[1].is_empty());
    assert_eq!(server.admission.connections(), 6);
    drop(server.shards.pop());
    assert_eq!(server.admission.connections(), 4);
    for n in 0..4 {
        assert!(server.accepts(0, ip(n)), "{n}");
    }
    assert!(!server.accepts(0, ip(9)));
}

#[test]
fn refusal_rate_limit_holds_over_all_shards() {
    let mut server = Server::new(|limits| {
        limits.connections = 0;
        limits.refusals_per_second = 5;
    });
    let Packet { data, .. } = first_flight(&mut server.world).swap_remove(0);
    let from = received(ip(1));
    let mut refused = 0;
    for n in 0..20 {
        let (now, endpoint) = (server.world.now, &mut server.shards[n % SHARDS]);
        let arrival = endpoint.receive(now, UNIX_ORIGIN, from, &data, &mut server.response);
        refused += usize::from(matches!(arrival, DatagramEvent::Response));
    }
    assert_eq!(refused, 5);
    let counters = server.shards.iter().map(Endpoint::counters);
    assert_eq!(counters.map(|c| c.refusals_withheld).sum::<u64>(), 15);
}
