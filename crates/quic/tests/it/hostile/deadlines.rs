//! Handshakes that take too long: nothing that a peer sends extends the timeout.

use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Role;
use clearway_quic::connection::{ConnectionError, Forgery};
use clearway_quic::wire::PacketKind;

use crate::hostile::pair::{HostilePair, LINK, first_flight, metered_world};
use clearway_testing::{Setup, World, path};

/// Returns when the end `role` gives up a handshake that never completes, while its peer sends PINGs of
/// `kind` every five seconds.
fn given_up_after(hostile: Role, kind: PacketKind, change: impl FnOnce(&mut Setup)) -> Duration {
    let mut pair = HostilePair::begun(hostile, change);
    // Of the ends' own packets only the ClientHello arrives, and what gives the
    // hostile one the keys it needs.
    let answers = kind == PacketKind::Handshake;
    pair.world.filter = Some(Box::new(move |direction, _| {
        direction == Direction::Down && answers
    }));
    pair.world.run_for(Duration::from_millis(100));
    while pair.victim().error().is_none() {
        assert!(pair.victim().is_handshaking());
        assert!(pair.world.now.as_nanos() < 1_000_000_000_000, "for ever");
        pair.world.run_for(Duration::from_secs(1));
        // The hostile end outlives the victim.
        if (pair.world.now.as_nanos() / 1_000_000_000).is_multiple_of(5)
            && pair.victim().error().is_none()
        {
            pair.strike(&Forgery::new(kind, &[0x01]));
        }
    }
    let error = pair.victim().error().cloned();
    assert_eq!(error, Some(ConnectionError::HandshakeTimeout));
    assert!(pair.victim().is_drained(), "no closing state");
    Duration::from_nanos(pair.world.now.as_nanos())
}

fn never(setup: &mut Setup) {
    for config in [&mut setup.client, &mut setup.server] {
        config.idle_timeout = Duration::ZERO;
    }
}

#[test]
fn pings_do_not_extend_handshake_timeout() {
    for (hostile, kind) in [
        (Role::Client, PacketKind::Initial),
        (Role::Client, PacketKind::Handshake),
        (Role::Server, PacketKind::Initial),
    ] {
        let after = given_up_after(hostile, kind, |setup| {
            // The hostile end has all the time there is.
            let patient = match hostile {
                Role::Client => &mut setup.client,
                Role::Server => &mut setup.server,
            };
            patient.handshake_timeout = Duration::ZERO;
            never(setup);
        });
        assert!(
            (60..62).contains(&after.as_secs()),
            "{hostile:?} {kind:?}: {after:?}"
        );
    }
}

#[test]
fn handshake_ends_at_configured_timeout() {
    for secs in [2, 300] {
        let after = given_up_after(Role::Client, PacketKind::Initial, |setup| {
            setup.client.handshake_timeout = Duration::ZERO;
            setup.server.handshake_timeout = Duration::from_secs(secs);
            never(setup);
        });
        assert!((secs..secs + 2).contains(&after.as_secs()), "{after:?}");
    }
}

#[test]
fn handshake_timeout_of_zero_disables_it() {
    let mut setup = Setup::new();
    never(&mut setup);
    setup.client.handshake_timeout = Duration::ZERO;
    let mut world = metered_world(setup, LINK, Role::Client);
    world.server.accepting = false;
    world.connect();
    world.run_for(Duration::from_secs(1_000));
    assert_eq!(world.client.connection().error(), None);
}

#[test]
fn client_without_answer_fails_at_handshake_timeout() {
    let mut setup = Setup::new();
    never(&mut setup);
    let mut world = metered_world(setup, LINK, Role::Client);
    world.server.accepting = false;
    world.connect();
    world.run_for(Duration::from_secs(61));
    let error = world.client.connection().error();
    assert_eq!(error, Some(&ConnectionError::HandshakeTimeout));
    assert!(world.client.endpoint.is_empty());
}

/// The timeout is only for the handshake.
#[test]
fn completed_handshake_has_no_timeout() {
    let mut setup = Setup::new();
    setup.client.keep_alive = Some(Duration::from_secs(10));
    let mut world = metered_world(setup, LINK, Role::Server);
    world.handshake();
    world.run_for(Duration::from_secs(300));
    assert_eq!(world.client.connection().error(), None);
    assert_eq!(world.server.connection().error(), None);
    let now = world.now;
    world.server.connection().expire_handshake(now);
    assert_eq!(world.server.connection().error(), None);
}

/// A ClientHello with a post-quantum key share needs two datagrams.
#[test]
fn incomplete_client_hello_times_out_early() {
    for half in [0, 1] {
        let mut world = metered_world(Setup::new(), LINK, Role::Server);
        let flight = first_flight(&mut world);
        assert_eq!(flight.len(), 2);
        world.filter = Some(Box::new(|_, _| false));
        world.deliver(Direction::Up, flight[half].clone());
        assert_eq!(world.server.endpoint.handshakes(), 1);
        world.run_for(Duration::from_secs(4));
        assert_eq!(world.server.endpoint.handshakes(), 1);
        world.run_for(Duration::from_secs(2));
        assert_eq!(world.server.endpoint.handshakes(), 0);
        let error = world.server.connection().error();
        assert_eq!(error, Some(&ConnectionError::HandshakeTimeout));
    }
}

#[test]
fn client_hello_split_in_any_order_completes() {
    for order in [[0, 1], [1, 0]] {
        let mut world = metered_world(Setup::new(), LINK, Role::Server);
        let flight = first_flight(&mut world);
        for which in order {
            // A second passes between both.
            world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
            world.deliver(Direction::Up, flight[which].clone());
            world.run_for(Duration::from_secs(1));
        }
        world.filter = None;
        let done = world.run_until(Duration::from_secs(5), |world| {
            world.client.connection().is_confirmed()
        });
        assert!(done, "{order:?}");
    }
}

/// With the default deadlines, not those of the test of long handshakes.
#[test]
fn handshake_under_30_percent_loss_meets_default_timeouts() {
    let mut late = 0;
    for seed in 0..300 {
        let link = path("rate=10M delay=15ms queue=25 loss=30%", seed);
        let mut world = World::new(Setup::new(), link, seed);
        world.connect();
        let done = world.run_until(Duration::from_secs(60), |world| {
            world.client.connection().is_confirmed()
        });
        let first = world.server.endpoint.counters().accepted;
        assert!(first <= 1 || !done, "seed {seed}: {first} attempts");
        late += u32::from(!done);
    }
    assert_eq!(late, 0);
}

/// Clients whose address is proven by a Retry fill the room under load.
fn crowd(retry_above: usize, count: usize) -> World {
    let mut setup = Setup::new();
    setup.limits.retry_above = retry_above;
    setup.always_retry = true;
    let mut world = metered_world(setup, LINK, Role::Server);
    let meter = world.meter.as_mut().expect("metered_world");
    meter.bound = 64 << 20;
    // Of the server's answers only Retry packets arrive.
    world.filter = Some(Box::new(|direction, packet: &mut Packet| {
        direction == Direction::Up || packet.data[0] & 0xb0 == 0xb0
    }));
    for _ in 0..count {
        world.connect();
    }
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.server.endpoint.handshakes(), count);
    world.client.connections.clear();
    world
}

/// A newcomer makes the server look for room.
fn knock(world: &mut World) {
    let (from, to) = (
        "10.7.7.7:7".parse().expect("an address"),
        world.server.address,
    );
    let packet = Packet::new(from, to, vec![0xff; 20]);
    world.deliver(Direction::Up, packet);
    world.flush();
}

#[test]
fn handshakes_under_load_time_out_after_ten_seconds() {
    let mut world = crowd(20, 30);
    world.run_for(Duration::from_secs(9));
    knock(&mut world);
    assert_eq!(world.server.endpoint.handshakes(), 30);
    world.run_for(Duration::from_secs(2));
    knock(&mut world);
    // Until there is no load any more.
    assert_eq!(world.server.endpoint.handshakes(), 19);
    assert_eq!(world.server.endpoint.counters().overdue, 11);
    let expired = world.server.connections.values();
    let expired = expired.filter(|c| c.error() == Some(&ConnectionError::HandshakeTimeout));
    assert_eq!(expired.count(), 11);
}

#[test]
fn handshakes_without_load_have_a_minute() {
    let mut world = crowd(1_000, 30);
    world.run_for(Duration::from_secs(25));
    knock(&mut world);
    assert_eq!(world.server.endpoint.handshakes(), 30);
    assert_eq!(world.server.endpoint.counters().overdue, 0);
}

/// A client whose first flight has left, and those datagrams.
fn waiting_client() -> (World, Vec<Packet>) {
    let mut world = metered_world(Setup::new(), LINK, Role::Client);
    let flight = first_flight(&mut world);
    (world, flight)
}

/// Tells the client what an ICMP error that quotes `datagram` says.
fn report_closed_port(world: &mut World, datagram: &[u8]) {
    let quoted = &datagram[..64];
    let sender = world.client.endpoint.find_quoted(quoted);
    let sender = sender.expect("the client's own packet");
    let client = world.client.connections.get_mut(&sender);
    client.expect("it is open").on_port_unreachable();
}

/// Nobody answers, and the server's host says that nobody will. The client tries a little longer.
#[test]
fn closed_port_shortens_wait_for_silent_server() {
    let (mut world, flight) = waiting_client();
    world.filter = Some(Box::new(|_, _| false));
    report_closed_port(&mut world, &flight[0].data);
    world.run_for(Duration::from_millis(3_400));
    assert_eq!(world.client.connection().error(), None);
    world.run_for(Duration::from_millis(200));
    let error = world.client.connection().error();
    assert_eq!(error, Some(&ConnectionError::HandshakeTimeout));
}

/// Whoever saw the client's first packet can send such an error. Any answer of the server shows that
/// it is wrong, before or after it.
#[test]
fn closed_port_is_ignored_once_the_server_has_answered() {
    for before in [true, false] {
        let (mut world, flight) = waiting_client();
        let quoted = flight[0].data.clone();
        if before {
            report_closed_port(&mut world, &quoted);
        }
        for packet in flight {
            world.deliver(Direction::Up, packet);
        }
        // One datagram of the server arrives, and for a while no other.
        let mut arrived = 0;
        world.filter = Some(Box::new(move |direction, _| {
            arrived += usize::from(direction == Direction::Down);
            direction == Direction::Down && arrived == 1
        }));
        world.run_for(Duration::from_secs(1));
        if !before {
            report_closed_port(&mut world, &quoted);
        }
        world.run_for(Duration::from_secs(9));
        assert_eq!(world.client.connection().error(), None);
        assert!(world.client.connection().is_handshaking());
    }
}

#[test]
fn quote_of_another_packet_finds_no_connection() {
    let (world, flight) = waiting_client();
    let find = |quoted: &[u8]| world.client.endpoint.find_quoted(quoted);
    let quoted = &flight[0].data[..64];
    assert!(find(quoted).is_some());
    // First byte, version, Destination Connection ID; then the Source Connection ID.
    let source = 1 + 4 + 1 + 8;
    for len in 0..source + 9 {
        assert_eq!(find(&quoted[..len]), None, "{len} bytes");
    }
    for at in source..source + 9 {
        let mut other = quoted.to_vec();
        other[at] ^= 1;
        assert_eq!(find(&other), None, "byte {at}");
    }
    // Anybody can make up a short header and an empty connection ID.
    assert_eq!(find(&[0x40; 64]), None);
    assert_eq!(find(&[0xc0, 0, 0, 0, 1, 0, 0]), None);
}
