//! Initial packets, whose keys anyone can derive: what they can make a server store, and for how long.

use std::net::SocketAddr;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::connection::ConnectionError;
use clearway_quic::crypto::{RetryToken, TokenKey};
use clearway_quic::error::Code;
use clearway_quic::rng::Rng;
use clearway_quic::testing::{
    Direction as DirectionKeys, LongHeader, LongKind, TAG_LEN, TruncatedNumber, UnprotectedHeader,
    initial_keys,
};
use clearway_quic::wire::{Frame, Frames, PartialHeader, Version, Writer};

use crate::hostile::pair::{LINK, bytes, first_flight, metered_world};
use clearway_testing::{Setup, UNIX_ORIGIN, World};

/// A client's Initial packet of version 1 in a datagram of 1,200 bytes.
pub(crate) fn initial(dcid: ConnectionId, token: &[u8], number: u64, frames: &[u8]) -> Vec<u8> {
    initial_of(Version::V1, dcid, token, number, frames)
}

/// A client's Initial packet in a datagram of 1,200 bytes.
pub(crate) fn initial_of(
    version: Version,
    dcid: ConnectionId,
    token: &[u8],
    number: u64,
    frames: &[u8],
) -> Vec<u8> {
    let scid = ConnectionId::new(&[0x5c; 8]).expect("eight bytes");
    let keys = initial_keys(version, &dcid, Role::Client).local;
    sealed_initial(version, dcid, scid, token, number, frames, &keys)
}

/// An Initial packet in a datagram of 1,200 bytes, sealed with `keys`.
pub(crate) fn sealed_initial(
    version: Version,
    dcid: ConnectionId,
    scid: ConnectionId,
    token: &[u8],
    number: u64,
    frames: &[u8],
    keys: &DirectionKeys,
) -> Vec<u8> {
    let mut packet = vec![0; 1200];
    let mut w = Writer::new(&mut packet);
    let at = LongHeader {
        kind: LongKind::Initial { token },
        version,
        dcid,
        scid,
        number: TruncatedNumber::with_len(number, 4),
        fixed_bit: true,
    }
    .encode(&mut w)
    .expect("room for a header");
    w.bytes(frames);
    let padding = 1200 - TAG_LEN - w.written();
    w.zeros(padding + TAG_LEN);
    let end = w.written();
    assert!(at.finish(&mut packet, end));
    keys.seal(number, &mut packet, at.payload_at, 4)
        .expect("seals");
    packet
}

pub(crate) fn cid(number: u64) -> ConnectionId {
    ConnectionId::new(&number.to_be_bytes()).expect("eight bytes")
}

pub(crate) fn crypto(offset: u64, data: &[u8]) -> Vec<u8> {
    bytes(&Frame::Crypto { offset, data })
}

fn send(world: &mut World, from: SocketAddr, datagram: Vec<u8>) {
    let to = world.server.address;
    world.deliver(Direction::Up, Packet::new(from, to, datagram));
}

fn handshakes(world: &World) -> usize {
    world.server.endpoint.handshakes()
}

#[test]
fn initial_without_crypto_data_is_dropped_without_state() {
    let mut world = metered_world(Setup::new(), LINK, Role::Server);
    // PING, PADDING alone, an ACK, an empty CRYPTO frame.
    let empty = crypto(0, b"");
    let payloads: [&[u8]; 4] = [&[1], &[0], &[2, 0, 0, 0, 0], &empty];
    for i in 0..4_000 {
        let from = ([10, 9, 0, (i % 7) as u8], 4000).into();
        let payload = payloads[i as usize % payloads.len()];
        send(&mut world, from, initial(cid(i), &[], 0, payload));
    }
    assert_eq!(handshakes(&world), 0);
    assert_eq!(world.server.connections.len(), 0);
    assert_eq!(world.server.endpoint.counters().dropped, 4_000);
    world.handshake();
}

/// One byte of a ClientHello and then a PING now and then, each from a client that
/// never goes on.
#[test]
fn endless_client_hello_closes_connection() {
    let mut world = metered_world(Setup::new(), LINK, Role::Server);
    let from: SocketAddr = ([10, 9, 0, 1], 4000).into();
    let total = 40;
    for i in 0..total {
        send(&mut world, from, initial(cid(i), &[], 0, &crypto(3, b"x")));
    }
    assert_eq!(handshakes(&world), total as usize);
    for round in 1..=15 {
        world.run_for(Duration::from_secs(1));
        for i in 0..total {
            send(&mut world, from, initial(cid(i), &[], round, &[1]));
        }
    }
    assert_eq!(handshakes(&world), 0);
    world.handshake();
}

/// A server that shares its secret with others meets tokens of theirs, which name
/// connection IDs that clients of its own may be using.
#[test]
fn retry_token_for_cid_in_use_does_not_change_routes() {
    let mut world = metered_world(Setup::new(), LINK, Role::Server);
    let flight = first_flight(&mut world);
    assert_eq!(flight.len(), 2, "a ClientHello in two datagrams");
    let header = PartialHeader::parse(&flight[0].data, 8).expect("an Initial");
    let original = header.dcid.cid(&flight[0].data).expect("eight bytes");
    world.deliver(Direction::Up, flight[0].clone());
    assert_eq!(handshakes(&world), 1);

    let stranger: SocketAddr = ([10, 9, 0, 1], 4000).into();
    let mut token = Vec::new();
    TokenKey::new(&[7; 32]).seal_retry(
        &RetryToken {
            version: Version::V1,
            issued: UNIX_ORIGIN,
            client: stranger,
            original_dcid: original,
            retry_scid: cid(9),
        },
        &mut Rng::from_seed([1; 32]),
        &mut token,
    );
    // Its "ClientHello" is none, so that its connection ends soon.
    let packet = initial(cid(9), &token, 0, &crypto(0, &[0xff; 64]));
    send(&mut world, stranger, packet);
    assert_eq!(world.server.endpoint.counters().accepted, 2);

    // The rest of the client's first flight still finds its connection …
    world.filter = Some(Box::new(|_, _| false));
    world.deliver(Direction::Up, flight[1].clone());
    let now = world.now;
    let first = world.server.first().expect("the client's");
    assert_eq!(first.stats(now).counters.packets_received, 2);
    // … and so does a repetition after the stranger's has gone.
    world.run_for(Duration::from_secs(4));
    assert_eq!(world.server.endpoint.len(), 1);
    world.deliver(Direction::Up, flight[0].clone());
    assert_eq!(world.server.endpoint.counters().accepted, 2);
}

/// The TLS message in a client's first flight, which anybody can read.
fn client_hello(flight: &[Packet]) -> Vec<u8> {
    let mut pieces = Vec::new();
    for datagram in flight {
        let mut packet = datagram.data.clone();
        let header = PartialHeader::parse(&packet, 8).expect("an Initial");
        let dcid = header.dcid.cid(&packet).expect("a connection ID");
        let keys = initial_keys(Version::V1, &dcid, Role::Server).remote;
        packet.truncate(header.packet_len);
        keys.unprotect_header(&mut packet, header.number_at)
            .expect("a sample");
        let open = UnprotectedHeader::read(&packet, header.number_at).expect("a number");
        let number = open.number.recover(None);
        let len = keys
            .open(number, &mut packet, open.header_len)
            .expect("authentic");
        for frame in Frames::new(&packet[open.header_len..][..len]) {
            if let Frame::Crypto { offset, data } = frame.expect("a frame") {
                pieces.push((offset, data.to_vec()));
            }
        }
    }
    pieces.sort();
    let mut hello = Vec::new();
    for (offset, data) in pieces {
        assert_eq!(offset, hello.len() as u64, "a hole");
        hello.extend(data);
    }
    hello
}

/// Where the type of an extension is in a ClientHello (RFC 8446 §4.1.2, §4.2).
fn extension(hello: &[u8], kind: u16) -> usize {
    let len = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    // Type and length, version, random; then the session ID.
    let suites = 4 + 2 + 32 + 1 + usize::from(hello[38]);
    let methods = suites + 2 + len(suites);
    let mut at = methods + 1 + usize::from(hello[methods]) + 2;
    while len(at) != usize::from(kind) {
        at += 4 + len(at + 2);
    }
    at
}

/// RFC 9001 §8.2: `missing_extension`. Whoever speaks TLS and not QUIC sends such a
/// ClientHello.
#[test]
fn client_hello_without_transport_parameters_ends_the_connection() {
    const TRANSPORT_PARAMETERS: u16 = 0x39;
    for present in [true, false] {
        let mut world = metered_world(Setup::new(), LINK, Role::Server);
        let flight = first_flight(&mut world);
        let mut hello = client_hello(&flight);
        let at = extension(&hello, TRANSPORT_PARAMETERS);
        if !present {
            // A type that nobody knows is passed over.
            hello[at..at + 2].copy_from_slice(&[0x3a, 0x3a]);
        }
        let from = world.client.address;
        for (number, piece) in (0..).zip(hello.chunks(1000)) {
            let offset = number * 1000;
            let packet = initial(cid(1), &[], number, &crypto(offset, piece));
            send(&mut world, from, packet);
        }
        let server = world.server.first().expect("accepted");
        let Some(ConnectionError::Transport(error)) = server.error() else {
            panic!("{present}: {:?}", server.error());
        };
        let code = error.code;
        if present {
            // They name other connection IDs than those of the packets.
            assert_eq!(code, Code::TRANSPORT_PARAMETER_ERROR);
        } else {
            assert_eq!(code, Code::crypto(109), "{error}");
        }
    }
}
