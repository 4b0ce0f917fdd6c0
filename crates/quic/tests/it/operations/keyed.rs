//! A peer that has the keys and sends any frames, valid, invalid or truncated, from several addresses, in
//! packets of every type and in any order.
//!
//! The victim may close the connection. It never panics, its ledger is consistent, its memory stays
//! bounded, and it becomes idle.

use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::connection::Forgery;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::{PacketKind, Writer};
use proptest::prelude::*;

use clearway_testing::{Host, Setup, SocketFault, World, path};

/// What a victim may hold: its receive and send budgets and what it keeps for later.
const MEMORY_BOUND: usize = 8 << 20;

/// Steps of a run, at most: a victim that can be made to spin is stopped.
const MAX_STEPS: u64 = 100_000;

/// One thing that the hostile peer, or the network between, does.
#[derive(Clone, Debug)]
enum HostileEvent {
    /// A packet of these frames from one of three addresses.
    Packet {
        kind: PacketKind,
        frames: Vec<Vec<u8>>,
        /// Bytes cut from the end of the payload.
        cut: usize,
        skip: u64,
        reserved_bits: bool,
        from: u8,
    },
    /// An earlier packet again, from one of three addresses.
    Replay { which: usize, from: u8 },
    /// The next packet uses new keys.
    UpdateKeys,
    /// The victim writes to all of its streams, and opens one more.
    VictimWrites(usize),
    /// The victim reads what is there.
    VictimReads,
    /// The victim moves (if it is the client).
    VictimMoves(u8),
    /// The victim retires the connection IDs in use.
    VictimRotates,
    /// The victim's socket refuses so many trains.
    Refusal(u8, bool),
    /// Milliseconds pass, in which both ends go on as usual.
    Wait(u64),
    /// The clock jumps: every timer is late.
    Jump(u64),
}

/// Integers at which something changes.
fn integer() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..16u64,
        2 => 16..20_000u64,
        1 => prop::sample::select(vec![
            63, 64, 16_383, 16_384, 65_535, 65_536, (1 << 20) - 1, 1 << 20, (1 << 30) - 1,
            1 << 30, (1 << 60) - 1, 1 << 60, (1 << 60) + 1, (1 << 62) - 2, (1 << 62) - 1,
        ]),
    ]
}

/// Every type of frame there is, and some that are none.
fn frame_type() -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => 0..0x20u64,
        2 => prop::sample::select(vec![0x30, 0x31, 0xaf]),
        1 => integer(),
    ]
}

/// A type, some integers, and some bytes: what all frames are made of.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let integers = prop::collection::vec(integer(), 0..6);
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    (frame_type(), integers, bytes).prop_map(|(kind, integers, bytes)| {
        let mut out = vec![0; 8 * 8 + bytes.len()];
        let mut writer = Writer::new(&mut out);
        writer.varint(kind);
        integers.into_iter().for_each(|value| writer.varint(value));
        writer.bytes(&bytes);
        writer.filled().to_vec()
    })
}

fn kind() -> impl Strategy<Value = PacketKind> {
    prop_oneof![
        1 => Just(PacketKind::Initial),
        1 => Just(PacketKind::ZeroRtt),
        1 => Just(PacketKind::Handshake),
        9 => Just(PacketKind::OneRtt),
    ]
}

fn event() -> impl Strategy<Value = HostileEvent> {
    let packet = (
        kind(),
        prop::collection::vec(frame(), 1..4),
        prop_oneof![4 => Just(0), 1 => 0..50usize],
        0..3u64,
        prop::bool::weighted(0.02),
        prop_oneof![3 => Just(0), 2 => 0..3u8],
    );
    prop_oneof![
        12 => packet.prop_map(|(kind, frames, cut, skip, reserved_bits, from)| HostileEvent::Packet {
            kind, frames, cut, skip, reserved_bits, from,
        }),
        3 => (0..32usize, 0..3u8).prop_map(|(which, from)| HostileEvent::Replay { which, from }),
        1 => Just(HostileEvent::UpdateKeys),
        3 => (0..40_000usize).prop_map(HostileEvent::VictimWrites),
        2 => Just(HostileEvent::VictimReads),
        1 => any::<u8>().prop_map(HostileEvent::VictimMoves),
        1 => Just(HostileEvent::VictimRotates),
        1 => (1..4u8, any::<bool>()).prop_map(|(count, large)| HostileEvent::Refusal(count, large)),
        6 => (0..300u64).prop_map(HostileEvent::Wait),
        1 => (0..60_000u64).prop_map(HostileEvent::Jump),
    ]
}

struct Attack {
    world: World,
    hostile: Role,
    sent: Vec<Packet>,
    streams: Vec<StreamId>,
}

impl Attack {
    fn new(seed: u64, hostile: Role, established: bool) -> Self {
        let mut setup = Setup::new();
        for config in [&mut setup.client, &mut setup.server] {
            config.streams.receive_budget = 1 << 20;
        }
        let mut world = World::new(setup, path("rate=50M delay=5ms", seed), seed);
        if established {
            world.handshake();
        } else {
            world.connect();
            world.flush();
        }
        Self {
            world,
            hostile,
            sent: Vec::new(),
            streams: Vec::new(),
        }
    }

    fn hostile(&mut self) -> &mut Host {
        match self.hostile {
            Role::Client => &mut self.world.client,
            Role::Server => &mut self.world.server,
        }
    }

    fn victim(&mut self) -> &mut Host {
        match self.hostile {
            Role::Client => &mut self.world.server,
            Role::Server => &mut self.world.client,
        }
    }

    fn apply(&mut self, event: &HostileEvent) {
        let now = self.world.now;
        match *event {
            HostileEvent::Packet {
                kind,
                ref frames,
                cut,
                skip,
                reserved_bits,
                from,
            } => {
                let mut payload = frames.concat();
                payload.truncate(payload.len().saturating_sub(cut).min(1200));
                let forgery = Forgery {
                    skip,
                    flip: if reserved_bits { 0x0c } else { 0 },
                    ..Forgery::new(kind, &payload)
                };
                let packet = self.hostile().first().and_then(|c| c.forge(now, &forgery));
                if let Some(packet) = packet {
                    self.strike(packet, from);
                }
            }
            HostileEvent::Replay { which, from } => {
                if let Some(packet) = self.sent.get(which).cloned() {
                    self.strike(packet.data, from);
                }
            }
            HostileEvent::UpdateKeys => {
                if let Some(connection) = self.hostile().first() {
                    connection.force_key_update();
                }
            }
            HostileEvent::VictimWrites(len) => self.write(len),
            HostileEvent::VictimReads => self.read(),
            HostileEvent::VictimMoves(n) => {
                let address = format!("10.0.1.{n}:5000").parse().expect("an address");
                if self.hostile == Role::Server
                    && let Some(victim) = self.world.client.first()
                    && victim
                        .migrate(now, Some(std::net::SocketAddr::ip(&address)))
                        .is_ok()
                {
                    self.world.client.address = address;
                }
            }
            HostileEvent::VictimRotates => {
                if let Some(victim) = self.victim().first()
                    && !victim.is_handshaking()
                {
                    victim.rotate_connection_ids();
                }
            }
            HostileEvent::Refusal(count, large) => {
                let fault = [SocketFault::Lost, SocketFault::TooLarge][usize::from(large)];
                self.victim().faults = (count, fault);
            }
            HostileEvent::Wait(millis) => self.world.run_for(Duration::from_millis(millis)),
            HostileEvent::Jump(millis) => self.world.now += Duration::from_millis(millis),
        }
        self.check();
    }

    /// Delivers a packet at once, as if from the `from`th address.
    fn strike(&mut self, data: Vec<u8>, from: u8) {
        let (client, server) = (self.world.client.address, self.world.server.address);
        let (direction, mut src, dst) = match self.hostile {
            Role::Client => (Direction::Up, client, server),
            Role::Server => (Direction::Down, server, client),
        };
        if from > 0 {
            src.set_ip([198, 51, 100, from].into());
        }
        let packet = Packet::new(src, dst, data);
        if self.sent.len() < 32 {
            self.sent.push(packet.clone());
        }
        self.world.deliver(direction, packet);
    }

    fn write(&mut self, len: usize) {
        let data = vec![0x5a; len];
        let mut streams = std::mem::take(&mut self.streams);
        if let Some(victim) = self.victim().first() {
            streams.extend(victim.open(Directionality::Bidirectional));
            streams.extend(victim.accept(Directionality::Bidirectional));
            streams.truncate(16);
            for &id in &streams {
                // Whatever the peer has done to the stream is an answer.
                let _ = victim.write(id, &data);
            }
        }
        self.streams = streams;
    }

    fn read(&mut self) {
        let streams = self.streams.clone();
        if let Some(victim) = self.victim().first() {
            for id in streams {
                while let Ok(Some(_)) = victim.read_chunk(id, usize::MAX) {}
            }
            while victim.recv_datagram().is_some() {}
        }
    }

    fn check(&mut self) {
        self.world.flush();
        let host = self.victim();
        for victim in host.connections.values() {
            victim.check_invariants();
            let memory = victim.memory();
            assert!(memory <= MEMORY_BOUND, "the victim holds {memory} bytes");
        }
        assert!(self.world.steps < MAX_STEPS, "{} steps", self.world.steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(600),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn peer_with_keys_cannot_panic_or_exhaust_victim(
        seed in any::<u32>(),
        hostile in prop::sample::select(vec![Role::Client, Role::Server]),
        established in prop::bool::weighted(0.8),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut attack = Attack::new(u64::from(seed), hostile, established);
        for event in &events {
            attack.apply(event);
        }
        // Closed or alive, it comes to rest.
        attack.world.run_for(Duration::from_secs(200));
        attack.check();
    }
}
