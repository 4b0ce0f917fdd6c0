use std::sync::Arc;

use clearway_quic::cid::quic_lb::ServerId;
use clearway_udp::{DatagramSocket as _, Ecn, Options, Socket};
use proptest::prelude::*;

use super::*;
use crate::flows::FlowCapacity;
use crate::plan::Plan;
use crate::plan::tests::{backends, config};
use crate::router::RouterLimits;
use crate::traffic::Traffic;

pub(super) const NOW: Duration = Duration::from_secs(5);

pub(super) fn engine() -> Engine {
    let plan = Plan::new(backends(3), [config()]).unwrap();
    let limits = RouterLimits {
        new_connections: 0,
        new_connections_by_source: 0,
        ..RouterLimits::default()
    };
    Engine {
        router: Router::new(Arc::new(plan), limits),
        flows: Flows::new(FlowCapacity {
            sources: Vec::new(),
            sockets: 4,
            flows: 100,
            idle: Duration::from_secs(60),
            transparent: None,
        }),
        counts: ShardReport::default(),
        orphans: Orphans::default(),
        strays: None,
        work: Duration::ZERO,
    }
}

pub(super) fn meta(port: u16, len: usize, stride: usize) -> Meta {
    let mut meta = Meta::new(SocketAddr::from(([192, 0, 2, 1], port)));
    (meta.len, meta.stride, meta.ecn) = (len, stride, Some(Ecn::Ect1));
    meta
}

/// A short header with a connection ID of backend `server`, if there is one, in `size` bytes.
pub(super) fn short(server: u8, size: usize) -> Vec<u8> {
    let id = ServerId::new(&[server]).unwrap();
    let cid = config().encode(&id, &[server; 7], 0).unwrap();
    let mut packet = [&[0x40], &cid[..]].concat();
    packet.resize(size, server);
    packet
}

#[test]
fn train_is_split_where_its_connection_id_changes() {
    let mut engine = engine();
    let servers = [1, 1, 2, 2, 2, 1, 3];
    let mut train: Vec<u8> = servers.iter().flat_map(|&n| short(n, 50)).collect();
    train.truncate(train.len() - 9);
    let mut outgoing = Outgoing::default();
    engine.route_message(NOW, &meta(1, train.len(), 50), &train, &mut outgoing);
    let runs: Vec<_> = outgoing
        .trains()
        .map(|(to, train)| (to.backend.0, datagrams(train)))
        .collect();
    assert_eq!(runs, [(1, 2), (2, 3), (1, 1), (3, 1)]);
    for (to, train) in outgoing.trains() {
        let backend = engine.router.plan().backend(to.backend).unwrap();
        assert_eq!(train.remote, backend.address);
        assert_eq!(train.ecn, Some(Ecn::Ect1), "ECN is kept");
        assert_eq!(train.segment_size, Some(50));
    }
    assert_eq!(engine.counts.up.received, 7);
}

#[test]
fn datagrams_without_known_connection_id_travel_alone() {
    let mut engine = engine();
    let train: Vec<u8> = (0..3).flat_map(|_| vec![0x7f; 40]).collect();
    let mut outgoing = Outgoing::default();
    engine.route_message(NOW, &meta(1, train.len(), 40), &train, &mut outgoing);
    assert_eq!(outgoing.trains().count(), 3);
}

#[test]
fn reply_returns_to_client_only_from_its_backend() {
    let mut engine = engine();
    let packet = short(2, 50);
    let mut outgoing = Outgoing::default();
    engine.route_message(NOW, &meta(7, 50, 50), &packet, &mut outgoing);
    let (to, train) = outgoing.trains().next().unwrap();
    let (port, backend) = (to.upstream.socket, train.remote);
    let mut reply = meta(0, 60, 30);
    reply.remote = backend;
    let content = [1; 60];
    let sent = engine.route_reply(NOW, port, &reply, &content).unwrap();
    assert_eq!(sent.remote, meta(7, 0, 0).remote);
    assert_eq!((sent.segment_size, sent.ecn), (Some(30), Some(Ecn::Ect1)));

    reply.remote = "10.0.0.1:1".parse().unwrap();
    assert!(
        engine.route_reply(NOW, port, &reply, &content).is_none(),
        "another backend"
    );
    reply.remote = "10.6.6.6:1".parse().unwrap();
    assert!(
        engine.route_reply(NOW, port, &reply, &content).is_none(),
        "a stranger"
    );
    reply.remote = backend;
    assert!(
        engine.route_reply(NOW, port, &reply, &[]).is_none(),
        "empty"
    );
    let drops: Vec<_> = engine.counts.down.drops().collect();
    let expected = [
        (DropReason::Empty, 2),
        (DropReason::UnknownSender, 2),
        (DropReason::UnknownFlow, 2),
    ];
    assert_eq!(drops, expected);
    assert_eq!(engine.counts.down.received, 8);
}

/// At least the time between two turns of clients whose backend went down.
const TURN: Duration = Duration::from_millis(50);

#[test]
fn client_of_a_dead_backend_is_answered_by_another_one() {
    let mut engine = engine();
    let packet = short(2, 50);
    let mut outgoing = Outgoing::default();
    engine.route_message(NOW, &meta(7, 50, 50), &packet, &mut outgoing);
    let (to, train) = outgoing.trains().next().unwrap();
    let (port, dead) = (to.upstream.socket, train.remote);
    let mut reply = meta(0, 3, 3);
    reply.remote = dead;
    assert!(engine.route_reply(NOW, port, &reply, &[0x40; 3]).is_some());

    let mut left = backends(3);
    left[1].state = crate::backend::BackendState::Down;
    engine.set_plan(Arc::new(Plan::new(left, [config()]).unwrap()));
    let orphan = engine.next_orphan(NOW).unwrap();
    let crate::orphans::Orphan { client, cid, .. } = orphan;
    assert_eq!(client.client, meta(7, 0, 0).remote);
    assert_eq!(cid[..], packet[1..=cid.len()]);
    let asked = crate::orphans::packet_for(cid);
    let (to, train) = engine.for_another_backend(NOW, &orphan, &asked).unwrap();
    assert_ne!(train.remote, dead);
    // Until it is answered, in later turns.
    engine.orphans.repeat(orphan);
    assert!(engine.next_orphan(NOW).is_none());
    let again = engine.next_orphan(NOW + TURN).unwrap();
    assert!(engine.for_another_backend(NOW, &again, &asked).is_some());
    let (port, backend) = (to.upstream.socket, train.remote);
    assert_eq!(datagrams(&train), 1);
    reply.remote = backend;
    let reset = engine.route_reply(NOW, port, &reply, &[0x40; 3]).unwrap();
    assert_eq!(reset.remote, client.client);
    assert!(engine.for_another_backend(NOW, &again, &asked).is_none());
    assert!(engine.next_orphan(NOW + 2 * TURN).is_none());
}

#[test]
fn trains_of_one_socket_are_sent_together_in_their_order() {
    let to = "10.0.0.1:1".parse().unwrap();
    for sockets in [&[0_u32, 0, 1, 2][..], &[2, 0, 1, 0, 2, 0]] {
        let mut outgoing = Outgoing::default();
        let contents: Vec<[u8; 2]> = (0..).zip(sockets).map(|(n, s)| [*s as u8, n]).collect();
        for (&socket, contents) in sockets.iter().zip(&contents) {
            let upstream = Upstream { socket, source: 0 };
            let backend = BackendId(1);
            let destination = Destination { upstream, backend };
            outgoing.push((destination, Transmit::new(to, contents)));
        }
        outgoing.sort();
        let sent: Vec<_> = outgoing.sorted.iter().map(|train| train.contents).collect();
        let mut expected: Vec<_> = contents.iter().map(|contents| &contents[..]).collect();
        expected.sort_unstable();
        assert_eq!(sent, expected);
        let order = outgoing.destinations().map(|to| to.upstream.socket as u8);
        assert!(order.eq(expected.iter().map(|contents| contents[0])));
        assert_eq!(outgoing.emptied().destinations().count(), 0);
    }
}

/// The sockets under test, in memory of the kernel's loopback.
#[test]
fn what_cannot_be_sent_is_counted() {
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let socket = SampledSocket::from(socket);
    let mut traffic = Traffic::default();
    let payload = vec![0; 3_000];
    let mut trains = [
        Transmit::new(socket.local_addr().unwrap(), &payload),
        // A port that cannot be, and an address of another family.
        Transmit::new("127.0.0.1:0".parse().unwrap(), &payload),
        Transmit::new("[::1]:9".parse().unwrap(), &payload),
        Transmit::new(socket.local_addr().unwrap(), &payload),
    ];
    for train in &mut trains {
        train.segment_size = Some(1_000);
        traffic.received += 3;
    }
    send(&socket, &mut trains, &mut traffic);
    assert_eq!(traffic.forwarded, 6);
    let drops: Vec<_> = traffic.drops().collect();
    assert_eq!(drops, [(DropReason::SendFailed, 6)]);
    assert!(traffic.is_conserved());
}

/// Whatever arrives where, it is counted by one shard.
#[test]
fn what_arrives_at_another_shard_is_counted_once() {
    let mut shards = Vec::new();
    for strays in Strays::connect(2).unwrap() {
        let flows = Flows::new(FlowCapacity {
            sources: Vec::new(),
            sockets: 1_000,
            flows: 10_000,
            idle: Duration::from_secs(60),
            transparent: None,
        });
        let strays = Some(strays);
        shards.push(Engine {
            flows,
            strays,
            ..engine()
        });
    }
    let train = [short(1, 50), short(2, 50), short(2, 50)].concat();
    let (mut sent, mut arrived) = (0, 0);
    for port in 1..=600 {
        let mut outgoing = Outgoing::default();
        shards[0].route_arrived(NOW, &meta(port, 150, 50), &train, &mut outgoing);
        sent += outgoing
            .trains()
            .map(|(_, train)| datagrams(train))
            .sum::<u64>();
        arrived += 3;
    }
    let dropped = shards[0].counts.up.dropped();
    let full = (DropReason::QueueFull, dropped);
    assert!(
        shards[0].counts.up.drops().any(|drop| drop == full),
        "{dropped}"
    );
    let strays = shards[1].take_strays();
    for stray in &strays {
        let mut outgoing = Outgoing::default();
        shards[1].route_message(NOW, &stray.meta, &stray.payload, &mut outgoing);
        sent += outgoing
            .trains()
            .map(|(_, train)| datagrams(train))
            .sum::<u64>();
        assert_eq!(outgoing.trains().count(), 2, "the train is as it was");
    }
    assert!(!strays.is_empty());
    let received: u64 = shards.iter().map(|shard| shard.counts.up.received).sum();
    assert_eq!((received, sent + dropped), (arrived, arrived));
}

proptest! {
    /// Random trains: each datagram is in one run or counted as dropped, in order, and no run
    /// mixes connection IDs.
    #[test]
    fn every_datagram_of_a_train_is_sent_or_counted(
        trains in proptest::collection::vec(
            (any::<u16>(), 0_usize..80, proptest::collection::vec((0_u8..6, any::<u64>()), 0..12)),
            1..8,
        ),
    ) {
        let mut engine = engine();
        let mut sent = 0;
        for (port, stride, datagrams_in) in trains {
            let mut train = Vec::new();
            for (server, random) in datagrams_in {
                let mut datagram = match server {
                    0 => random.to_be_bytes().repeat(10),
                    1 => [&[0xc0, 0, 0, 0, 1][..], &random.to_be_bytes().repeat(10)].concat(),
                    known => short(known - 1, 80),
                };
                datagram.resize(stride.max(1), 0);
                train.extend(datagram);
            }
            let meta = meta(port % 3, train.len(), stride.max(1));
            let mut outgoing = Outgoing::default();
            engine.route_message(NOW, &meta, &train, &mut outgoing);
            for (_, train) in outgoing.trains() {
                sent += datagrams(train);
                let parts = train.contents.chunks(stride.max(1));
                let cids: std::collections::BTreeSet<_> =
                    parts.filter_map(|part| part.get(1..10)).collect();
                prop_assert!(cids.len() <= 1);
            }
        }
        let up = engine.counts.up;
        prop_assert_eq!(up.received, sent + up.dropped());
    }
}
