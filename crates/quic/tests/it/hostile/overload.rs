//! More handshakes than the server allows (RFC 9000 §8.1.2, §21.5).

use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::connection::ConnectionError;
use clearway_quic::endpoint::ConnectionHandle;
use clearway_quic::error::Code;
use clearway_quic::stream::Directionality;

use crate::hostile::pair::{LINK, first_flight, metered_world};
use clearway_testing::{Setup, World};

fn setup(retry_above: usize, refuse_above: usize) -> Setup {
    let mut setup = Setup::new();
    setup.limits.retry_above = retry_above;
    setup.limits.refuse_above = refuse_above;
    setup
}

/// First datagrams of clients that never go on, each from an address of its own.
fn flood(world: &mut World, count: usize) {
    let held = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = held.clone();
    world.filter = Some(Box::new(move |direction, packet| {
        if direction == Direction::Up {
            sink.lock().expect("one thread").push(packet.data.clone());
        }
        false
    }));
    for i in 0..count {
        let handle = world.connect();
        world.flush();
        let mut client = world.client.connections.remove(&handle).expect("just made");
        client.close(world.now, 0, b"");
        let from = ([10, 1, (i >> 8) as u8, i as u8], 5000).into();
        let to = world.server.address;
        let first = core::mem::take(&mut *held.lock().expect("one thread")).swap_remove(0);
        world.deliver(Direction::Up, Packet::new(from, to, first));
    }
    world.filter = None;
}

/// The established connection moves data.
fn progresses(world: &mut World, client: ConnectionHandle, server: ConnectionHandle) {
    let connection = world.client.connections.get_mut(&client).expect("kept");
    let id = connection
        .open(Directionality::Bidirectional)
        .expect("credit");
    connection.write(id, b"alive").expect("writes");
    let arrived = world.run_until(Duration::from_secs(1), |world| {
        let connection = world.server.connections.get_mut(&server).expect("kept");
        matches!(connection.read(id, &mut [0; 8]), Ok(Some(5)))
    });
    assert!(arrived, "the live connection does not progress");
}

#[test]
fn handshakes_above_budget_get_retry() {
    let mut world = metered_world(setup(20, 30), LINK, Role::Server);
    world.handshake();
    let live =
        |map: &std::collections::BTreeMap<ConnectionHandle, _>| *map.keys().next().expect("one");
    let client = live(&world.client.connections);
    let server = *world.server.connections.keys().next().expect("one");

    flood(&mut world, 100);
    assert_eq!(world.server.endpoint.handshakes(), 20);
    let counters = world.server.endpoint.counters();
    assert_eq!(counters.accepted, 21, "the live one and the budget");
    assert_eq!(counters.retries, 80, "everybody else is asked for a token");
    progresses(&mut world, client, server);

    // An honest newcomer answers the Retry and gets in.
    let handle = world.connect();
    let done = world.run_until(Duration::from_secs(5), |world| {
        world.client.connections[&handle].is_confirmed()
    });
    assert!(done, "a client that proves its address is served");
}

#[test]
fn handshakes_above_hard_limit_are_refused() {
    let mut world = metered_world(setup(1000, 30), LINK, Role::Server);
    world.handshake();
    let client = *world.client.connections.keys().next().expect("one");
    let server = *world.server.connections.keys().next().expect("one");

    flood(&mut world, 100);
    assert_eq!(world.server.endpoint.handshakes(), 30);
    assert_eq!(world.server.endpoint.counters().refused, 70);
    progresses(&mut world, client, server);

    let handle = world.connect();
    world.run_for(Duration::from_millis(100));
    match world.client.connections[&handle].error() {
        Some(ConnectionError::PeerTransport(error)) => {
            assert_eq!(error.code, Code::CONNECTION_REFUSED);
            assert_eq!(error.reason, "too many handshakes");
        }
        other => panic!("{other:?}"),
    }

    // Those that never went on time out, and the room they took is free again.
    world.run_for(Duration::from_secs(120));
    assert_eq!(world.server.endpoint.handshakes(), 0);
}

/// The datagrams of one ClientHello, caught on their way.
fn flight(world: &mut World) -> Vec<Packet> {
    let caught = first_flight(world);
    assert_eq!(
        caught.len(),
        2,
        "a ClientHello with a post-quantum key share"
    );
    caught
}

/// Retries and refusals sent for the datagrams `order` of a ClientHello.
fn answers(change: impl FnOnce(&mut Setup), order: &[usize]) -> u64 {
    let mut setup = Setup::new();
    change(&mut setup);
    let mut world = metered_world(setup, LINK, Role::Server);
    let flight = flight(&mut world);
    for &which in order {
        world.deliver(Direction::Up, flight[which].clone());
    }
    let counters = world.server.endpoint.counters();
    assert_eq!(counters.accepted, 0);
    assert_eq!(
        counters.continued as usize,
        order.iter().filter(|&&i| i == 1).count()
    );
    counters.retries + counters.refused
}

/// An attempt is answered once, whichever of its datagrams comes first or again.
#[test]
fn client_hello_in_two_datagrams_gets_one_answer() {
    let retry = |setup: &mut Setup| setup.always_retry = true;
    let refuse = |setup: &mut Setup| setup.limits.refuse_above = 0;
    for order in [&[0, 1][..], &[1, 0], &[0, 1, 1, 1]] {
        assert_eq!(answers(retry, order), 1, "{order:?}");
        assert_eq!(answers(refuse, order), 1, "{order:?}");
    }
    // Lost on the way: the client repeats its flight, and is answered then.
    assert_eq!(answers(retry, &[1]), 0);
    assert_eq!(answers(retry, &[0, 1, 0, 1]), 2, "the answer was lost");
}

#[test]
fn client_hello_with_lost_beginning_gets_retry_later() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let mut world = metered_world(setup, LINK, Role::Server);
    let flight = flight(&mut world);
    world.deliver(Direction::Up, flight[1].clone());
    let done = world.run_until(Duration::from_secs(5), |world| {
        world.client.connection().is_confirmed()
    });
    assert!(done, "the next flight brings the beginning");
    assert_eq!(world.server.endpoint.counters().retries, 1);
}

/// The same for a refusal by the application. The memory for it is bounded.
#[test]
fn refusal_by_application_is_sent_once() {
    let mut world = metered_world(Setup::new(), LINK, Role::Server);
    world.server.refusing = true;
    let flight = flight(&mut world);
    for packet in flight {
        world.deliver(Direction::Up, packet);
    }
    assert_eq!(world.server.endpoint.counters().refused, 1);
    world.run_for(Duration::from_millis(20));
    match world.client.connection().error() {
        Some(ConnectionError::PeerTransport(error)) => {
            assert_eq!(error.code, Code::CONNECTION_REFUSED);
            assert_eq!(error.reason, "refused by the application");
        }
        other => panic!("{other:?}"),
    }
    let before = world.server.memory();
    world.client.connections.clear();
    for i in 2..1000 {
        world.connect();
        world.run_for(Duration::from_millis(6));
        world.client.connections.clear();
        assert_eq!(world.server.endpoint.counters().refused, i);
    }
    let after = world.server.memory();
    assert!(after <= before + 1024, "{before} bytes, then {after}");
}

/// Connects `count` clients, one after the other; how many were let in.
fn connect(world: &mut World, count: usize) -> Vec<ConnectionHandle> {
    let mut let_in = Vec::new();
    for _ in 0..count {
        let handle = world.connect();
        world.run_until(Duration::from_secs(5), |world| {
            let client = &world.client.connections[&handle];
            client.is_confirmed() || client.error().is_some()
        });
        if world.client.connections[&handle].is_confirmed() {
            let_in.push(handle);
        }
    }
    let_in
}

/// Why the newest client was refused.
fn refusal(world: &mut World) -> String {
    match world.client.connection().error() {
        Some(ConnectionError::PeerTransport(error)) => {
            assert_eq!(error.code, Code::CONNECTION_REFUSED);
            error.reason.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn connections_over_limit_are_refused_until_one_ends() {
    let mut setup = Setup::new();
    setup.limits.connections = 3;
    let mut world = metered_world(setup, LINK, Role::Server);
    let let_in = connect(&mut world, 5);
    assert_eq!(let_in.len(), 3);
    assert_eq!(refusal(&mut world), "too many connections");
    let counters = world.server.endpoint.counters();
    assert_eq!((counters.refused, counters.refused_connections), (2, 2));
    // Those that are there are served.
    let servers: Vec<ConnectionHandle> = world.server.connections.keys().copied().collect();
    for (&client, &server) in let_in.iter().zip(&servers) {
        progresses(&mut world, client, server);
    }
    let now = world.now;
    let first = world.client.connections.get_mut(&let_in[0]);
    first.expect("kept").close(now, 0, b"");
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.server.endpoint.len(), 2);
    assert_eq!(connect(&mut world, 2).len(), 1);
}

#[test]
fn connections_over_source_limit_are_refused() {
    let mut setup = Setup::new();
    setup.limits.connections_per_source = 2;
    let mut world = metered_world(setup, LINK, Role::Server);
    let let_in = connect(&mut world, 4);
    assert_eq!(let_in.len(), 2);
    assert_eq!(
        refusal(&mut world),
        "too many connections from this address"
    );
    // Another address is another source.
    world.client.address = "10.0.1.1:5000".parse().expect("an address");
    assert_eq!(connect(&mut world, 1).len(), 1);
    world.client.address = "10.0.0.1:5000".parse().expect("an address");
    let now = world.now;
    let first = world.client.connections.get_mut(&let_in[0]);
    first.expect("kept").close(now, 0, b"");
    world.run_for(Duration::from_secs(3));
    assert_eq!(connect(&mut world, 2).len(), 1);
}

#[test]
fn trusted_source_has_no_source_limit() {
    let mut setup = Setup::new();
    setup.limits.connections_per_source = 2;
    setup.limits.trusted = vec!["10.0.0.0/24".parse().expect("a prefix")];
    let mut world = metered_world(setup, LINK, Role::Server);
    assert_eq!(connect(&mut world, 10).len(), 10);
}

#[test]
fn refusals_over_rate_limit_are_not_sent() {
    let mut setup = Setup::new();
    setup.limits.connections = 0;
    setup.limits.refusals_per_second = 5;
    let mut world = metered_world(setup, LINK, Role::Server);
    flood(&mut world, 100);
    let counters = world.server.endpoint.counters();
    assert_eq!(counters.refused_connections, 5);
    assert_eq!(counters.refusals_withheld, 95);
    assert_eq!(counters.dropped, 95);
}

/// The same where the server has room, and the source has none.
#[test]
fn refusals_of_limited_sources_over_rate_limit_are_not_sent() {
    for handshakes in [false, true] {
        let mut setup = Setup::new();
        if handshakes {
            setup.limits.per_source = 0;
        } else {
            setup.limits.connections_per_source = 0;
        }
        setup.limits.refusals_per_second = 5;
        let mut world = metered_world(setup, LINK, Role::Server);
        flood(&mut world, 100);
        let counters = world.server.endpoint.counters();
        let refused = (counters.refused_handshakes, counters.refused_connections);
        assert_eq!(refused, if handshakes { (5, 0) } else { (0, 5) });
        assert_eq!((counters.refused, counters.accepted), (5, 0));
        assert_eq!(counters.refusals_withheld, 95);
        assert_eq!(counters.dropped, 95);
    }
}
