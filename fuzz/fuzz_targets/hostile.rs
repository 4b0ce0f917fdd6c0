//! A peer with valid keys that sends arbitrary frames, in packets of every type, from several
//! addresses, at any time of the connection; an attacker who replays its packets from elsewhere;
//! sockets that fail; clocks that jump.
//!
//! The victim does not panic, does not loop, stays within its memory limit, and its accounting adds
//! up.
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
struct HostilePacket<'a> {
    kind: u8,
    skip: u8,
    flip: bool,
    update: bool,
    /// Milliseconds to wait before the packet.
    wait: u8,
    /// The source address of the packet, by index.
    from: u8,
    /// An earlier packet to send again from the same address.
    replay: Option<u8>,
    event: Event,
    payload: &'a [u8],
}

/// What else happens at the victim before the packet.
#[derive(arbitrary::Arbitrary, Clone, Copy, Debug)]
enum Event {
    Nothing,
    Writes(u16),
    Reads,
    /// The victim, a client, moves to another address.
    Moves(u8),
    RotatesIds,
    /// The socket rejects this many trains, as too large or for another reason.
    Refused(u8, bool),
    /// Seconds pass without the victim running: every timer is late.
    Jump(u8),
    UpdatesKeys,
}

/// Number of source addresses of the hostile peer.
const ADDRESSES: u8 = 4;

/// Number of packets kept for replay.
const KEPT: usize = 64;

fuzz_target!(|input: (bool, u8, Vec<HostilePacket<'_>>)| {
    let (server_is_hostile, seed, packets) = input;
    let mut setup = SETUP.clone();
    setup.sessions = std::sync::Arc::new(clearway_quic::crypto::ClientSessions::new(1));
    let mut world = World::new(setup, path("rate=50M delay=5ms", 1), u64::from(seed));
    world.connect();
    world.flush();
    let mut sent = Vec::new();
    for packet in packets.into_iter().take(64) {
        if packet.wait > 0 {
            world.run_for(Duration::from_millis(u64::from(packet.wait)));
        }
        perform(&mut world, server_is_hostile, packet.event);
        send_hostile(&mut world, server_is_hostile, &packet, &mut sent);
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

fn perform(world: &mut World, server_is_hostile: bool, event: Event) {
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
                // Any error is valid, depending on what the peer did to the stream.
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
            // An update may also be too early after the last one.
            let _ = victim.update_keys(now);
        }
    }
}

fn send_hostile(
    world: &mut World,
    server_is_hostile: bool,
    packet: &HostilePacket<'_>,
    sent: &mut Vec<Vec<u8>>,
) {
    let (now, client, server) = (world.now, world.client.address, world.server.address);
    let (hostile, direction, src, dst) = if server_is_hostile {
        (&mut world.server, Direction::Down, server, client)
    } else {
        (&mut world.client, Direction::Up, client, server)
    };
    let Some(connection) = hostile.connections.values_mut().next() else {
        return;
    };
    if packet.update {
        connection.force_key_update();
    }
    let kind = match packet.kind % 6 {
        0 => PacketKind::Initial,
        1 => PacketKind::ZeroRtt,
        2 => PacketKind::Handshake,
        _ => PacketKind::OneRtt,
    };
    let payload = &packet.payload[..packet.payload.len().min(1300)];
    let forged = connection.forge(
        now,
        &Forgery {
            skip: u64::from(packet.skip % 4),
            flip: if packet.flip { 0x0c } else { 0 },
            ..Forgery::new(kind, payload)
        },
    );
    let from = |n: u8| match n % ADDRESSES {
        0 => src,
        n => SocketAddr::from(([198, 51, 100, n], 9000)),
    };
    let replay = packet.replay.map(|which| usize::from(which));
    if let Some(earlier) = replay.and_then(|which| sent.get(which % KEPT)) {
        world.deliver(
            direction,
            Packet::new(from(packet.from.wrapping_add(1)), dst, earlier.clone()),
        );
    }
    if let Some(forged) = forged {
        if sent.len() < KEPT {
            sent.push(forged.clone());
        }
        world.deliver(direction, Packet::new(from(packet.from), dst, forged));
    }
}
