//! Forged and unvalidated addresses: amplification, forged Retry and Version Negotiation,
//! undersized Initials (RFC 9000 §6.2, §8.1, §14.1, §17.2.5).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::connection::{ConnectionError, Forgery};
use clearway_quic::testing::{Retry, negotiation, retry_tag};
use clearway_quic::wire::{PacketKind, PartialHeader, Version};

use crate::hostile::pair::{HostilePair, LINK, first_flight, metered_world, raw};
use clearway_testing::{Setup, World};

/// The client's connection IDs, from its first datagram: destination, source.
fn cids(datagram: &[u8]) -> (ConnectionId, ConnectionId) {
    let header = PartialHeader::parse(datagram, 8).expect("an Initial");
    (
        header.dcid.cid(datagram).expect("a connection ID"),
        header.scid.cid(datagram).expect("a connection ID"),
    )
}

/// A world in which the first flight was caught on the way; its datagrams.
fn caught(victim: Role) -> (World, Vec<Packet>) {
    let mut world = metered_world(Setup::new(), LINK, victim);
    let flight = first_flight(&mut world);
    assert!(!flight.is_empty());
    (world, flight)
}

fn to_client(world: &mut World, data: Vec<u8>) {
    let packet = Packet::new(world.server.address, world.client.address, data);
    world.deliver(Direction::Down, packet);
}

fn retry(dcid: ConnectionId, scid: ConnectionId, original: &ConnectionId) -> Vec<u8> {
    let retry = Retry {
        version: Version::V1,
        dcid,
        scid,
        token: b"a token",
    };
    let mut packet = raw(|w| retry.encode(w, 0));
    let tag = retry_tag(original, &packet);
    packet.extend(tag);
    packet
}

fn version_negotiation(dcid: &[u8], scid: &[u8], versions: &[u32]) -> Vec<u8> {
    let versions: Vec<_> = versions.iter().map(|&v| Version(v)).collect();
    raw(|w| negotiation::encode(w, 0, dcid, scid, &versions))
}

#[test]
fn unvalidated_client_address_gets_at_most_three_times_received_bytes() {
    // The client's whole first flight arrives, and then it is silent: what the
    // server sends in all must stay below three times that, probes included.
    let (mut world, flight) = caught(Role::Server);
    let totals = Arc::new(Mutex::new((0_usize, 0_usize)));
    let seen = totals.clone();
    world.filter = Some(Box::new(move |direction, packet| {
        let mut totals = seen.lock().expect("one thread");
        if direction == Direction::Down {
            totals.1 += packet.data.len();
            assert!(totals.1 <= 3 * totals.0, "{totals:?}");
        }
        false
    }));
    for packet in flight {
        totals.lock().expect("one thread").0 += packet.data.len();
        world.deliver(Direction::Up, packet);
        world.flush();
    }
    world.run_for(Duration::from_secs(60));
    let (received, sent) = *totals.lock().expect("one thread");
    assert!(sent > received, "the server did answer: {sent} bytes");
}

#[test]
fn unvalidated_new_path_gets_at_most_three_times_received_bytes() {
    let mut pair = HostilePair::new(Role::Client);
    let id = pair
        .victim()
        .open(clearway_quic::stream::Directionality::Bidirectional)
        .expect("credit");
    let elsewhere: SocketAddr = "10.9.9.9:9".parse().expect("an address");
    let ping = pair.forge(&Forgery::new(PacketKind::OneRtt, &[0x01]));
    let received = ping.len();
    let sent = Arc::new(Mutex::new(0));
    let sum = sent.clone();
    pair.world.filter = Some(Box::new(move |_, packet| {
        if packet.dst == elsewhere {
            *sum.lock().expect("one thread") += packet.data.len();
        }
        packet.dst != elsewhere
    }));
    let to = pair.world.server.address;
    pair.victim().write(id, &[0; 100_000]).expect("writes");
    pair.world
        .deliver(Direction::Up, Packet::new(elsewhere, to, ping));
    pair.world.run_for(Duration::from_secs(10));
    let sent = *sent.lock().expect("one thread");
    assert!(sent <= 3 * received, "{sent} bytes sent for {received}");
}

#[test]
fn undersized_first_initial_creates_no_connection() {
    let (mut world, flight) = caught(Role::Server);
    // Cut before anything else: 1,199 bytes of a genuine datagram.
    let mut packet = flight[0].clone();
    packet.data.truncate(1199);
    world.deliver(Direction::Up, packet);
    assert!(world.server.connections.is_empty());
    assert_eq!(world.server.endpoint.counters().accepted, 0);
    world.deliver(Direction::Up, flight[0].clone());
    assert_eq!(world.server.connections.len(), 1, "the whole one does");
}

/// RFC 9000 §6.1: what is too small for any first datagram is not answered, whatever
/// version it claims.
#[test]
fn unknown_version_in_small_datagram_is_dropped() {
    let (mut world, flight) = caught(Role::Server);
    let mut packet = flight[0].clone();
    packet.data[1..5].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
    let whole = packet.clone();
    packet.data.truncate(1199);
    world.deliver(Direction::Up, packet);
    let counters = world.server.endpoint.counters();
    assert_eq!((counters.negotiations, counters.dropped), (0, 1));
    world.deliver(Direction::Up, whole);
    let counters = world.server.endpoint.counters();
    assert_eq!((counters.negotiations, counters.dropped), (1, 1));
    assert_eq!(counters.accepted, 0);
}

/// Later Initial packets of a client must come in full datagrams as well
/// (RFC 9000 §14.1).
#[test]
fn undersized_later_initial_is_dropped() {
    let mut pair = HostilePair::begun(Role::Client, |_| {});
    pair.world.run_for(Duration::from_millis(6));
    let now = pair.world.now;
    let before = pair.victim().stats(now).counters.packets_received;
    pair.strike(&Forgery {
        pad_to: 1199,
        ..Forgery::new(PacketKind::Initial, &[0x01])
    });
    let after = pair.victim().stats(now).counters.packets_received;
    assert_eq!(after, before, "1,199 bytes are too few");
    pair.strike(&Forgery::new(PacketKind::Initial, &[0x01]));
    let after = pair.victim().stats(now).counters.packets_received;
    assert_eq!(after, before + 1, "1,200 are enough");
}

/// Whoever saw the client's first Initial can make Initial packets for both
/// ends: those under another Source Connection ID are nobody's (RFC 9000 §7.2).
#[test]
fn packet_with_changed_source_cid_is_dropped() {
    for (hostile, kind, wait) in [
        (Role::Client, PacketKind::Initial, 6_000),
        (Role::Client, PacketKind::Handshake, 11_000),
        (Role::Server, PacketKind::Initial, 10_200),
        (Role::Server, PacketKind::Handshake, 11_000),
    ] {
        let mut pair = HostilePair::begun(hostile, |_| {});
        pair.world.run_for(Duration::from_micros(wait));
        let now = pair.world.now;
        let received = |pair: &mut HostilePair| pair.victim().stats(now).counters.packets_received;
        let before = received(&mut pair);
        pair.strike(&Forgery {
            flip_source: 0xff,
            ..Forgery::new(kind, &[0x01])
        });
        assert_eq!(received(&mut pair), before, "{hostile:?} {kind:?}");
        pair.strike(&Forgery::new(kind, &[0x01]));
        assert_eq!(received(&mut pair), before + 1, "{hostile:?} {kind:?}");
    }
}

/// A server that forgot answers a late copy of the first flight as another
/// connection, which is not the client's.
#[test]
fn initial_of_second_server_handshake_is_dropped() {
    let (mut world, flight) = caught(Role::Client);
    let first = Arc::new(Mutex::new(None));
    let sink = first.clone();
    // Of the first server's answer one datagram arrives, without a ServerHello.
    world.filter = Some(Box::new(move |direction, packet| {
        let fresh = direction == Direction::Down && sink.lock().expect("one thread").is_none();
        if fresh {
            *sink.lock().expect("one thread") = Some(packet.clone());
        }
        fresh
    }));
    world.deliver(Direction::Up, flight[0].clone());
    world.run_for(Duration::from_millis(20));
    let now = world.now;
    assert_eq!(
        world
            .client
            .connection()
            .stats(now)
            .counters
            .packets_received,
        1
    );
    world.restart_server(77);
    world.filter = None;
    for packet in flight {
        world.deliver(Direction::Up, packet);
    }
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.client.connection().error(), None);
    world.run_for(Duration::from_secs(60));
    assert_eq!(
        world.client.connection().error(),
        Some(&ConnectionError::IdleTimeout)
    );
}

#[test]
fn forged_and_second_retry_are_discarded() {
    let (mut world, flight) = caught(Role::Client);
    let (dcid, scid) = cids(&flight[0].data);
    let fresh = ConnectionId::new(&[0x77; 8]).expect("eight bytes");
    // Its tag was made by somebody who did not see the Initial.
    let packet = retry(scid, fresh, &fresh);
    to_client(&mut world, packet);
    let stats = |world: &mut World| {
        let now = world.now;
        world
            .client
            .connection()
            .stats(now)
            .counters
            .packets_dropped
    };
    assert_eq!(stats(&mut world), 1);
    // The genuine one is taken: the client starts over with its token …
    let packet = retry(scid, fresh, &dcid);
    to_client(&mut world, packet.clone());
    assert_eq!(stats(&mut world), 1);
    // … and a second one is not, however genuine.
    to_client(&mut world, packet);
    assert_eq!(stats(&mut world), 2);
}

#[test]
fn retry_after_genuine_packet_is_discarded() {
    let mut world = metered_world(Setup::new(), LINK, Role::Client);
    let first = Arc::new(Mutex::new(None));
    let sink = first.clone();
    world.filter = Some(Box::new(move |direction, packet| {
        if direction == Direction::Up {
            sink.lock()
                .expect("one thread")
                .get_or_insert_with(|| packet.data.clone());
        }
        true
    }));
    world.connect();
    world.run_for(Duration::from_millis(12));
    let first = first.lock().expect("one thread").clone().expect("a flight");
    let (dcid, scid) = cids(&first);
    let packet = retry(scid, ConnectionId::new(&[0x77; 8]).expect("short"), &dcid);
    to_client(&mut world, packet);
    world.run_for(Duration::from_secs(1));
    assert!(world.client.connection().is_confirmed());
}

#[test]
fn version_negotiation_is_accepted_only_before_other_packets() {
    let other = 0x1234_5678;
    // One that offers our version is a lie.
    let (mut world, flight) = caught(Role::Client);
    let (dcid, scid) = cids(&flight[0].data);
    to_client(
        &mut world,
        version_negotiation(&scid, &dcid, &[other, Version::V1.0]),
    );
    assert_eq!(world.client.connection().error(), None);
    // One that answers another connection's Initial too.
    to_client(&mut world, version_negotiation(&scid, &[1; 8], &[other]));
    assert_eq!(world.client.connection().error(), None);
    // A credible one ends the attempt.
    to_client(&mut world, version_negotiation(&scid, &dcid, &[other]));
    assert_eq!(
        world.client.connection().error(),
        Some(&ConnectionError::VersionMismatch)
    );
}

#[test]
fn version_negotiation_after_genuine_packet_is_ignored() {
    let mut pair = HostilePair::begun(Role::Server, |_| {});
    pair.world.run_for(Duration::from_millis(12));
    let (ours, theirs) = (pair.victim().local_cid(), pair.hostile().local_cid());
    pair.deliver(version_negotiation(&ours, &theirs, &[0x1234_5678]));
    assert_eq!(pair.victim().error(), None);
    pair.world.run_for(Duration::from_secs(1));
    assert!(pair.victim().is_confirmed());
}
