//! Paths under attack: addresses that flap, copies of genuine packets from
//! elsewhere, floods of probes (RFC 9000 §8.2, §9, §21.5).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::connection::Forgery;
use clearway_quic::event::{Observer, TraceEvent};
use clearway_quic::wire::{Frame, Frames, PacketKind};
use clearway_quic::{Instant, Role};

use crate::hostile::pair::{HostilePair, LINK, bytes};
use clearway_testing::{Setup, World, download, download_watched, path};

const PING: &[u8] = &[0x01];

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn challenge(n: u8) -> Vec<u8> {
    bytes(&Frame::PathChallenge([n; 8]))
}

impl HostilePair {
    /// A 1-RTT packet of the client's with these frames arrives from `source`.
    fn say_from(&mut self, source: SocketAddr, payload: &[u8]) {
        let packet = self.forge(&Forgery::new(PacketKind::OneRtt, payload));
        let to = self.world.server.address;
        self.world
            .deliver(Direction::Up, Packet::new(source, to, packet));
    }

    /// Nothing reaches `address` any more.
    fn cut_off(&mut self, address: SocketAddr) {
        self.world.filter = Some(Box::new(move |_, packet: &mut Packet| {
            packet.dst != address
        }));
    }

    fn server_migrations(&mut self) -> u64 {
        let now = self.world.now;
        let server = self.world.server.connection();
        server.stats(now).counters.migrations
    }
}

/// The PATH_RESPONSE frames that a connection sends.
#[derive(Clone, Debug, Default)]
struct Responses(Arc<Mutex<Vec<[u8; 8]>>>);

impl Responses {
    fn sent(&self) -> Vec<[u8; 8]> {
        self.0.lock().expect("one thread").clone()
    }
}

impl Observer for Responses {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::PacketSent { payload, .. } = *event {
            for frame in Frames::new(payload).map_while(Result::ok) {
                if let Frame::PathResponse(data) = frame {
                    self.0.lock().expect("one thread").push(data);
                }
            }
        }
    }
}

/// A NAT that alternates between two addresses, of which one hears nothing.
#[test]
fn flapping_source_address_keeps_connection() {
    let mut pair = HostilePair::new(Role::Client);
    let (home, other) = (pair.world.client.address, address("10.9.9.9:9"));
    pair.cut_off(other);
    for pause in [0, 1, 10, 300, 1_000, 4_000, 7_000] {
        for source in [other, home, other, home] {
            pair.say_from(source, PING);
            pair.world.run_for(Duration::from_millis(pause));
        }
    }
    pair.world.run_for(Duration::from_secs(10));
    assert_eq!(pair.victim().remote_address(), home);
    pair.still_serves();
}

/// Somebody who saw a genuine packet sends a copy of it from another address, and
/// the copy arrives first. The server asks the old address too, and what the
/// client answers with leads it back in two round trips (RFC 9000 §9.3.3).
#[test]
fn migration_caused_by_copied_packet_is_undone_within_two_rtts() {
    let mut world = World::new(Setup::new(), path(LINK, 1), 1);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    let (home, elsewhere) = (world.client.address, address("10.9.9.9:9"));
    let caught = Arc::new(Mutex::new(None));
    let sink = caught.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up {
            sink.lock()
                .expect("one thread")
                .get_or_insert(packet.clone());
        }
        packet.dst != elsewhere
    }));
    world.client.connection().ping();
    world.flush();
    let mut copy = caught.lock().expect("one thread").take().expect("a PING");
    copy.src = elsewhere;
    world.deliver(Direction::Up, copy);
    assert_eq!(world.server.connection().remote_address(), elsewhere);
    // The link's round trip is 10 ms.
    world.run_for(Duration::from_millis(25));
    assert_eq!(world.server.connection().remote_address(), home);
    assert!(download(&mut world, 300_000, Duration::from_secs(2)));
}

/// The same for every packet of two seconds: nothing gets through meanwhile, and
/// everything afterwards.
#[test]
fn copied_packets_from_many_addresses_do_not_end_connection() {
    let mut world = World::new(Setup::new(), path(LINK, 1), 1);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    let home = world.client.address;
    let (begin, mut count) = (world.now, 0_u16);
    let caught = Arc::new(Mutex::new(Vec::new()));
    let sink = caught.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up {
            sink.lock().expect("one thread").push(packet.clone());
        }
        packet.dst == home || direction == Direction::Up
    }));
    let done = download_watched(&mut world, 300_000, Duration::from_secs(20), |world| {
        let packets = core::mem::take(&mut *caught.lock().expect("one thread"));
        if world.now - begin > Duration::from_secs(2) {
            return;
        }
        for mut copy in packets {
            count += 1;
            copy.src = SocketAddr::new(address("10.9.9.9:9").ip(), 1_000 + count);
            world.deliver(Direction::Up, copy);
        }
        world.check();
        let now = world.now;
        assert!(world.server.connection().path_stats(now).count() <= 4);
    });
    assert!(done, "after {count} copies: {:?}", world.now);
    assert!(count > 10, "{count} copies");
    assert_eq!(world.server.connection().remote_address(), home);
}

/// Copies that arrive after the original are nothing at all.
#[test]
fn replayed_packets_from_other_address_are_ignored() {
    let mut world = World::new(Setup::new(), path(LINK, 1), 1);
    let elsewhere = address("10.9.9.9:9");
    let caught = Arc::new(Mutex::new(Vec::new()));
    let sink = caught.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up {
            sink.lock().expect("one thread").push(packet.clone());
        }
        assert_ne!(packet.dst, elsewhere, "an answer");
        true
    }));
    world.handshake();
    assert!(download(&mut world, 300_000, Duration::from_secs(5)));
    world.run_for(Duration::from_millis(100));
    let packets = core::mem::take(&mut *caught.lock().expect("one thread"));
    let long = |packet: &Packet| packet.data[0] & 0x80 != 0;
    let short: Vec<_> = packets.into_iter().filter(|packet| !long(packet)).collect();
    assert!(short.len() > 10);
    for mut copy in short {
        copy.src = elsewhere;
        world.deliver(Direction::Up, copy);
        world.flush();
    }
    let now = world.now;
    let counters = world.server.connection().stats(now).counters;
    assert_eq!(counters.migrations, 0);
}

/// RFC 9000 §8.2.2: each PATH_CHALLENGE is answered, not the last of them.
#[test]
fn two_outstanding_path_challenges_are_both_answered() {
    let mut pair = HostilePair::new(Role::Client);
    let responses = Responses::default();
    pair.victim().set_observer(Box::new(responses.clone()));
    let elsewhere = address("10.9.9.9:9");
    pair.cut_off(elsewhere);
    for source in [pair.world.client.address, elsewhere] {
        pair.say_from(source, &challenge(1));
        pair.say_from(source, &[challenge(2), challenge(3)].concat());
        pair.world.run_for(Duration::from_millis(100));
        let sent = core::mem::take(&mut *responses.0.lock().expect("one thread"));
        assert_eq!(sent, [[1; 8], [2; 8], [3; 8]], "to {source}");
    }
}

/// A thousand at once cost one datagram; the newest are answered, the rest counted.
#[test]
fn thousand_path_challenges_in_one_datagram_get_four_responses() {
    let mut pair = HostilePair::new(Role::Client);
    let responses = Responses::default();
    pair.victim().set_observer(Box::new(responses.clone()));
    let flood: Vec<u8> = (0..=250).flat_map(challenge).collect();
    pair.say(&flood);
    pair.world.run_for(Duration::from_millis(100));
    assert_eq!(responses.sent(), [[247; 8], [248; 8], [249; 8], [250; 8]]);
    let now = pair.world.now;
    let counters = pair.victim().stats(now).counters;
    assert_eq!(counters.unanswered_challenges, 247);
}

/// RFC 9000 §9.3: the highest-numbered *non-probing* packet moves a connection. A
/// probing one that overtakes it changes nothing.
#[test]
fn probe_overtaking_migration_does_not_delay_it() {
    let mut pair = HostilePair::new(Role::Client);
    let other = address("10.9.9.9:9");
    let first = pair.forge(&Forgery::new(PacketKind::OneRtt, PING));
    pair.say_from(other, &challenge(1));
    assert_eq!(pair.server_migrations(), 0, "a probe moves nobody");
    let to = pair.world.server.address;
    let late = Packet::new(other, to, first);
    pair.world.deliver(Direction::Up, late);
    assert_eq!(pair.victim().remote_address(), other);
}

/// A probed address that does not answer is forgotten in time, and so is another
/// that was probed in the same moment, or to which the server had moved in that moment.
#[test]
fn two_paths_failing_at_once_are_both_removed() {
    for first in [challenge(1), PING.to_vec()] {
        let mut pair = HostilePair::new(Role::Client);
        let home = pair.world.client.address;
        pair.world.filter = Some(Box::new(move |_, packet: &mut Packet| {
            packet.src != home || packet.dst.port() == 443
        }));
        pair.say_from(address("10.9.9.8:8"), &first);
        pair.say_from(address("10.9.9.9:9"), &challenge(1));
        let now = pair.world.now;
        assert_eq!(pair.victim().path_stats(now).count(), 3);
        pair.cut_off(address("10.9.9.8:8"));
        // Late, as on a busy host: both have failed since the last call.
        let late = now + Duration::from_secs(6);
        pair.victim().handle_timeout(late);
        assert_eq!(pair.victim().path_stats(late).count(), 1);
        assert_eq!(pair.victim().remote_address(), home);
        pair.world.run_for(Duration::from_secs(6));
        // Nor do loss recovery and connection IDs know them any more.
        pair.victim().check_invariants();
        pair.still_serves();
    }
}

/// An address of the server's own host is not where its client went (RFC 9000
/// §21.5.6), nor is port 0.
#[test]
fn migration_to_loopback_or_port_zero_is_ignored() {
    let mut pair = HostilePair::new(Role::Client);
    for source in ["127.0.0.1:53", "10.9.9.9:0", "224.0.0.1:5353"] {
        pair.say_from(address(source), PING);
        pair.say_from(address(source), &challenge(1));
    }
    assert_eq!(pair.server_migrations(), 0);
    let now = pair.world.now;
    assert_eq!(pair.victim().path_stats(now).count(), 1);
    pair.still_serves();
}

/// Only what authenticates tells a client which of its addresses it is reached at.
#[test]
fn garbage_to_other_local_address_does_not_migrate_client() {
    let mut world = World::new(Setup::new(), path(LINK, 1), 1);
    world.connect();
    world.flush();
    let cid = world.client.connection().local_cid();
    let mut garbage = vec![0x40; 100];
    garbage[1..9].copy_from_slice(&cid);
    let elsewhere = address("10.0.0.99:5000");
    world.deliver(
        Direction::Down,
        Packet::new(world.server.address, elsewhere, garbage),
    );
    world.filter = Some(Box::new(move |_, packet: &mut Packet| {
        assert_ne!(packet.src, elsewhere, "sent from a wrong address");
        true
    }));
    assert!(world.run_until(Duration::from_secs(1), |world| {
        world.client.connection().is_confirmed()
    }));
    assert!(download(&mut world, 100_000, Duration::from_secs(2)));
}

/// The PATH_CHALLENGE frames that a connection sends.
#[derive(Clone, Debug, Default)]
struct Challenges(Arc<Mutex<Vec<[u8; 8]>>>);

impl Observer for Challenges {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::PacketSent { payload, .. } = *event {
            for frame in Frames::new(payload).map_while(Result::ok) {
                if let Frame::PathChallenge(data) = frame {
                    self.0.lock().expect("one thread").push(data);
                }
            }
        }
    }
}

/// RFC 9002 §6.2.2: the time until a challenge is answered is the initial RTT of its path, instead of
/// 333 ms, and no sample.
#[test]
fn answered_challenge_sets_initial_rtt_of_its_path() {
    let mut pair = HostilePair::new(Role::Client);
    let (other, sent) = (address("10.9.9.9:9"), Challenges::default());
    pair.victim().set_observer(Box::new(sent.clone()));
    pair.cut_off(other);
    pair.say_from(other, &challenge(1));
    pair.world.flush();
    let data = sent.0.lock().expect("one thread").pop().expect("it asks");
    let rtt = |pair: &mut HostilePair| {
        let now = pair.world.now;
        let mut paths = pair.victim().path_stats(now);
        let path = paths.find(|path| path.remote == other).expect("a path");
        (path.smoothed_rtt, path.min_rtt)
    };
    let initial = Duration::from_millis(333);
    assert_eq!(rtt(&mut pair), (initial, None));
    pair.world.run_for(Duration::from_millis(45));
    // Without an ACK, which would be a sample.
    pair.say_from(other, &bytes(&Frame::PathResponse([9; 8])));
    assert_eq!(rtt(&mut pair), (initial, None), "the answer to another");
    pair.say_from(other, &bytes(&Frame::PathResponse(data)));
    assert_eq!(rtt(&mut pair), (Duration::from_millis(45), None));
}
