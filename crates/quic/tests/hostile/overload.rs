//! More handshakes than the server wants (RFC 9000 §8.1.2, §21.5).

use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::connection::ConnectionError;
use clearway_quic::endpoint::Handle;
use clearway_quic::error::Code;
use clearway_quic::stream::Directionality;

use crate::common::{Setup, World};
use crate::duel::{LINK, weighed};

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
fn progresses(world: &mut World, client: Handle, server: Handle) {
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
fn above_the_budget_retry_and_above_the_hard_limit_refusal() {
    let mut world = weighed(setup(20, 30), LINK, Role::Server);
    world.handshake();
    let live = |map: &std::collections::BTreeMap<Handle, _>| *map.keys().next().expect("one");
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
fn above_the_hard_limit_refusal() {
    let mut world = weighed(setup(1000, 30), LINK, Role::Server);
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
