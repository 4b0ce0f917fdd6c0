//! QUIC versions 1 and 2, and how the ends agree on one (RFC 9368, RFC 9369).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::connection::{ConnectionError, Event};
use clearway_quic::stream::{Directionality, ReadError, StreamId};
use clearway_quic::wire::header::HeaderKind;
use clearway_quic::wire::{PartialHeader, Version, VersionPreference};
use clearway_testing::{Setup, World, path, server_id};

const CLEAN: &str = "rate=100M delay=20ms queue=250";
const ONE: Version = Version::V1;
const TWO: Version = Version::V2;

/// The settings of ends that speak these versions.
fn speaking(client: &[Version], server: &[Version]) -> Setup {
    let list = |versions| VersionPreference::new(versions).expect("supported versions");
    let mut setup = Setup::new();
    setup.client.versions = list(client);
    setup.server.versions = list(server);
    setup
}

/// What each end sent: direction, version and type of every long header.
type LongHeaders = Arc<Mutex<Vec<(Direction, Version, HeaderName)>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HeaderName {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
    VersionNegotiation,
}

/// Records the long headers of all datagrams from now on.
fn record(world: &mut World) -> LongHeaders {
    let seen = LongHeaders::default();
    let sink = seen.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        let mut rest = &packet.data[..];
        while let Ok(header) = PartialHeader::parse(rest, 8) {
            let name = match header.kind {
                HeaderKind::Initial { .. } => HeaderName::Initial,
                HeaderKind::ZeroRtt => HeaderName::ZeroRtt,
                HeaderKind::Handshake => HeaderName::Handshake,
                HeaderKind::Retry { .. } => HeaderName::Retry,
                HeaderKind::VersionNegotiation { .. } => HeaderName::VersionNegotiation,
                HeaderKind::Short { .. } | HeaderKind::UnsupportedVersion => break,
            };
            let mut seen = sink.lock().expect("one thread");
            seen.push((direction, header.version, name));
            rest = &rest[header.packet_len..];
        }
        true
    }));
    seen
}

fn of(seen: &LongHeaders, name: HeaderName) -> BTreeSet<(bool, Version)> {
    let seen = seen.lock().expect("one thread");
    let those = seen.iter().filter(|(.., found)| *found == name);
    those
        .map(|(direction, version, _)| (*direction == Direction::Up, *version))
        .collect()
}

/// Sends data from the client, and updates the keys several times.
fn exchange(world: &mut World) {
    for round in 0..4_u8 {
        let id = world
            .client
            .connection()
            .open(Directionality::Bidirectional)
            .expect("credit");
        let client = world.client.connection();
        assert_eq!(client.write(id, &[round; 20_000]), Ok(20_000));
        client.finish(id).expect("finishes");
        let mut read = 0;
        let arrived = world.run_until(Duration::from_secs(5), |world| {
            let server = world.server.connection();
            let _ = server.accept(Directionality::Bidirectional);
            read_all(server, id, round, &mut read)
        });
        assert!(arrived, "round {round}: {read} bytes");
        assert_eq!(read, 20_000);
        // Every update is acknowledged, and three PTOs pass before the next.
        world.run_for(Duration::from_secs(2));
        let now = world.now;
        let updated = world.client.connection().update_keys(now);
        assert!(updated.is_ok(), "{updated:?}");
    }
    world.run_for(Duration::from_secs(2));
    let now = world.now;
    let of_client = world.client.connection().stats(now).counters.key_updates;
    let of_server = world.server.connection().stats(now).counters;
    assert_eq!(of_client, 4);
    assert!(of_server.peer_key_updates >= 3, "{of_server:?}");
}

fn read_all(
    connection: &mut clearway_quic::connection::Connection,
    id: StreamId,
    byte: u8,
    read: &mut usize,
) -> bool {
    loop {
        match connection.read_chunk(id, usize::MAX) {
            Ok(Some(chunk)) => {
                assert!(chunk.iter().all(|found| *found == byte));
                *read += chunk.len();
            }
            Ok(None) => return true,
            Err(ReadError::Blocked | ReadError::Unknown) => return false,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn versions(world: &mut World) -> [Version; 2] {
    [
        world.client.connection().version(),
        world.server.connection().version(),
    ]
}

/// Every pair of preferences: which version is chosen, and which packets have which version.
#[test]
fn ends_agree_on_version_that_server_prefers() {
    let cases: [(&[Version], &[Version], Version); 11] = [
        (&[ONE, TWO], &[ONE, TWO], ONE),
        (&[ONE, TWO], &[TWO, ONE], TWO),
        (&[TWO, ONE], &[ONE, TWO], ONE),
        (&[TWO, ONE], &[TWO, ONE], TWO),
        (&[ONE], &[TWO, ONE], ONE),
        (&[TWO], &[ONE, TWO], TWO),
        (&[TWO], &[TWO], TWO),
        (&[ONE], &[ONE], ONE),
        (&[ONE, TWO], &[TWO], TWO),
        (&[TWO, ONE], &[ONE], ONE),
        (&[TWO, ONE], &[TWO], TWO),
    ];
    for (client, server, expected) in cases {
        let mut world = World::new(speaking(client, server), path(CLEAN, 1), 1);
        let seen = record(&mut world);
        world.handshake();
        assert_eq!(versions(&mut world), [expected; 2], "{client:?} {server:?}");
        // RFC 9368 §2.5.
        let first = if client.contains(&ONE) { ONE } else { TWO };
        let negotiated = !server.contains(&first);
        let negotiations = of(&seen, HeaderName::VersionNegotiation).len();
        assert_eq!(
            negotiations,
            usize::from(negotiated),
            "{client:?} {server:?}"
        );
        let handshake = of(&seen, HeaderName::Handshake);
        assert_eq!(handshake, [(false, expected), (true, expected)].into());
        let from_server: Vec<_> = of(&seen, HeaderName::Initial)
            .into_iter()
            .filter(|(up, _)| !up)
            .collect();
        // An acknowledgement before the whole ClientHello has arrived keeps the first version.
        assert!(from_server.contains(&(false, expected)));
        let sent = seen.lock().expect("one thread")[0];
        assert_eq!(sent, (Direction::Up, first, HeaderName::Initial));
        exchange(&mut world);
    }
}

/// RFC 9368 §2.3: a compatible switch costs no round trip.
#[test]
fn compatible_switch_takes_no_longer_than_none() {
    let took = |server: &[Version]| {
        let mut world = World::new(speaking(&[ONE, TWO], server), path(CLEAN, 1), 1);
        world.handshake();
        (world.now, world.client.connection().version())
    };
    let ((without, one), (with, two)) = (took(&[ONE, TWO]), took(&[TWO, ONE]));
    assert_eq!((one, two), (ONE, TWO));
    assert!(with.as_nanos().abs_diff(without.as_nanos()) < 1_000_000);
}

#[test]
fn switch_completes_under_loss_and_reordering() {
    for spec in [
        "rate=100M delay=20ms queue=250 loss=30%",
        "rate=100M delay=20ms queue=250 reorder=20%:30ms",
    ] {
        for seed in 0..20 {
            for (client, server) in [([ONE, TWO], [TWO, ONE]), ([TWO, ONE], [ONE, TWO])] {
                let mut setup = speaking(&client, &server);
                setup.client.handshake_timeout = Duration::from_secs(120);
                setup.server.handshake_timeout = Duration::from_secs(120);
                setup.client.idle_timeout = Duration::ZERO;
                setup.server.idle_timeout = Duration::ZERO;
                let mut world = World::new(setup, path(spec, seed), seed);
                world.connect();
                let done = world.run_until(Duration::from_secs(120), |world| {
                    world.client.connection().is_confirmed()
                });
                assert!(done, "{spec} seed {seed}");
                assert_eq!(versions(&mut world), [server[0]; 2], "{spec} seed {seed}");
            }
        }
    }
}

/// RFC 9369 §4.1: Retry has the original version, and authentication of it survives the switch.
#[test]
fn retry_has_original_version_before_switch() {
    let mut setup = speaking(&[ONE, TWO], &[TWO, ONE]);
    setup.always_retry = true;
    let mut world = World::new(setup, path(CLEAN, 1), 1);
    let seen = record(&mut world);
    world.handshake();
    assert_eq!(of(&seen, HeaderName::Retry), [(false, ONE)].into());
    assert_eq!(versions(&mut world), [TWO; 2]);
    assert!(world.client.connection().retried());
    exchange(&mut world);
}

#[test]
fn retry_of_version_2_is_answered() {
    let mut setup = speaking(&[TWO], &[TWO, ONE]);
    setup.always_retry = true;
    let mut world = World::new(setup, path(CLEAN, 1), 1);
    let seen = record(&mut world);
    world.handshake();
    assert_eq!(of(&seen, HeaderName::Retry), [(false, TWO)].into());
    exchange(&mut world);
}

fn close_and_drain(world: &mut World) {
    world.run_for(Duration::from_secs(1));
    let now = world.now;
    world.client.connection().close(now, 0, b"");
    world.run_for(Duration::from_secs(5));
}

/// Writes early data on a new connection and has the server read it.
fn send_early(world: &mut World) -> usize {
    let servers = world.server.connections.len();
    world.connect();
    let client = world.client.connection();
    assert!(client.has_zero_rtt());
    let id = client
        .open(Directionality::Unidirectional)
        .expect("remembered limits");
    assert_eq!(client.write(id, &[9; 5000]), Ok(5000));
    client.finish(id).expect("finishes");
    let mut read = 0;
    let done = world.run_until(Duration::from_secs(10), |world| {
        if world.server.connections.len() == servers {
            return false;
        }
        let server = world.server.connection();
        let _ = server.accept(Directionality::Unidirectional);
        read_all(server, id, 9, &mut read)
    });
    assert!(done, "{read} bytes arrived");
    world.run_for(Duration::from_secs(1));
    read
}

/// RFC 9369 §5: the ticket of a connection that was switched is for the negotiated version, so
/// that the next connection begins with it, without another switch, and with early data.
#[test]
fn ticket_after_switch_is_used_with_negotiated_version() {
    let mut world = World::new(speaking(&[ONE, TWO], &[TWO, ONE]), path(CLEAN, 1), 1);
    world.handshake();
    close_and_drain(&mut world);
    let seen = record(&mut world);
    assert_eq!(send_early(&mut world), 5000);
    let client = world.client.connection();
    assert_eq!(client.zero_rtt_accepted(), Some(true));
    assert!(client.resumed());
    assert_eq!(versions(&mut world), [TWO; 2]);
    let all: BTreeSet<Version> = seen
        .lock()
        .expect("one thread")
        .iter()
        .map(|(_, version, _)| *version)
        .collect();
    assert_eq!(all, [TWO].into());
    assert_eq!(of(&seen, HeaderName::ZeroRtt), [(true, TWO)].into());
}

/// A ticket of version 1 is of no use once the server prefers version 2: the handshake is full,
/// and the early data is sent again (RFC 9369 §5). 0-RTT packets keep the original version (§4.1).
#[test]
fn ticket_of_other_version_is_rejected_and_early_data_resent() {
    let mut world = World::new(speaking(&[ONE, TWO], &[ONE, TWO]), path(CLEAN, 1), 1);
    world.handshake();
    close_and_drain(&mut world);
    world.setup.server.versions = VersionPreference::new(&[TWO, ONE]).expect("versions");
    world.restart_server(7);
    let seen = record(&mut world);
    assert_eq!(send_early(&mut world), 5000);
    let client = world.client.connection();
    assert_eq!(client.zero_rtt_accepted(), Some(false));
    assert!(!client.resumed());
    assert_eq!(versions(&mut world), [TWO; 2]);
    assert_eq!(of(&seen, HeaderName::ZeroRtt), [(true, ONE)].into());
}

/// The same the other way round: from version 2, with which the ticket makes the client begin.
#[test]
fn client_with_ticket_of_version_2_is_switched_to_version_1() {
    let mut world = World::new(speaking(&[ONE, TWO], &[TWO, ONE]), path(CLEAN, 1), 1);
    world.handshake();
    close_and_drain(&mut world);
    world.setup.server.versions = VersionPreference::new(&[ONE, TWO]).expect("versions");
    world.restart_server(7);
    let seen = record(&mut world);
    assert_eq!(send_early(&mut world), 5000);
    let client = world.client.connection();
    assert_eq!(client.zero_rtt_accepted(), Some(false));
    assert_eq!(versions(&mut world), [ONE; 2]);
    assert_eq!(of(&seen, HeaderName::ZeroRtt), [(true, TWO)].into());
    assert_eq!(of(&seen, HeaderName::VersionNegotiation).len(), 0);
    assert_eq!(
        of(&seen, HeaderName::Handshake),
        [(false, ONE), (true, ONE)].into()
    );
    exchange(&mut world);
}

/// The server has stopped speaking the ticket's version: Version Negotiation, and the early data
/// arrives all the same, once.
#[test]
fn early_data_is_resent_after_version_negotiation() {
    let mut world = World::new(speaking(&[ONE, TWO], &[TWO, ONE]), path(CLEAN, 1), 1);
    world.handshake();
    close_and_drain(&mut world);
    world.setup.server.versions = VersionPreference::V1_ONLY;
    world.restart_server(7);
    assert_eq!(send_early(&mut world), 5000);
    let now = world.now;
    let client = world.client.connection();
    assert_eq!(client.version(), ONE);
    assert_eq!(client.zero_rtt_accepted(), Some(false));
    assert_eq!(client.stats(now).in_flight, 0);
    client.check_invariants();
    let events = world.client.app.events.values().flatten();
    let rejections = events.filter(|event| **event == Event::ZeroRttRejected);
    assert_eq!(rejections.count(), 1);
    let negotiations = world.server.endpoint.counters().negotiations;
    assert!(negotiations > 0);
    // The new ticket is of version 1.
    close_and_drain(&mut world);
    assert_eq!(send_early(&mut world), 5000);
    let client = world.client.connection();
    assert_eq!(client.zero_rtt_accepted(), Some(true));
    let now = world.server.endpoint.counters().negotiations;
    assert_eq!(now, negotiations, "it begins with the ticket's version");
}

/// RFC 9369 §5: a NEW_TOKEN of a switched connection is for the negotiated version.
#[test]
fn address_token_validates_only_its_own_version() {
    let mut setup = speaking(&[ONE, TWO], &[TWO, ONE]);
    setup.always_retry = true;
    let mut world = World::new(setup, path(CLEAN, 1), 1);
    world.handshake();
    close_and_drain(&mut world);
    let sessions = world.setup.sessions.clone();
    assert_eq!(sessions.take_token(&server_id(), ONE), None);
    let token = sessions.take_token(&server_id(), TWO).expect("a token");

    // Replayed with version 1, it validates nothing …
    sessions.clear();
    assert!(sessions.put_token(&server_id(), ONE, token.clone()));
    world.setup.client.versions = VersionPreference::V1_ONLY;
    world.restart_client(5);
    let before = world.server.endpoint.counters().retries;
    world.handshake();
    assert_eq!(world.server.endpoint.counters().retries, before + 1);
    close_and_drain(&mut world);

    // … and with its own it does.
    sessions.clear();
    assert!(sessions.put_token(&server_id(), TWO, token));
    world.setup.client.versions = VersionPreference::new(&[TWO]).expect("a version");
    world.restart_client(6);
    world.handshake();
    assert_eq!(world.server.endpoint.counters().retries, before + 1);
    assert!(!world.client.connection().retried());
}

/// RFC 9000 §10.3: a stateless reset has no version.
#[test]
fn stateless_reset_ends_version_2_connection() {
    let mut world = World::new(speaking(&[ONE, TWO], &[TWO, ONE]), path(CLEAN, 1), 1);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    world.restart_server(7);
    let client = world.client.connection();
    let id = client.open(Directionality::Unidirectional).expect("credit");
    client.write(id, &[1; 1000]).expect("writes");
    world.run_for(Duration::from_secs(1));
    let error = world.client.connection().error();
    assert_eq!(error, Some(&ConnectionError::StatelessReset));
}

#[test]
fn client_without_version_of_server_ends_with_version_mismatch() {
    for (client, server) in [(ONE, TWO), (TWO, ONE)] {
        let mut world = World::new(speaking(&[client], &[server]), path(CLEAN, 1), 1);
        world.connect();
        world.run_for(Duration::from_secs(1));
        let error = world.client.connection().error();
        assert_eq!(error, Some(&ConnectionError::VersionMismatch));
        assert!(world.server.endpoint.counters().negotiations > 0);
        assert!(world.server.connections.is_empty());
    }
}

/// The connection keeps its version when the client's address changes.
#[test]
fn version_2_connection_migrates() {
    let mut world = World::new(speaking(&[ONE, TWO], &[TWO, ONE]), path(CLEAN, 1), 1);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    let to: SocketAddr = "10.0.9.9:5000".parse().expect("an address");
    let now = world.now;
    let moved = world.client.connection().migrate(now, Some(to.ip()));
    moved.expect("migrates");
    world.client.address = to;
    exchange(&mut world);
    assert_eq!(versions(&mut world), [TWO; 2]);
    assert_eq!(world.server.connection().remote_address(), to);
}
