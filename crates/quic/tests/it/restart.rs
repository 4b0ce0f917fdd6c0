//! A server that is restarted with the same secret: its clients learn at once that their connections are
//! gone (RFC 9000 §10.3).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::cid::ConnectionId;
use clearway_quic::connection::ConnectionError;
use clearway_quic::crypto::ResetKey;
use clearway_quic::stream::{Directionality, WriteError};

use clearway_testing::{Setup, World, path};

const LINK: &str = "rate=20M delay=10ms queue=1000";

fn connected() -> World {
    let mut world = World::new(Setup::new(), path(LINK, 1), 1);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    world
}

/// How long the client takes to find out after a restart.
fn time_to_learn(world: &mut World) -> Duration {
    world.restart_server(7);
    let restarted = world.now;
    let learned = world.run_until(Duration::from_secs(40), |world| {
        world.client.connection().error().is_some()
    });
    assert!(learned, "the client never learns");
    let error = world.client.connection().error();
    assert_eq!(error, Some(&ConnectionError::StatelessReset));
    world.now - restarted
}

#[test]
fn sending_client_learns_of_restart_within_an_rtt() {
    let mut world = connected();
    let id = world.ask();
    let client = world.client.connection();
    client.write(id, &[0; 100_000]).expect("writes");
    world.run_for(Duration::from_millis(15));
    let time = time_to_learn(&mut world);
    assert!(time <= Duration::from_millis(50), "{time:?}");
}

#[test]
fn pinging_client_learns_of_restart_within_an_rtt() {
    let mut world = connected();
    world.client.connection().ping();
    let time = time_to_learn(&mut world);
    assert!(time <= Duration::from_millis(50), "{time:?}");
}

/// Everything that the client sent was acknowledged; it waits for an answer.
#[test]
fn waiting_client_learns_of_restart_within_a_second() {
    let mut world = connected();
    world.ask();
    world.run_for(Duration::from_millis(200));
    let time = time_to_learn(&mut world);
    assert!(time <= Duration::from_secs(1), "{time:?}");
}

#[test]
fn downloading_client_learns_of_restart_within_a_second() {
    let mut world = connected();
    let id = world.ask();
    for _ in 0..20 {
        world.run_for(Duration::from_millis(20));
        let server = world.server.connection();
        if server.accept(Directionality::Bidirectional).is_some() {
            while !matches!(server.write(id, &[0; 65_536]), Err(WriteError::Blocked)) {}
        }
        let client = world.client.connection();
        while let Ok(Some(_)) = client.read_chunk(id, usize::MAX) {}
    }
    let time = time_to_learn(&mut world);
    assert!(time <= Duration::from_secs(1), "{time:?}");
}

/// From the smallest that leaves room for a smaller answer.
#[test]
fn packet_of_any_size_gets_smaller_stateless_reset() {
    let mut world = connected();
    let sent = Rc::new(RefCell::new(Vec::new()));
    let sink = sent.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        sink.borrow_mut().push((direction, packet.data.clone()));
        false
    }));
    world.client.connection().ping();
    world.flush();
    let (_, ping) = sent.borrow_mut().pop().expect("a PING");
    let dcid = ConnectionId::new(&ping[1..9]).expect("eight bytes");
    let token = ResetKey::new(&[9; 32]).token(&dcid);
    world.restart_server(7);
    for size in 1..1500 {
        // Whether it would open does not matter to a server without its keys.
        let mut data = ping.clone();
        data.resize(size, 0);
        world.run_for(Duration::from_millis(1));
        let packet = Packet::new(world.client.address, world.server.address, data);
        world.deliver(Direction::Up, packet);
        let answer = sent.borrow_mut().pop();
        if size < 22 {
            assert_eq!(answer, None, "{size} bytes");
            continue;
        }
        let (direction, reset) = answer.unwrap_or_else(|| panic!("{size} bytes"));
        assert_eq!(direction, Direction::Down);
        assert!(reset.len() < size && reset.len() >= 21, "{size} bytes");
        assert_eq!(reset[reset.len() - 16..], token.0, "{size} bytes");
    }
}

/// RFC 9000 §10.3: any datagram that ends in the token is a stateless reset, as
/// another implementation may write one.
#[test]
fn stateless_reset_is_recognised_whatever_its_first_bytes() {
    let form = |first: u8, version: [u8; 4], len: usize| {
        let mut bytes = vec![first; len];
        bytes[1..5].copy_from_slice(&version);
        bytes
    };
    let mut forms = Vec::new();
    for first in [0x00, 0x40, 0x7f, 0x80, 0xc0, 0xd0, 0xe0, 0xf0, 0xff] {
        for version in [[0; 4], [0, 0, 0, 1], [0x1a; 4], [0xff; 4]] {
            for len in [21, 22, 42, 100, 1200, 1452] {
                forms.push(form(first, version, len));
            }
        }
    }
    for mut bytes in forms {
        let mut world = connected();
        // Each connection ID that the client uses has a token of its own.
        let caught = Rc::new(RefCell::new(None));
        let sink = caught.clone();
        world.filter = Some(Box::new(move |_, packet: &mut Packet| {
            *sink.borrow_mut() = Some(packet.data.clone());
            false
        }));
        world.client.connection().ping();
        world.flush();
        let ping = caught.borrow_mut().take().expect("a PING");
        let token = ResetKey::new(&[9; 32]).token(&ping[1..9]);
        let at = bytes.len() - 16;
        bytes[at..].copy_from_slice(&token.0);
        let looks = (bytes[0], bytes[1], bytes.len());
        let packet = Packet::new(world.server.address, world.client.address, bytes);
        world.deliver(Direction::Down, packet);
        let error = world.client.connection().error();
        assert_eq!(error, Some(&ConnectionError::StatelessReset), "{looks:x?}");
    }
}

/// A restart in every half millisecond of a handshake: the client begins anew with
/// its next flight, or hears that its connection is gone. Only one that has nothing
/// but an Initial packet of the old server's cannot know: the token by which it
/// would is in the packets behind it.
#[test]
fn restart_during_handshake_is_detected_or_survived() {
    let (mut learned, mut survived, mut unaware) = (0, 0, 0);
    for half_millis in 0..130 {
        let mut world = World::new(Setup::new(), path(LINK, 1), 1);
        world.connect();
        world.run_for(Duration::from_micros(half_millis * 500));
        world.restart_server(7);
        let restarted = world.now;
        world.run_until(Duration::from_secs(60), |world| {
            let now = world.now;
            let client = world.client.connection();
            // Before that it has nothing to say but the handshake.
            if client.is_confirmed() {
                client.ping();
            }
            client.error().is_some()
                || client.is_confirmed() && now > restarted + Duration::from_secs(2)
        });
        let after = world.now - restarted;
        match world.client.connection().error() {
            None => survived += 1,
            Some(ConnectionError::StatelessReset) => {
                assert!(after < Duration::from_secs(4), "{half_millis}: {after:?}");
                learned += 1;
            }
            Some(ConnectionError::IdleTimeout) => {
                let client = world.client.connection();
                assert!(client.peer_transport_parameters().is_none());
                unaware += 1;
            }
            other => panic!("{half_millis}: {other:?} after {after:?}"),
        }
    }
    assert!(learned > 40 && survived > 10, "{learned}, {survived}");
    assert!(unaware <= 2, "{unaware}");
}

/// The limit is a rate: after a pause, at most the resets of one second are sent at once.
#[test]
fn stateless_resets_are_rate_limited() {
    let mut setup = Setup::new();
    setup.limits.resets_per_second = 10;
    let mut world = World::new(setup, path(LINK, 1), 1);
    let strike = |world: &mut World, count: u64| {
        let before = world.server.endpoint.counters();
        for i in 0..count {
            let mut data = vec![0x40; 60];
            data[1..9].copy_from_slice(&i.to_be_bytes());
            let packet = Packet::new(world.client.address, world.server.address, data);
            world.deliver(Direction::Up, packet);
        }
        let after = world.server.endpoint.counters();
        assert_eq!(
            after.resets + after.resets_withheld,
            before.resets + before.resets_withheld + count
        );
        after.resets - before.resets
    };
    world.filter = Some(Box::new(|_, _| false));
    assert_eq!(strike(&mut world, 100), 10);
    assert_eq!(strike(&mut world, 100), 0);
    world.now += Duration::from_millis(500);
    assert_eq!(strike(&mut world, 100), 5);
    world.now += Duration::from_secs(3600);
    assert_eq!(strike(&mut world, 100), 10);
}
