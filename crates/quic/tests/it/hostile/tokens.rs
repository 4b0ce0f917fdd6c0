//! Tokens and early data that are replayed, used from another address, or forged (RFC 9000 §8.1.3,
//! RFC 9001 §9.2).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::connection::ConnectionError;
use clearway_quic::crypto::{AddressToken, RetryToken, TokenKey};
use clearway_quic::error::Code;
use clearway_quic::rng::Rng;
use clearway_quic::stream::Directionality;
use clearway_quic::wire::Version;

use crate::hostile::pair::{LINK, metered_world};
use clearway_testing::{Setup, UNIX_ORIGIN, World, server_id};

type CapturedDatagrams = Arc<Mutex<Vec<Packet>>>;

/// Records what the client sends, letting it through if `pass`.
fn record(world: &mut World, pass: bool) -> CapturedDatagrams {
    let caught = CapturedDatagrams::default();
    let sink = caught.clone();
    world.filter = Some(Box::new(move |direction, packet| {
        if direction == Direction::Up {
            sink.lock().expect("one thread").push(packet.clone());
        }
        pass
    }));
    caught
}

/// A connection that ends, having left a ticket and a token.
fn remembered() -> World {
    let mut world = metered_world(Setup::new(), LINK, Role::Server);
    world.handshake();
    world.run_for(Duration::from_millis(100));
    let now = world.now;
    world.client.connection().close(now, 0, b"");
    world.run_for(Duration::from_secs(10));
    world.client.connections.clear();
    world.server.connections.clear();
    world
}

#[test]
fn replayed_early_data_is_rejected() {
    let mut world = remembered();
    let caught = record(&mut world, true);
    world.connect();
    let client = world.client.connection();
    assert!(client.has_zero_rtt());
    let id = client.open(Directionality::Bidirectional).expect("credit");
    client.write(id, b"pay once").expect("early data");
    world.flush();
    let first_flight: Vec<Packet> = caught.lock().expect("one thread").clone();
    world.filter = None;
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.client.connection().zero_rtt_accepted(), Some(true));
    let read = |world: &mut World| {
        let server = world.server.connection();
        let id = server.accept(Directionality::Bidirectional)?;
        server.read(id, &mut [0; 32]).ok().flatten()
    };
    assert_eq!(read(&mut world), Some(8), "the first time");

    // The first connection is over and forgotten; then the very same flight.
    let now = world.now;
    world.client.connection().close(now, 0, b"");
    world.run_for(Duration::from_secs(10));
    world.client.connections.clear();
    world.server.connections.clear();
    for packet in first_flight {
        world.deliver(Direction::Up, packet);
        world.flush();
    }
    assert_eq!(world.server.connections.len(), 1, "it is a handshake");
    assert_eq!(read(&mut world), None, "but not early data again");
}

/// What a client with this token in its Initial is told.
fn refusal(world: &mut World) -> Option<(Code, String)> {
    match world.client.connection().error() {
        Some(ConnectionError::PeerTransport(error)) => Some((error.code, error.reason.to_string())),
        Some(other) => panic!("{other}"),
        None => None,
    }
}

/// The client's second Initial, with the Retry's token in it.
fn answer_to_retry() -> (World, Vec<Packet>) {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let mut world = metered_world(setup, LINK, Role::Server);
    let caught = record(&mut world, true);
    world.connect();
    world.flush();
    caught.lock().expect("one thread").clear();
    world.filter = None;
    world.run_until(Duration::from_millis(9), |_| false);
    let caught = record(&mut world, false);
    world.run_for(Duration::from_millis(10));
    world.filter = None;
    let answer = caught.lock().expect("one thread").clone();
    assert!(!answer.is_empty());
    (world, answer)
}

#[test]
fn retry_token_from_other_address_is_rejected() {
    let (mut world, answer) = answer_to_retry();
    for mut packet in answer {
        packet.src = "10.7.7.7:7777".parse().expect("an address");
        world.deliver(Direction::Up, packet);
    }
    assert!(world.server.connections.is_empty());
    assert_eq!(world.server.endpoint.counters().accepted, 0);
}

/// The client gets an error, because it may be genuine with a changed address.
#[test]
fn expired_retry_token_is_invalid_token() {
    let (mut world, answer) = answer_to_retry();
    world.now += Duration::from_secs(20);
    for packet in answer {
        world.deliver(Direction::Up, packet);
    }
    assert!(world.server.connections.is_empty());
    world.run_for(Duration::from_millis(6));
    let (code, words) = refusal(&mut world).expect("closed");
    assert_eq!(code, Code::INVALID_TOKEN);
    assert_eq!(words, "token expired");
}

#[test]
fn forged_token_is_treated_as_absent() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    setup
        .sessions
        .put_token(&server_id(), Version::V1, vec![0x4e; 70]);
    let mut world = metered_world(setup, LINK, Role::Server);
    world.handshake();
    assert!(
        world.server.endpoint.counters().retries > 0,
        "asked to validate, as anybody"
    );
}

fn address_token(key: [u8; 32], issued: u64, ip: [u8; 4]) -> Vec<u8> {
    let mut rng = Rng::from_seed([5; 32]);
    let mut out = Vec::new();
    let token = AddressToken {
        version: Version::V1,
        issued,
        ip: ip.into(),
        id: [4; 16],
        path: None,
    };
    TokenKey::new(&key).seal_address(&token, &mut rng, &mut out);
    out
}

/// Returns whether a client that uses `token` for the given time gets a Retry.
fn is_asked(token: &[u8], times: u64) -> bool {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let sessions = setup.sessions.clone();
    let mut world = metered_world(setup, LINK, Role::Server);
    let mut before = 0;
    for _ in 0..times {
        before = world.server.endpoint.counters().retries;
        let _ = sessions.take_token(&server_id(), Version::V1);
        sessions.put_token(&server_id(), Version::V1, token.to_vec());
        world.client.connections.clear();
        world.server.connections.clear();
        world.handshake();
    }
    world.server.endpoint.counters().retries > before
}

#[test]
fn invalid_address_tokens_get_retry() {
    let (ours, here) = ([7; 32], [10, 0, 0, 1]);
    let genuine = address_token(ours, UNIX_ORIGIN, here);
    assert!(!is_asked(&genuine, 1), "a genuine one");
    assert!(is_asked(&genuine, 2), "it counts once");
    assert!(is_asked(&address_token([8; 32], UNIX_ORIGIN, here), 1));
    let elsewhere = address_token(ours, UNIX_ORIGIN, [10, 0, 0, 9]);
    assert!(is_asked(&elsewhere, 1), "another address");
    let month = 30 * 24 * 60 * 60;
    let expired = address_token(ours, UNIX_ORIGIN - month, here);
    assert!(is_asked(&expired, 1), "expired");
    let future = address_token(ours, UNIX_ORIGIN + month, here);
    assert!(is_asked(&future, 1), "from the future");
}

/// A genuine Retry token that is sent to another connection ID than the Retry named
/// (RFC 9000 §8.1.2): the attempt ends, as with any Retry token that is wrong.
#[test]
fn retry_token_for_other_cid_is_invalid_token() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let sessions = setup.sessions.clone();
    let mut world = metered_world(setup, LINK, Role::Server);
    let cid = |byte| ConnectionId::new(&[byte; 8]).expect("eight bytes");
    let token = RetryToken {
        version: Version::V1,
        issued: UNIX_ORIGIN,
        client: world.client.address,
        original_dcid: cid(1),
        retry_scid: cid(2),
    };
    let mut sealed = Vec::new();
    let mut rng = Rng::from_seed([5; 32]);
    TokenKey::new(&[7; 32]).seal_retry(&token, &mut rng, &mut sealed);
    sessions.put_token(&server_id(), Version::V1, sealed);
    world.connect();
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.server.endpoint.counters().accepted, 0);
    let (code, words) = refusal(&mut world).expect("closed");
    assert_eq!(code, Code::INVALID_TOKEN);
    assert_eq!(
        words,
        "the Retry token was issued for another connection ID"
    );
}
