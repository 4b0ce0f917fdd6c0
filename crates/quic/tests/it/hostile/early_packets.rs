//! 0-RTT packets that can never be opened: they do not take the places of packets that can (RFC 9001
//! §5.7).

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::testing::{LongHeader, LongKind, TruncatedNumber};
use clearway_quic::wire::PartialHeader;
use clearway_quic::wire::{Version, Writer};

use crate::hostile::pair::{LINK, first_flight, metered_world, sent_now};
use clearway_testing::{Setup, World};

/// As many packets as an end keeps until it has their keys.
const KEPT: u64 = 10;

/// A 0-RTT packet that nobody can open.
fn zero_rtt(dcid: ConnectionId, scid: ConnectionId, number: u64) -> Vec<u8> {
    let mut packet = vec![0; 100];
    let mut w = Writer::new(&mut packet);
    let at = LongHeader {
        kind: LongKind::ZeroRtt,
        version: Version::V1,
        dcid,
        scid,
        number: TruncatedNumber::with_len(number, 4),
        fixed_bit: true,
    }
    .encode(&mut w)
    .expect("room for a header");
    assert!(at.finish(&mut packet, 100));
    packet
}

/// The destination and source connection ID of a client's first datagram.
fn cids(datagram: &[u8]) -> (ConnectionId, ConnectionId) {
    let header = PartialHeader::parse(datagram, 8).expect("an Initial");
    (
        header.dcid.cid(datagram).expect("a connection ID"),
        header.scid.cid(datagram).expect("a connection ID"),
    )
}

fn deliver(world: &mut World, direction: Direction, data: Vec<u8>) {
    let (client, server) = (world.client.address, world.server.address);
    let (from, to) = match direction {
        Direction::Up => (client, server),
        Direction::Down => (server, client),
    };
    world.deliver(direction, Packet::new(from, to, data));
}

/// The bytes that the server has received of the client's stream.
fn arrived(world: &mut World, id: StreamId) -> usize {
    let server = world.server.connection();
    let _ = server.accept(Directionality::Unidirectional);
    let mut total = 0;
    while let Ok(Some(chunk)) = server.read_chunk(id, usize::MAX) {
        total += chunk.len();
    }
    total
}

/// The client's 1-RTT packets overtake its Finished. `after_hello`: the 0-RTT packets arrive after the
/// ClientHello, or else before it.
fn overtaken_finished(after_hello: bool) {
    let mut world = metered_world(Setup::new(), LINK, Role::Server);
    let flight = first_flight(&mut world);
    let (dcid, scid) = cids(&flight[0].data);
    // A ClientHello has two datagrams, of which the first begins the connection.
    let (first, rest) = flight.split_first().expect("a first flight");
    world.deliver(Direction::Up, first.clone());
    if after_hello {
        rest.iter()
            .for_each(|packet| world.deliver(Direction::Up, packet.clone()));
    }
    for number in 0..KEPT {
        deliver(&mut world, Direction::Up, zero_rtt(dcid, scid, number));
    }
    if !after_hello {
        rest.iter()
            .for_each(|packet| world.deliver(Direction::Up, packet.clone()));
    }
    for packet in sent_now(&mut world) {
        world.deliver(Direction::Down, packet);
    }
    let client = world.client.connection();
    let id = client
        .open(Directionality::Unidirectional)
        .expect("the handshake is complete at the client");
    assert_eq!(client.write(id, &[9; 6000]), Ok(6000));
    let sent = sent_now(&mut world);
    let (finished, data) = sent.split_first().expect("a second flight");
    assert!(data.len() >= 3, "{} datagrams", sent.len());
    for packet in data.iter().chain([finished]) {
        world.deliver(Direction::Up, packet.clone());
    }
    assert_eq!(arrived(&mut world, id), 6000, "{after_hello}");
}

#[test]
fn unopenable_0rtt_packets_leave_room_for_reordered_1rtt_packets() {
    overtaken_finished(true);
    overtaken_finished(false);
}

/// Servers send no 0-RTT packets.
#[test]
fn client_keeps_no_0rtt_packets() {
    let mut world = metered_world(Setup::new(), LINK, Role::Client);
    let flight = first_flight(&mut world);
    let (_, client) = cids(&flight[0].data);
    for packet in flight {
        world.deliver(Direction::Up, packet);
    }
    let answers = sent_now(&mut world);
    let (_, server) = cids(&answers[0].data);
    for number in 0..KEPT {
        deliver(
            &mut world,
            Direction::Down,
            zero_rtt(client, server, number),
        );
    }
    // The rest of the server's flight overtakes its ServerHello.
    let (hello, rest) = answers.split_first().expect("a flight");
    assert!(!rest.is_empty(), "the flight has several datagrams");
    for packet in rest.iter().chain([hello]) {
        world.deliver(Direction::Down, packet.clone());
    }
    assert!(!world.client.connection().is_handshaking());
}
