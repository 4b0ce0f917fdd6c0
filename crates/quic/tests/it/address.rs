//! Address validation and packets without a connection: Retry, tokens, amplification, Version Negotiation, stateless reset.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::connection::ConnectionError;
use clearway_testing::{Setup, World, path};

const CLEAN: &str = "rate=100M delay=5ms queue=250";

fn close_and_drain(world: &mut World) {
    let now = world.now;
    world.client.connection().close(now, 0, b"");
    world.run_for(Duration::from_secs(2));
}

#[test]
fn client_without_token_is_not_validated() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 1);
    world.handshake();
    assert_eq!(world.server.validated, 0);
}

#[test]
fn handshake_with_retry_completes() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let mut world = World::new(setup, path(CLEAN, 1), 1);
    world.handshake();
    let counters = world.server.endpoint.counters();
    assert_eq!((counters.retries, counters.accepted), (1, 1));
}

#[test]
fn new_token_avoids_retry_on_next_connection() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let mut world = World::new(setup, path(CLEAN, 1), 2);
    world.handshake();
    close_and_drain(&mut world);
    let (first, before) = (world.now, world.server.endpoint.counters().retries);
    world.handshake();
    let after = world.server.endpoint.counters().retries;
    assert_eq!(after, before, "validated by token");
    assert_eq!(
        world.server.validated, 2,
        "by a token of Retry, and by this one"
    );
    assert!((world.now - first).as_millis() < 40, "no round trip more");
}

/// It is good for one use, which must not be the look at a packet that is then looked at again.
#[test]
fn new_token_avoids_retry_for_a_client_about_which_the_server_decides_later() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let mut world = World::new(setup, path(CLEAN, 1), 2);
    world.server.postponing = true;
    world.handshake();
    close_and_drain(&mut world);
    let before = world.server.endpoint.counters().retries;
    world.handshake();
    assert_eq!(world.server.endpoint.counters().retries, before);
}

#[test]
fn token_from_other_address_does_not_validate() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let mut world = World::new(setup, path(CLEAN, 1), 3);
    world.handshake();
    close_and_drain(&mut world);
    world.client.address = "10.9.9.9:5000".parse().expect("an address");
    let before = world.server.endpoint.counters().retries;
    world.handshake();
    assert!(world.server.endpoint.counters().retries > before);
}

/// All clients behind a load balancer share its address, so a token that one of them got would
/// validate whatever address another one forges.
#[test]
fn token_of_trusted_source_does_not_validate() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    setup.limits.trusted = vec!["10.0.0.0/8".parse().expect("a network")];
    let mut world = World::new(setup, path(CLEAN, 1), 5);
    world.handshake();
    close_and_drain(&mut world);
    let before = world.server.endpoint.counters().retries;
    world.handshake();
    assert!(world.server.endpoint.counters().retries > before);
}

#[test]
fn tokens_are_valid_after_restart_with_same_key() {
    let mut setup = Setup::new();
    setup.always_retry = true;
    let mut world = World::new(setup, path(CLEAN, 1), 4);
    world.handshake();
    close_and_drain(&mut world);
    world.restart_server(99);
    world.handshake();
    assert_eq!(world.server.endpoint.counters().retries, 0);
}

/// Nine certificates of a kilobyte each do not fit three times 1,200 bytes.
fn long_chain() -> Setup {
    let certificate = |names: usize| {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let names: Vec<_> = (0..names).map(|n| format!("name-{n}.example")).collect();
        let names = std::iter::once("localhost".into()).chain(names);
        let cert = rcgen::CertificateParams::new(names.collect::<Vec<String>>())
            .expect("parameters")
            .self_signed(&key)
            .expect("a certificate");
        (cert.pem(), key.serialize_pem())
    };
    let (leaf, key) = certificate(50);
    let rest: String = (0..8).map(|_| certificate(50).0).collect();
    Setup::with_identity(&leaf, &format!("{leaf}{rest}"), &key)
}

#[test]
fn handshake_with_nine_certificates_completes() {
    for seed in 0..20 {
        let link = path("rate=10M delay=15ms queue=25 loss=30%", seed);
        let mut world = World::new(long_chain(), link, seed);
        world.connect();
        let done = world.run_until(Duration::from_secs(120), |world| {
            world.client.connection().is_confirmed()
        });
        assert!(done, "seed {seed}: {:?}", world.client.connection().error());
    }
}

/// The client falls silent after a part or all of its ClientHello: whatever the server's
/// timers do for two minutes, it sends no more than three times what it got.
#[test]
fn server_sends_at_most_three_times_received_bytes() {
    for heard in 1..3 {
        let mut world = World::new(long_chain(), path(CLEAN, 1), 5);
        let sums = Rc::new(Cell::new((0, 0, 0)));
        let seen = sums.clone();
        world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
            let (n, up, down) = seen.get();
            match direction {
                // Handshake packets would prove the address.
                Direction::Up if n < heard && packet.data[0] & 0x30 == 0 => {
                    seen.set((n + 1, up + packet.data.len(), down));
                    true
                }
                Direction::Up => false,
                Direction::Down => {
                    seen.set((n, up, down + packet.data.len()));
                    true
                }
            }
        }));
        world.connect();
        world.run_for(Duration::from_secs(25));
        if world.server.first().is_some_and(|c| c.is_confirmed()) {
            panic!("the filter let the handshake through");
        }
        let (_, up, down) = sums.get();
        assert!(heard == 1 || down > up, "it answers: {up} {down}");
        assert!(down <= 3 * up, "{down} bytes for {up}");
    }
}

#[test]
fn probe_with_zero_length_cids_gets_version_negotiation() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 6);
    let answer = Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = answer.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Down {
            seen.borrow_mut().extend_from_slice(&packet.data);
        }
        true
    }));
    let mut probe = vec![0; 1207];
    probe[0] = 0xc0;
    probe[1..5].copy_from_slice(&0x1a2a_3a4a_u32.to_be_bytes());
    let from: SocketAddr = "10.0.0.1:5000".parse().expect("an address");
    let to = world.server.address;
    world.deliver(Direction::Up, Packet::new(from, to, probe));
    let answer = answer.borrow();
    assert_eq!(answer[0] & 0x80, 0x80);
    assert_eq!(
        answer[1..7],
        [0; 6],
        "version 0 and two empty connection IDs"
    );
    assert!(answer[7..].chunks(4).any(|v| v == 1u32.to_be_bytes()));
    assert_eq!(world.server.endpoint.counters().negotiations, 1);
}

#[test]
fn client_without_common_version_closes() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 7);
    world.filter = Some(Box::new(|direction, packet: &mut Packet| {
        match direction {
            // The server sees a version it does not know …
            Direction::Up => packet.data[1..5].copy_from_slice(&[0x5b, 0x33, 0x43, 0xcf]),
            // … and offers, on its way altered, only others.
            Direction::Down => {
                let at = packet.data.len() - 4;
                packet.data.truncate(at);
                for chunk in packet.data[23..].chunks_mut(4) {
                    chunk.copy_from_slice(&[0x5b, 0x33, 0x43, 0xcf][..chunk.len()]);
                }
            }
        }
        true
    }));
    world.connect();
    world.run_for(Duration::from_secs(1));
    let error = world.client.connection().error();
    assert_eq!(error, Some(&ConnectionError::VersionMismatch));
    assert!(world.server.connections.is_empty());
}

#[test]
fn version_negotiation_listing_our_version_is_ignored() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 8);
    let mut first = true;
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up && std::mem::take(&mut first) {
            packet.data[1..5].copy_from_slice(&[0x5b, 0x33, 0x43, 0xcf]);
        }
        true
    }));
    world.handshake();
    assert_eq!(world.server.endpoint.counters().negotiations, 1);
}

#[test]
fn server_without_state_sends_stateless_reset() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 9);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    world.restart_server(100);
    world.client.connection().ping();
    world.run_for(Duration::from_secs(1));
    let error = world.client.connection().error();
    assert_eq!(error, Some(&ConnectionError::StatelessReset));
    assert_eq!(world.server.endpoint.counters().resets, 1);
}

/// The reset's token belongs to whichever connection ID the client uses now,
/// not only to that of the handshake.
#[test]
fn reset_with_token_of_any_used_cid_is_recognised() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 10);
    world.handshake();
    world.server.connection().rotate_connection_ids();
    world.run_for(Duration::from_secs(1));
    world.restart_server(101);
    world.client.connection().ping();
    world.run_for(Duration::from_secs(1));
    let error = world.client.connection().error();
    assert_eq!(error, Some(&ConnectionError::StatelessReset));
}

#[test]
fn repeated_initial_is_routed_to_its_connection() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 11);
    let mut first = None;
    let copy = Rc::new(std::cell::RefCell::new(None));
    let kept = copy.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up && first.is_none() {
            first = Some(());
            *kept.borrow_mut() = Some(packet.clone());
        }
        true
    }));
    world.connect();
    world.run_for(Duration::from_millis(7));
    let again = copy.borrow_mut().take().expect("an Initial");
    world.deliver(Direction::Up, again);
    world.run_for(Duration::from_secs(1));
    assert!(world.client.connection().is_confirmed());
    assert_eq!(world.server.connections.len(), 1);
    assert_eq!(world.server.endpoint.counters().accepted, 1);
}
