//! A peer with genuine keys that says whatever the input says, in packets of
//! every type, from several addresses, at any time of the connection; somebody
//! who replays its packets from elsewhere; sockets that refuse; clocks that jump.
//!
//! The victim neither panics nor spins nor holds more memory than it should,
//! and its ledger adds up.
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::connection::Forgery;
use clearway_quic::stream::Directionality;
use clearway_quic::wire::PacketKind;
use libfuzzer_sys::fuzz_target;

use clearway_testing::SocketFault;
use clearway_testing::{Setup, World, path};

static SETUP: LazyLock<Setup> = LazyLock::new(Setup::new);

#[derive(arbitrary::Arbitrary, Debug)]
struct HostileEvent<'a> {
    kind: u8,
    skip: u8,
    flip: bool,
    update: bool,
    /// Milliseconds to wait before it.
    wait: u8,
    /// Which of several addresses it comes from.
    from: u8,
    /// Send this one of the earlier packets again, from there, too.
    replay: Option<u8>,
    event: Event,
    payload: &'a [u8],
}

/// What else happens before it, at the victim.
#[derive(arbitrary::Arbitrary, Clone, Copy, Debug)]
enum Event {
    Nothing,
    Writes(u16),
    Reads,
    /// To another address of its own (a client).
    Moves(u8),
    RotatesIds,
    /// The socket refuses so many trains, as too large or for any other reason.
    Refused(u8, bool),
    /// Seconds pass at once: every timer is late.
    Jump(u8),
    UpdatesKeys,
}

/// Addresses that the hostile peer's packets come from.
const ADDRESSES: u8 = 4;

/// Packets kept for replay.
const KEPT: usize = 64;

fuzz_target!(|input: (bool, u8, Vec<HostileEvent<'_>>)| {
    let (server_is_hostile, seed, hostile_events) = input;
    let mut setup = SETUP.clone();
    setup.sessions = std::sync::Arc::new(clearway_quic::crypto::ClientSessions::new(1));
    let mut world = World::new(setup, path("rate=50M delay=5ms", 1), u64::from(seed));
    world.connect();
    world.flush();
    let mut sent = Vec::new();
    for hostile_event in hostile_events.into_iter().take(64) {
        if hostile_event.wait > 0 {
            world.run_for(Duration::from_millis(u64::from(hostile_event.wait)));
        }
        happen(&mut world, server_is_hostile, hostile_event.event);
        strike(&mut world, server_is_hostile, &hostile_event, &mut sent);
        world.flush();
        let victims = if server_is_hostile {
            &world.client
        } else {
            &world.server
        };
        for victim in victims.connections.values() {
            victim.check_invariants();
            assert!(victim.memory() < 8 << 20, "{} bytes", victim.memory());
        }
    }
    world.run_for(Duration::from_secs(100));
    assert!(world.steps < 100_000, "{} steps", world.steps);
});

fn happen(world: &mut World, server_is_hostile: bool, event: Event) {
    let now = world.now;
    let victims = if server_is_hostile {
        &mut world.client
    } else {
        &mut world.server
    };
    if let Event::Refused(count, too_large) = event {
        let fault = [SocketFault::Lost, SocketFault::TooLarge][usize::from(too_large)];
        victims.faults = (count % 8, fault);
    }
    if let Event::Jump(seconds) = event {
        world.now += Duration::from_secs(u64::from(seconds));
        return;
    }
    let Some(victim) = victims.connections.values_mut().next() else {
        return;
    };
    match event {
        Event::Nothing | Event::Refused(..) | Event::Jump(_) => {}
        Event::Writes(len) => {
            let opened = victim.open(Directionality::Bidirectional);
            let accepted = victim.accept(Directionality::Bidirectional);
            for id in opened.into_iter().chain(accepted) {
                // Whatever the peer has done to the stream is an answer.
                let _ = victim.write(id, &vec![0x5a; usize::from(len)]);
            }
        }
        Event::Reads => {
            while let Some(id) = victim.accept(Directionality::Unidirectional) {
                while let Ok(Some(_)) = victim.read_chunk(id, usize::MAX) {}
            }
            while victim.recv_datagram().is_some() {}
        }
        Event::Moves(n) => {
            let address: SocketAddr = ([10, 0, 1, n], 5000).into();
            if victim.migrate(now, Some(address.ip())).is_ok() {
                victims.address = address;
            }
        }
        Event::RotatesIds if !victim.is_handshaking() => victim.rotate_connection_ids(),
        Event::RotatesIds => {}
        Event::UpdatesKeys => {
            // Too soon after the last one is an answer, too.
            let _ = victim.update_keys(now);
        }
    }
}

fn strike(world: &mut World, server_is_hostile: bool, hostile_event: &HostileEvent<'_>, sent: &mut Vec<Vec<u8>>) {
    let (now, client, server) = (world.now, world.client.address, world.server.address);
    let (hostile, direction, src, dst) = if server_is_hostile {
        (&mut world.server, Direction::Down, server, client)
    } else {
        (&mut world.client, Direction::Up, client, server)
    };
    let Some(connection) = hostile.connections.values_mut().next() else {
        return;
    };
    if hostile_event.update {
        connection.force_key_update();
    }
    let kind = match hostile_event.kind % 6 {
        0 => PacketKind::Initial,
        1 => PacketKind::ZeroRtt,
        2 => PacketKind::Handshake,
        _ => PacketKind::OneRtt,
    };
    let payload = &hostile_event.payload[..hostile_event.payload.len().min(1300)];
    let packet = connection.forge(
        now,
        &Forgery {
            skip: u64::from(hostile_event.skip % 4),
            flip: if hostile_event.flip { 0x0c } else { 0 },
            ..Forgery::new(kind, payload)
        },
    );
    let from = |n: u8| match n % ADDRESSES {
        0 => src,
        n => SocketAddr::from(([198, 51, 100, n], 9000)),
    };
    let replay = hostile_event.replay.map(|which| usize::from(which));
    if let Some(packet) = replay.and_then(|which| sent.get(which % KEPT)) {
        world.deliver(
            direction,
            Packet::new(from(hostile_event.from.wrapping_add(1)), dst, packet.clone()),
        );
    }
    if let Some(packet) = packet {
        if sent.len() < KEPT {
            sent.push(packet.clone());
        }
        world.deliver(direction, Packet::new(from(hostile_event.from), dst, packet));
    }
}
