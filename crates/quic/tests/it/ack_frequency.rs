//! How often the peer is asked to acknowledge, seen by what comes back
//! (draft-ietf-quic-ack-frequency).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use clearway_links::{Direction, LinkConfig, Path};
use clearway_quic::connection::Connection;
use clearway_quic::stream::Directionality;
use clearway_testing::{Setup, World, download, path};

fn link(spec: &str) -> LinkConfig {
    spec.parse().expect("a link")
}

/// Ack-eliciting packets per packet that came back, over a download.
fn data_per_ack(mut world: World, total: usize) -> f64 {
    world.handshake();
    let now = world.now;
    let before = world.server.connection().stats(now).counters;
    assert!(download(&mut world, total, Duration::from_secs(60)));
    let now = world.now;
    let after = world.server.connection().stats(now).counters;
    let sent = after.packets_sent - before.packets_sent;
    let back = after.packets_received - before.packets_received;
    sent as f64 / back as f64
}

fn server_accepts(world: &mut World) -> bool {
    let server = world.server.connection();
    server.accept(Directionality::Bidirectional).is_some()
}

/// A world in which the server asks for fewer ACKs, because it has sent much.
fn world_of_few_acks(link: &str) -> World {
    let mut world = World::new(Setup::new(), path(link, 1), 1);
    world.handshake();
    assert!(download(&mut world, 40_000_000, Duration::from_secs(60)));
    world.run_for(Duration::from_secs(1));
    world
}

fn packets_of_client(world: &mut World) -> u64 {
    let now = world.now;
    world.client.connection().stats(now).counters.packets_sent
}

/// A hundredth of the downlink carries the ACK of every second packet no more.
/// Asked for fewer, the ACKs stop being the bottleneck.
#[test]
fn acks_are_reduced_on_congested_return_path() {
    for controller in ["bbr", "cubic", "newreno"] {
        let mut setup = Setup::new();
        setup.server.controller = controller.parse().expect("a controller");
        let up = link("rate=100k delay=1ms queue=20");
        let down = link("rate=10M delay=1ms queue=70");
        let mut world = World::new(setup, Path::new(up, down, 1), 1);
        world.handshake();
        let began = world.now;
        assert!(download(&mut world, 4_000_000, Duration::from_secs(60)));
        let took = world.now - began;
        // 3.4 s at the link's rate, and BBR begins slowly.
        assert!(took < Duration::from_millis(4500), "{controller}: {took:?}");
    }
}

/// Without a queue a small window is acknowledged often: at least every fourth packet.
#[test]
fn small_window_without_queue_is_acknowledged_often() {
    let world = World::new(Setup::new(), path("rate=20M delay=10ms queue=15", 1), 1);
    let often = data_per_ack(world, 4_000_000);
    assert!((1.5..4.0).contains(&often), "{often} packets per ACK");
}

/// A large window is not: 32 ACKs tell as much of it.
#[test]
fn large_window_is_acknowledged_in_parts() {
    let world = World::new(Setup::new(), path("rate=500M delay=20ms queue=2000", 1), 1);
    let rarely = data_per_ack(world, 40_000_000);
    assert!(rarely > 8.0, "{rarely} packets per ACK");
}

/// Packet numbers that are forgotten once their acknowledgement has arrived are not missing: a
/// response leaves its acknowledgement to the next request.
#[test]
fn forgotten_packet_numbers_make_no_ack_due() {
    const EXCHANGES: u64 = 30;
    let mut world = world_of_few_acks("rate=500M delay=20ms queue=2000");
    let before = packets_of_client(&mut world);
    for _ in 0..EXCHANGES {
        let id = world.ask();
        world.client.connection().finish(id).expect("finishes");
        let second = Duration::from_secs(1);
        assert!(world.run_until(second, server_accepts));
        let server = world.server.connection();
        server.write(id, b"there").expect("writes");
        server.finish(id).expect("finishes");
        let read = |client: &mut Connection| client.read(id, &mut [0; 5]);
        assert!(world.run_until(second, |world| read(world.client.connection()).is_ok()));
    }
    let sent = packets_of_client(&mut world) - before;
    assert!(
        sent <= EXCHANGES + 3,
        "{sent} packets for {EXCHANGES} requests"
    );
}

/// On a path of half a millisecond a quarter of the RTT passes before a busy peer has an answer,
/// which would then follow its ACK in a packet of its own.
#[test]
fn ack_waits_for_an_answer_that_takes_longer_than_the_path() {
    const EXCHANGES: u64 = 30;
    let mut world = world_of_few_acks("rate=500M delay=250us queue=2000");
    let before = packets_of_client(&mut world);
    for _ in 0..EXCHANGES {
        let server = world.server.connection();
        let id = server.open(Directionality::Bidirectional).expect("opens");
        server.write(id, b"hello?").expect("writes");
        let second = Duration::from_secs(1);
        let arrives = |world: &mut World| {
            let client = world.client.connection();
            client.accept(Directionality::Bidirectional).is_some()
        };
        assert!(world.run_until(second, arrives));
        world.run_for(Duration::from_millis(3));
        let client = world.client.connection();
        client.write(id, b"there").expect("writes");
        let read = |server: &mut Connection| server.read(id, &mut [0; 5]);
        assert!(world.run_until(second, |world| read(world.server.connection()).is_ok()));
    }
    let sent = packets_of_client(&mut world) - before;
    assert!(
        sent <= EXCHANGES + 3,
        "{sent} packets for {EXCHANGES} answers"
    );
}

/// A probe asks for its acknowledgement: it does not wait until so many packets have come as
/// were asked for, nor for the delay.
#[test]
fn probes_are_acknowledged_at_once_where_few_acks_are_asked_for() {
    let mut world = world_of_few_acks("rate=500M delay=20ms queue=2000");

    let id = world.ask();
    let second = Duration::from_secs(1);
    assert!(world.run_until(second, server_accepts));
    // The client has its acknowledgement, and nothing of its own to probe for.
    world.run_for(Duration::from_millis(200));

    // The next datagram of the server is lost, and the others are counted.
    let sent: Rc<[Cell<u32>; 2]> = Rc::default();
    let counted = sent.clone();
    world.filter = Some(Box::new(move |direction, _| {
        let count = &counted[usize::from(direction == Direction::Up)];
        count.set(count.get() + 1);
        direction == Direction::Up || count.get() > 1
    }));
    let server = world.server.connection();
    server.write(id, b"lost").expect("writes");
    world.flush();
    let before = sent[1].get();
    assert!(world.run_until(second, |_| sent[0].get() > 1));
    let probe = world.now;
    assert!(world.run_until(second, |_| sent[1].get() > before));
    let waited = world.now - probe - Duration::from_millis(20);
    assert!(waited < Duration::from_millis(1), "{waited:?}");
}

/// A probe without anything of its own repeats what the first of the two carries.
#[test]
fn second_of_two_probes_repeats_the_first() {
    let mut world = World::new(Setup::new(), path("rate=500M delay=20ms queue=2000", 1), 1);
    world.handshake();
    let id = world.ask();
    let second = Duration::from_secs(1);
    assert!(world.run_until(second, server_accepts));
    world.run_for(Duration::from_millis(200));

    // What the server sends, and the first of its probes, are lost.
    let sent: Rc<Cell<u32>> = Rc::default();
    let counted = sent.clone();
    world.filter = Some(Box::new(move |direction, _| {
        counted.set(counted.get() + u32::from(direction == Direction::Down));
        direction == Direction::Up || counted.get() > 2
    }));
    world
        .server
        .connection()
        .write(id, b"lost")
        .expect("writes");
    let arrives = |world: &mut World| {
        let read = world.client.connection().read(id, &mut [0; 4]);
        read.is_ok_and(|read| read == Some(4))
    };
    assert!(world.run_until(second, arrives));
    assert_eq!(sent.get(), 3, "the second probe is enough");
}
