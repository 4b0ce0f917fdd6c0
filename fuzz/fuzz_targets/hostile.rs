//! A peer with genuine keys that says whatever the input says, in packets of
//! every type, at any time of the connection.
//!
//! The victim neither panics nor spins nor holds more memory than it should.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::connection::Forgery;
use clearway_quic::wire::PacketKind;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/quic/tests/it/common/mod.rs"]
mod common;
use common::{Setup, World, path};

static SETUP: LazyLock<Setup> = LazyLock::new(Setup::new);

#[derive(arbitrary::Arbitrary, Debug)]
struct Blow<'a> {
    kind: u8,
    skip: u8,
    flip: bool,
    update: bool,
    /// Milliseconds to wait before it.
    wait: u8,
    payload: &'a [u8],
}

fuzz_target!(|input: (bool, u8, Vec<Blow<'_>>)| {
    let (server_is_hostile, seed, blows) = input;
    let mut setup = SETUP.clone();
    setup.sessions = std::sync::Arc::new(clearway_quic::crypto::ClientSessions::new(1));
    let mut world = World::new(setup, path("rate=50M delay=5ms", 1), u64::from(seed));
    world.connect();
    world.flush();
    for blow in blows.into_iter().take(64) {
        if blow.wait > 0 {
            world.run_for(Duration::from_millis(u64::from(blow.wait)));
        }
        strike(&mut world, server_is_hostile, &blow);
        let victims = if server_is_hostile {
            &world.client
        } else {
            &world.server
        };
        for victim in victims.connections.values() {
            assert!(victim.memory() < 8 << 20, "{} bytes", victim.memory());
        }
    }
    world.run_for(Duration::from_secs(100));
    assert!(world.steps < 100_000, "{} steps", world.steps);
});

fn strike(world: &mut World, server_is_hostile: bool, blow: &Blow<'_>) {
    let (now, client, server) = (world.now, world.client.address, world.server.address);
    let (hostile, direction, src, dst) = if server_is_hostile {
        (&mut world.server, Direction::Down, server, client)
    } else {
        (&mut world.client, Direction::Up, client, server)
    };
    let Some(connection) = hostile.connections.values_mut().next() else {
        return;
    };
    if blow.update {
        connection.force_key_update();
    }
    let kind = match blow.kind % 6 {
        0 => PacketKind::Initial,
        1 => PacketKind::ZeroRtt,
        2 => PacketKind::Handshake,
        _ => PacketKind::OneRtt,
    };
    let payload = &blow.payload[..blow.payload.len().min(1300)];
    let packet = connection.forge(
        now,
        &Forgery {
            skip: u64::from(blow.skip % 4),
            flip: if blow.flip { 0x0c } else { 0 },
            ..Forgery::new(kind, payload)
        },
    );
    if let Some(packet) = packet {
        world.deliver(direction, Packet::new(src, dst, packet));
    }
}
