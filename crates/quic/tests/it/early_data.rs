//! Resumption and 0-RTT: accepted or rejected, the data arrives.

use std::time::Duration;

use clearway_quic::connection::{ConnectOptions, Event};
use clearway_quic::stream::{Directionality, ReadError, StreamId};
use clearway_quic::wire::Version;
use clearway_testing::{Setup, World, path, server_id};

const CLEAN: &str = "rate=100M delay=20ms queue=250";

/// A first connection that leaves a ticket behind.
fn acquainted(seed: u64) -> World {
    let mut world = World::new(Setup::new(), path(CLEAN, seed), seed);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    let now = world.now;
    world.client.connection().close(now, 0, b"");
    world.run_for(Duration::from_secs(2));
    world
}

/// Connects again and writes before anything was received.
fn write_early(world: &mut World) -> StreamId {
    world.connect();
    let client = world.client.connection();
    assert!(client.has_zero_rtt());
    let id = client
        .open(Directionality::Unidirectional)
        .expect("remembered limits");
    assert_eq!(client.write(id, &[9; 5000]), Ok(5000));
    client.finish(id).expect("finishes");
    id
}

/// What the newest server connection reads of the stream; `None` = not over yet.
fn read_to_end(world: &mut World, id: StreamId, read: &mut usize) -> bool {
    let server = world.server.connection();
    let _ = server.accept(Directionality::Unidirectional);
    loop {
        match server.read_chunk(id, usize::MAX) {
            Ok(Some(chunk)) => {
                assert!(chunk.iter().all(|byte| *byte == 9));
                *read += chunk.len();
            }
            Ok(None) => return true,
            Err(ReadError::Blocked | ReadError::Unknown) => return false,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn was_rejected(world: &World) -> bool {
    let events = world.client.app.events.values().flatten();
    events
        .into_iter()
        .any(|event| *event == Event::ZeroRttRejected)
}

#[test]
fn early_data_arrives_with_first_flight() {
    let mut world = acquainted(1);
    let begin = world.now;
    let servers = world.server.connections.len();
    let id = write_early(&mut world);
    let mut read = 0;
    assert!(world.run_until(Duration::from_secs(5), |world| {
        world.server.connections.len() > servers && read_to_end(world, id, &mut read)
    }));
    assert_eq!(read, 5000);
    assert!(
        world.now - begin < Duration::from_millis(2 * 20 + 10) + Duration::from_millis(30),
        "it waited for the handshake: {:?}",
        world.now - begin
    );
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.client.connection().zero_rtt_accepted(), Some(true));
    assert!(!was_rejected(&world));
}

#[test]
fn rejected_early_data_is_resent() {
    let mut world = acquainted(2);
    // A server with other ticket keys, such as one restarted.
    world.setup.server_crypto = Setup::new().server_crypto;
    world.restart_server(50);
    let id = write_early(&mut world);
    let mut read = 0;
    assert!(world.run_until(Duration::from_secs(5), |world| {
        !world.server.connections.is_empty() && read_to_end(world, id, &mut read)
    }));
    assert_eq!(read, 5000, "every byte, once");
    world.run_for(Duration::from_secs(2));
    let now = world.now;
    let client = world.client.connection();
    assert_eq!(client.zero_rtt_accepted(), Some(false));
    assert_eq!(
        client.stats(now).in_flight,
        0,
        "nothing of 0-RTT is left in flight"
    );
    client.check_invariants();
    assert!(was_rejected(&world));
}

#[test]
fn lost_early_data_is_retransmitted() {
    for seed in 0..30 {
        let mut world = acquainted(3);
        let servers = world.server.connections.len();
        world.path = path("rate=100M delay=20ms queue=250 loss=30%", seed);
        let id = write_early(&mut world);
        let mut read = 0;
        let done = world.run_until(Duration::from_secs(60), |world| {
            world.server.connections.len() > servers && read_to_end(world, id, &mut read)
        });
        assert!(done && read == 5000, "seed {seed}: {read}");
    }
}

#[test]
fn early_data_is_resent_after_retry() {
    let mut world = acquainted(4);
    world.setup.always_retry = true;
    let name = server_id();
    let token = world.setup.sessions.take_token(&name, Version::V1);
    assert!(token.is_some(), "a token would have saved the Retry");
    world.restart_server(51);
    let id = write_early(&mut world);
    let mut read = 0;
    assert!(world.run_until(Duration::from_secs(5), |world| {
        !world.server.connections.is_empty() && read_to_end(world, id, &mut read)
    }));
    assert_eq!(read, 5000);
    assert!(world.server.endpoint.counters().retries > 0);
}

/// Another port of the same host may be another server: it gets neither ticket nor token.
#[test]
fn ticket_and_token_are_not_used_on_another_port() {
    let mut world = acquainted(5);
    let sessions = world.setup.sessions.clone();
    let before = sessions.stored(&server_id());
    assert!(before.tickets > 0 && before.tokens > 0, "{before:?}");
    let begin = |world: &mut World, port| {
        let mut remote = world.server.address;
        remote.set_port(port);
        let options = ConnectOptions {
            remote,
            local_ip: None,
            server_name: "localhost".try_into().expect("a name"),
            crypto: world.setup.client_crypto.clone(),
            sessions: Some(world.setup.sessions.clone()),
        };
        let begun = world.client.endpoint.connect(world.now, options);
        begun.expect("connects").1
    };
    let other = begin(&mut world, 8443);
    assert!(!other.has_zero_rtt());
    assert_eq!(sessions.stored(&server_id()), before);
    let same = begin(&mut world, 443);
    assert!(same.has_zero_rtt());
    let left = sessions.stored(&server_id());
    assert_eq!(left.tickets, before.tickets - 1);
    assert_eq!(left.tokens, before.tokens - 1);
}
