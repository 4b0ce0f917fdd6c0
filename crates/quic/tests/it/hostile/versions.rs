//! Attacks on the choice of a QUIC version: contradictory and malformed `version_information`,
//! forged Version Negotiation, packets of a version that was not chosen (RFC 9368 §4).

use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::connection::{ConnectionError, Forgery};
use clearway_quic::error::Code;
use clearway_quic::testing::{UnprotectedHeader, initial_keys, negotiation};
use clearway_quic::wire::header::HeaderKind;
use clearway_quic::wire::{
    Frame, Frames, PacketKind, PartialHeader, TransportParameters, Version, VersionInformation,
    VersionPreference,
};

use super::initials::{cid, crypto, initial_of};
use super::pair::{HostilePair, LINK, first_flight, metered_world, raw};
use clearway_testing::{Setup, World};

const ONE: Version = Version::V1;
const TWO: Version = Version::V2;
const RESERVED: Version = Version(0x1a2a_3a4a);

/// The transport parameter `version_information` (RFC 9368 §3).
const VERSION_INFORMATION: u64 = 0x11;

fn preferring(versions: &[Version]) -> VersionPreference {
    VersionPreference::new(versions).expect("supported versions")
}

/// A ClientHello whose transport parameters end with `extra`.
fn client_hello(setup: &Setup, extra: &[u8]) -> Vec<u8> {
    let mut parameters = Vec::new();
    TransportParameters {
        initial_source_connection_id: ConnectionId::new(&[0x5c; 8]),
        ..TransportParameters::default()
    }
    .encode(&mut parameters, None);
    parameters.extend(extra);
    let name = "localhost".try_into().expect("a name");
    let mut client = rustls::quic::ClientConnection::new(
        setup.client_crypto.clone(),
        rustls::quic::Version::V1,
        name,
        parameters,
    )
    .expect("a client");
    let mut hello = Vec::new();
    assert!(client.write_hs(&mut hello).is_none());
    hello
}

/// The parameter with these bytes as its value.
fn information(value: &[u8]) -> Vec<u8> {
    raw(|w| {
        w.varint(VERSION_INFORMATION);
        w.varint(value.len() as u64);
        w.bytes(value);
    })
}

fn words(versions: &[Version]) -> Vec<u8> {
    let words = versions.iter().map(|version| version.0.to_be_bytes());
    words.collect::<Vec<_>>().concat()
}

/// What a server answers a client whose first flight has `version` and these parameters: the
/// version of its first Initial packet, and the code with which it closes the connection.
fn answer(server: &[Version], version: Version, extra: &[u8]) -> (Version, Option<Code>) {
    let mut setup = Setup::new();
    setup.server.versions = preferring(server);
    let hello = client_hello(&setup, extra);
    let mut world = metered_world(setup, LINK, Role::Server);
    let from = ([10, 9, 0, 1], 4000).into();
    let (dcid, half) = (cid(77), hello.len() / 2);
    let pieces = [
        crypto(0, &hello[..half]),
        crypto(half as u64, &hello[half..]),
    ];
    let mut answers = Vec::new();
    for (number, frames) in (0..).zip(&pieces) {
        let datagram = initial_of(version, dcid, &[], number, frames);
        let to = world.server.address;
        world.deliver(Direction::Up, Packet::new(from, to, datagram));
        let sent = super::pair::sent_now(&mut world);
        answers.extend(sent.into_iter().filter(|packet| packet.dst == from));
    }
    let last = answers.last().expect("an answer").data.clone();
    let code = answers
        .iter()
        .find_map(|answer| close_in(&answer.data, &dcid));
    let header = PartialHeader::parse(&last, 8).expect("a header");
    (header.version, code)
}

/// The code of a CONNECTION_CLOSE in a server's Initial packet.
fn close_in(datagram: &[u8], dcid: &ConnectionId) -> Option<Code> {
    let header = PartialHeader::parse(datagram, 8).expect("a header");
    if !matches!(header.kind, HeaderKind::Initial { .. }) {
        return None;
    }
    let mut packet = datagram[..header.packet_len].to_vec();
    let keys = initial_keys(header.version, dcid, Role::Client).remote;
    keys.unprotect_header(&mut packet, header.number_at)
        .expect("a sample");
    let open = UnprotectedHeader::read(&packet, header.number_at).expect("a number");
    let number = open.number.recover(None);
    let len = keys
        .open(number, &mut packet, open.header_len)
        .expect("authentic");
    let mut frames = Frames::new(&packet[open.header_len..][..len]);
    frames.find_map(|frame| match frame.expect("a frame") {
        Frame::ConnectionClose { code, .. } => Some(code),
        _ => None,
    })
}

#[test]
fn server_answers_version_information_by_rfc9368() {
    let valid = |versions: &[Version]| information(&words(versions));
    let parameter = Some(Code::TRANSPORT_PARAMETER_ERROR);
    let negotiation = Some(Code::VERSION_NEGOTIATION_ERROR);
    for first in [ONE, TWO] {
        let other = if first == ONE { TWO } else { ONE };
        for server in [[ONE, TWO], [TWO, ONE]] {
            let preferred = server[0];
            let cases = [
                ("missing", vec![], (first, None)),
                ("valid", valid(&[first, first, other]), (preferred, None)),
                ("only the first", valid(&[first, first]), (first, None)),
                (
                    "with reserved versions",
                    valid(&[first, RESERVED, first, other]),
                    (preferred, None),
                ),
                ("empty", valid(&[]), (first, parameter)),
                (
                    "cut off",
                    information(&[0, 0, 0, 1, 0, 0]),
                    (first, parameter),
                ),
                ("one number", valid(&[first]), (first, parameter)),
                (
                    "chosen version 0",
                    valid(&[Version(0), first, other]),
                    (first, parameter),
                ),
                (
                    "available version 0",
                    valid(&[first, first, Version(0), other]),
                    (first, parameter),
                ),
                (
                    "chosen version not available",
                    valid(&[first, other]),
                    (first, parameter),
                ),
                (
                    "other version chosen than in the header",
                    valid(&[other, first, other]),
                    (first, negotiation),
                ),
                (
                    "reserved version chosen",
                    valid(&[RESERVED, RESERVED, first, other]),
                    (first, negotiation),
                ),
                (
                    "sent twice",
                    [valid(&[first, first, other]), valid(&[first, first])].concat(),
                    (first, parameter),
                ),
            ];
            for (what, extra, expected) in cases {
                let found = answer(&server, first, &extra);
                assert_eq!(found, expected, "{what}, {first} to {server:?}");
            }
        }
    }
}

/// Bytes that are no ClientHello are reported by TLS in the client's version.
#[test]
fn garbage_instead_of_client_hello_is_answered_by_tls() {
    let mut setup = Setup::new();
    setup.server.versions = preferring(&[TWO, ONE]);
    for bytes in [
        vec![2; 64],
        vec![1, 0xff, 0xff, 0xff, 0],
        vec![1, 0, 0, 1, 7],
    ] {
        let mut world = metered_world(setup.clone(), LINK, Role::Server);
        let from = ([10, 9, 0, 1], 4000).into();
        let datagram = initial_of(ONE, cid(78), &[], 0, &crypto(0, &bytes));
        let to = world.server.address;
        world.deliver(Direction::Up, Packet::new(from, to, datagram));
        let sent = super::pair::sent_now(&mut world);
        let code = close_in(&sent.last().expect("an answer").data, &cid(78));
        let alert = code.expect("a close").0;
        assert!((0x100..0x200).contains(&alert), "{bytes:?}: {alert:#x}");
    }
}

/// A ClientHello in tiny pieces holds a bounded amount of memory until it is complete or late.
#[test]
fn incomplete_client_hello_is_bounded_and_times_out() {
    let mut setup = Setup::new();
    setup.server.versions = preferring(&[TWO, ONE]);
    let mut world = metered_world(setup, LINK, Role::Server);
    let from = ([10, 9, 0, 1], 4000).into();
    let mut hello = vec![1, 0, 0x3f, 0];
    hello.resize(15_000, 0);
    for (number, piece) in (0..).zip(hello.chunks(1_000)) {
        let frames = crypto(number * 1_000, piece);
        let datagram = initial_of(ONE, cid(79), &[], number, &frames);
        let to = world.server.address;
        world.deliver(Direction::Up, Packet::new(from, to, datagram));
    }
    assert_eq!(world.server.endpoint.handshakes(), 1);
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.server.endpoint.handshakes(), 0);
}

/// The client's connection IDs, from its first datagram: destination, source.
fn cids(datagram: &[u8]) -> (ConnectionId, ConnectionId) {
    let header = PartialHeader::parse(datagram, 8).expect("an Initial");
    (
        header.dcid.cid(datagram).expect("a connection ID"),
        header.scid.cid(datagram).expect("a connection ID"),
    )
}

/// A client that was sent a forged Version Negotiation packet while its first flight was on the
/// way. Its peer is honest, and speaks `server`.
fn lied_to(client: &[Version], server: &[Version], offered: &[Version]) -> World {
    let mut setup = Setup::new();
    setup.client.versions = preferring(client);
    setup.server.versions = preferring(server);
    let mut world = metered_world(setup, LINK, Role::Client);
    let flight = first_flight(&mut world);
    let (dcid, scid) = cids(&flight[0].data);
    let packet = raw(|w| negotiation::encode(w, 0, &scid, &dcid, offered));
    let packet = Packet::new(world.server.address, world.client.address, packet);
    world.deliver(Direction::Down, packet);
    world.run_for(Duration::from_secs(2));
    world
}

/// RFC 9368 §4: forging a Version Negotiation packet does not force another version than the
/// client prefers.
#[test]
fn forged_version_negotiation_ends_in_version_negotiation_error() {
    for server in [[ONE, TWO], [TWO, ONE]] {
        let mut world = lied_to(&[ONE, TWO], &server, &[RESERVED, TWO]);
        let error = world.client.connection().error().expect("an error");
        let ConnectionError::Transport(error) = error else {
            panic!("{error}");
        };
        assert_eq!(error.code, Code::VERSION_NEGOTIATION_ERROR, "{error}");
        assert!(!world.client.connection().is_confirmed());
    }
}

/// What the attacker forces is what the client prefers among the server's versions.
#[test]
fn forged_version_negotiation_to_preferred_version_is_harmless() {
    let mut world = lied_to(&[TWO, ONE], &[TWO, ONE], &[RESERVED, TWO]);
    assert_eq!(world.client.connection().error(), None);
    assert!(world.client.connection().is_confirmed());
    assert_eq!(world.client.connection().version(), TWO);
}

/// The same packet from an honest server, which does not speak the first version.
#[test]
fn genuine_version_negotiation_is_followed() {
    for client in [[ONE, TWO], [TWO, ONE]] {
        let mut world = lied_to(&client, &[TWO], &[RESERVED, TWO]);
        assert_eq!(world.client.connection().error(), None);
        assert!(world.client.connection().is_confirmed());
        assert_eq!(world.client.connection().version(), TWO);
    }
}

/// RFC 9368 §4: only the first Version Negotiation packet is followed.
#[test]
fn second_version_negotiation_is_ignored() {
    let mut world = metered_world(Setup::new(), LINK, Role::Client);
    let flight = first_flight(&mut world);
    let (dcid, scid) = cids(&flight[0].data);
    let send = |world: &mut World, dcid: &ConnectionId, offered: Version| {
        let packet = raw(|w| negotiation::encode(w, 0, &scid, dcid, &[offered]));
        let packet = Packet::new(world.server.address, world.client.address, packet);
        world.deliver(Direction::Down, packet);
    };
    send(&mut world, &dcid, TWO);
    assert_eq!(world.client.connection().version(), TWO);
    let again = super::pair::sent_now(&mut world);
    let (second, _) = cids(&again[0].data);
    assert_ne!(second, dcid, "an attempt of its own");
    for offered in [ONE, RESERVED] {
        send(&mut world, &dcid, offered);
        send(&mut world, &second, offered);
    }
    assert_eq!(world.client.connection().version(), TWO);
    assert_eq!(world.client.connection().error(), None);
}

/// A client that speaks one version ignores packets of another, however authentic.
#[test]
fn initial_of_version_that_was_not_offered_is_dropped() {
    let mut setup = Setup::new();
    setup.client.versions = VersionPreference::V1_ONLY;
    let mut world = metered_world(setup, LINK, Role::Client);
    let flight = first_flight(&mut world);
    let (dcid, scid) = cids(&flight[0].data);
    let forged = server_initial(TWO, &dcid, scid, &[1]);
    let packet = Packet::new(world.server.address, world.client.address, forged);
    world.deliver(Direction::Down, packet);
    assert_eq!(world.client.connection().version(), ONE);
    for packet in flight {
        world.deliver(Direction::Up, packet);
    }
    world.run_for(Duration::from_secs(1));
    assert!(world.client.connection().is_confirmed());
}

/// An Initial packet as a server with the connection ID 0x99… would send it.
fn server_initial(
    version: Version,
    dcid: &ConnectionId,
    client: ConnectionId,
    frames: &[u8],
) -> Vec<u8> {
    let scid = ConnectionId::new(&[0x99; 8]).expect("eight bytes");
    let keys = initial_keys(version, dcid, Role::Server).local;
    super::initials::sealed_initial(version, client, scid, &[], 0, frames, &keys)
}

/// Once the version is decided, authentic Initial packets of the other one are dropped.
#[test]
fn initial_of_other_version_after_server_hello_is_dropped() {
    let mut world = metered_world(Setup::new(), LINK, Role::Client);
    let flight = first_flight(&mut world);
    let (dcid, scid) = cids(&flight[0].data);
    // A whole ServerHello never comes, but CRYPTO data of version 1 does.
    let data = crypto(0, &[2]);
    for (version, frames) in [(ONE, &data[..]), (TWO, &[1][..])] {
        let forged = server_initial(version, &dcid, scid, frames);
        let packet = Packet::new(world.server.address, world.client.address, forged);
        world.deliver(Direction::Down, packet);
        assert_eq!(world.client.connection().version(), ONE);
    }
    let now = world.now;
    let counters = world.client.connection().stats(now).counters;
    assert_eq!(
        (counters.packets_received, counters.packets_dropped),
        (1, 1)
    );
}

/// RFC 9369 §4.1: Handshake packets of any other version than the negotiated one are dropped, even
/// from the peer itself.
#[test]
fn handshake_packet_of_other_version_is_dropped() {
    for negotiated in [ONE, TWO] {
        let other = if negotiated == ONE { TWO } else { ONE };
        let mut pair = HostilePair::begun(Role::Client, |setup| {
            setup.server.versions = preferring(&[negotiated, other]);
        });
        let now = pair.world.now;
        pair.world.run_until(Duration::from_millis(40), |world| {
            // The server never sees the client's Handshake packets.
            let client = world.client.connection();
            client
                .forge(now, &Forgery::new(PacketKind::Handshake, &[1]))
                .is_some()
        });
        let ping = Forgery::new(PacketKind::Handshake, &[1]);
        let wrong = pair.forge(&Forgery {
            version: Some(other),
            ..ping
        });
        let right = pair.forge(&ping);
        let received = |pair: &mut HostilePair| {
            let now = pair.world.now;
            let counters = pair.victim().stats(now).counters;
            (counters.packets_received, counters.packets_dropped)
        };
        assert_eq!(pair.victim().version(), negotiated);
        let before = received(&mut pair);
        pair.deliver(wrong);
        assert_eq!(received(&mut pair), (before.0, before.1 + 1));
        pair.deliver(right);
        assert_eq!(received(&mut pair), (before.0 + 1, before.1 + 1));
    }
}

#[test]
fn version_information_is_written_as_it_is_read() {
    let information = VersionInformation {
        chosen: TWO,
        available: vec![TWO, ONE, RESERVED],
    };
    let parameters = TransportParameters {
        version_information: Some(information.clone()),
        ..TransportParameters::default()
    };
    let mut bytes = Vec::new();
    parameters.encode(&mut bytes, None);
    let read = TransportParameters::decode(&bytes, Role::Client).expect("valid");
    assert_eq!(read.version_information, Some(information));
}
