//! The cost of an idle connection: a server has far more of them than of busy ones. Keys and TLS are not in these figures (`MemoryUsage` says why);
//! `cargo run --release -p clearway --example idle` measures all of it.

use std::time::Duration;

use clearway_links::Packet;
use clearway_quic::connection::{Connection, MemoryUsage};
use clearway_quic::stream::{Directionality, Priority};
use clearway_testing::{Setup, World, download, path};

const CLEAN: &str = "rate=20M delay=10ms queue=1000";

/// Longer than a connection waits before it rests.
const QUIET: Duration = Duration::from_secs(3);

/// Bytes of an idle connection at a server, all parts.
const SERVER: usize = 6_080;

/// Bytes of it that the connection is made of itself.
const FIXED: usize = 4_136;

fn idle() -> World {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 1);
    world.handshake();
    world.run_for(QUIET);
    world
}

#[test]
fn connection_type_stays_small() {
    let fixed = size_of::<Connection>();
    assert!(fixed <= FIXED, "{fixed} bytes");
}

#[test]
fn idle_connection_uses_little_memory() {
    let mut world = idle();
    let memory = world.server.connection().memory_usage();
    assert!(
        memory.total() <= SERVER,
        "{} bytes: {memory:?}",
        memory.total()
    );
    for (part, bytes) in [
        ("received CRYPTO", memory.crypto),
        ("datagrams", memory.datagrams_in + memory.datagrams_out),
        ("undecryptable packets", memory.undecryptable),
        ("events", memory.events),
    ] {
        assert_eq!(bytes, 0, "{part}: {memory:?}");
    }
}

#[test]
fn idle_connection_after_traffic_uses_little_memory() {
    let mut world = idle();
    let fresh = world.server.connection().memory_usage();
    assert!(download(&mut world, 300_000, Duration::from_secs(10)));
    let busy = world.server.connection().memory_usage();
    world.run_for(QUIET);
    let rested = world.server.connection().memory_usage();
    // The server has not read the request: the stream is not over.
    let other = |memory: MemoryUsage| memory.total() - memory.streams;
    assert!(other(busy) > other(fresh) + 1024, "{busy:?}");
    // Numbers left out on purpose are remembered: sixteen at most.
    assert!(other(rested) <= other(fresh) + 128, "{fresh:?}, {rested:?}");
}

#[test]
fn idle_connection_wakes_once_to_rest_and_once_to_end() {
    let mut world = idle();
    let now = world.now;
    let server = world.server.connection();
    let next = server.next_timeout().expect("the idle timeout");
    assert!(next - now > Duration::from_secs(20), "{:?}", next - now);
}

#[test]
fn wakeups_are_multiples_that_many_connections_share() {
    let mut world = idle();
    let millisecond = 1_000_000;
    let server = world.server.connection();
    let (timeout, wakeup) = (server.next_timeout(), server.next_wakeup());
    let (timeout, wakeup) = (timeout.unwrap().as_nanos(), wakeup.unwrap().as_nanos());
    assert_eq!(wakeup, timeout.next_multiple_of(millisecond));
    assert_ne!(wakeup, timeout);

    // Nothing but memory waits for the end of a closed connection.
    let now = world.now;
    let server = world.server.connection();
    server.close(now, 0, b"");
    let timeout = server.next_timeout().unwrap().as_nanos();
    let wakeup = server.next_wakeup().unwrap().as_nanos();
    assert_eq!(wakeup, timeout.next_multiple_of(16 * millisecond));
}

#[test]
fn rested_connection_transfers_data() {
    let mut world = idle();
    for _ in 0..3 {
        assert!(download(&mut world, 100_000, Duration::from_secs(5)));
        world.run_for(QUIET);
    }
    let client = world.client.connection();
    let id = client
        .open(Directionality::Bidirectional)
        .expect("a stream");
    let last = Priority {
        urgency: 7,
        incremental: false,
    };
    client.set_priority(id, last);
    client.write(id, b"late").expect("writes");
    world.run_for(QUIET);
    let server = world.server.connection();
    assert_eq!(server.accept(Directionality::Bidirectional), Some(id));
    assert_eq!(server.stats(world.now).counters.packets_lost, 0);
}

/// A packet of the client's that has not reached the server, changed on its way.
fn forge(world: &mut World) -> Packet {
    let mut datagram = vec![0; 1_500];
    let client = world.client.connection();
    client.ping();
    let sent = client
        .transmit(world.now, &mut datagram, 1)
        .expect("a PING");
    datagram.truncate(sent.len);
    *datagram.last_mut().expect("a packet") ^= 1;
    Packet::new(world.client.address, world.server.address, datagram)
}

#[test]
fn rested_connection_survives_forged_packets_and_updates_keys() {
    let mut world = idle();
    for round in 1..=3 {
        // The server has no ciphers: the first of these has them made.
        for _ in 0..10 {
            let (now, forged) = (world.now, forge(&mut world));
            assert!(world.server.receive(now, forged).is_none());
        }
        let now = world.now;
        world.client.connection().update_keys(now).expect("updates");
        assert!(download(&mut world, 100_000, Duration::from_secs(5)));
        world.run_for(QUIET);
        // The server's first packet after a rest is of new keys, too.
        let now = world.now;
        world.server.connection().update_keys(now).expect("updates");
        world.server.connection().ping();
        world.run_for(QUIET);
        // Whoever updates next has had an acknowledgement in the newest keys.
        world.client.connection().ping();
        world.run_for(QUIET);
        let stats = world.server.connection().stats(world.now).counters;
        // Its own and its answers to the client.
        assert_eq!(stats.key_updates, 2 * round);
        assert_eq!(stats.peer_key_updates, round);
        assert_eq!(stats.packets_dropped, 10 * round);
    }
    assert!(world.server.connection().error().is_none());
}
