//! Prague on paths that mark, and on paths that spoil the marks.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use clearway_links::{Direction, Ecn, Packet};
use clearway_quic::connection::PathStats;
use clearway_quic::path::ecn::{EcnFailure, EcnState};
use clearway_recovery::congestion::Algorithm;
use clearway_testing::Bulk;
use clearway_testing::{Setup, World, path};

fn world(controller: Algorithm, spec: &str) -> World {
    let mut setup = Setup::new();
    setup.server.controller = controller.into();
    World::new(setup, path(spec, 1), 1)
}

/// Marks seen on the server's datagrams, newest last.
fn watch(
    world: &mut World,
    change: impl Fn(Ecn) -> Option<Ecn> + 'static,
) -> Rc<RefCell<Vec<Ecn>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    world.filter = Some(Box::new(
        move |direction: Direction, packet: &mut Packet| {
            if direction == Direction::Up {
                return true;
            }
            log.borrow_mut().push(packet.ecn);
            let Some(ecn) = change(packet.ecn) else {
                return false;
            };
            packet.ecn = ecn;
            true
        },
    ));
    seen
}

fn server_path(world: &mut World) -> PathStats {
    let now = world.now;
    let mut paths = world.server.connection().path_stats(now);
    paths.find(|path| path.active).expect("an active path")
}

/// 50 Mbit/s, 30 ms, a queue that marks from 1 ms on: bytes read in 10 s after
/// 5 s, mean RTT in µs.
fn over_a_marking_queue(controller: Algorithm) -> (World, u64, u64) {
    let mut world = world(controller, "rate=50M delay=15ms queue=1000 mark=1ms");
    world.handshake();
    let mut bulk = Bulk::begin(&mut world);
    bulk.run_for(&mut world, Duration::from_secs(5));
    let (mut sum, mut count, before) = (0, 0, bulk.read);
    bulk.run_until(&mut world, Duration::from_secs(10), |world, _| {
        let now = world.now;
        sum += world
            .server
            .connection()
            .stats(now)
            .smoothed_rtt
            .as_micros() as u64;
        count += 1;
        false
    });
    let read = bulk.read - before;
    (world, read, sum / count)
}

#[test]
fn prague_fills_link_with_a_millisecond_of_queue() {
    let (mut world, read, rtt) = over_a_marking_queue(Algorithm::Prague);
    let megabits = read * 8 / 10 / 1_000_000;
    let stats = server_path(&mut world);
    let now = world.now;
    let counters = world.server.connection().stats(now).counters;
    println!(
        "prague: {megabits} Mbit/s, RTT {rtt} µs, {} marks",
        counters.ce_marks
    );
    assert!(megabits >= 45, "{megabits} Mbit/s of 50");
    assert!(rtt <= 32_500, "{rtt} µs of 30,000");
    assert_eq!(stats.ecn, EcnState::Capable);
    assert!(counters.ce_marks > 100);
    assert_eq!(counters.packets_lost, 0);
    // What a classic controller makes of the same marks: room that nobody uses.
    let (_, classic, _) = over_a_marking_queue(Algorithm::NewReno);
    println!("newreno: {} Mbit/s", classic * 8 / 10 / 1_000_000);
    assert!(read > classic + classic / 20, "{read} bytes, {classic}");
}

#[test]
fn packets_carry_ecn_codepoint_of_controller() {
    for (controller, mark) in [
        (Algorithm::Prague, Ecn::Ect1),
        (Algorithm::Cubic, Ecn::Ect0),
    ] {
        let mut world = world(controller, "rate=50M delay=5ms queue=1000");
        let seen = watch(&mut world, Some);
        world.handshake();
        Bulk::begin(&mut world).run_for(&mut world, Duration::from_millis(500));
        assert_eq!(server_path(&mut world).ecn, EcnState::Capable);
        let seen = seen.borrow();
        let others = seen.iter().filter(|&&ecn| ecn != mark).count();
        // Between the tenth packet and the first counts nothing is marked.
        assert!(
            others < 20 && seen.len() > 500,
            "{others} of {}",
            seen.len()
        );
        assert!(seen.iter().all(|&ecn| ecn == mark || ecn == Ecn::NotEct));
    }
}

/// RFC 9000 §13.4.2: whatever a path does to the marks, the connection notices,
/// stops marking and goes on. Where all marks are CE that takes sixteen rounds, since a congested
/// queue does the same for a while.
#[test]
fn altered_ecn_marks_disable_ecn() {
    type Change = fn(Ecn) -> Option<Ecn>;
    let spoilers: [(&str, Change, &[EcnFailure]); 4] = [
        (
            "remarked to ECT(0)",
            |ecn| Some(if ecn == Ecn::Ect1 { Ecn::Ect0 } else { ecn }),
            &[EcnFailure::Bleached],
        ),
        (
            "bleached",
            |_| Some(Ecn::NotEct),
            &[EcnFailure::NotReported],
        ),
        (
            "all CE",
            |ecn| Some(if ecn == Ecn::Ect1 { Ecn::Ce } else { ecn }),
            &[EcnFailure::AllCe],
        ),
        (
            // Of the marked packets of the handshake nobody speaks any more once
            // its keys are gone, so the question stays open; marking ends.
            "dropped",
            |ecn| (ecn == Ecn::NotEct).then_some(ecn),
            &[],
        ),
    ];
    for (name, change, failures) in spoilers {
        let mut world = world(Algorithm::Prague, "rate=50M delay=5ms queue=1000");
        let seen = watch(&mut world, change);
        world.handshake();
        let mut bulk = Bulk::begin(&mut world);
        bulk.run_for(&mut world, Duration::from_secs(2));
        let ecn = server_path(&mut world).ecn;
        let named = failures
            .iter()
            .any(|failure| ecn == EcnState::Failed(*failure));
        let open = failures.is_empty() && ecn == EcnState::Unknown;
        assert!(named || open, "{name}: {ecn:?}");
        let marked = seen
            .borrow()
            .iter()
            .filter(|&&ecn| ecn != Ecn::NotEct)
            .count();
        let limit = if name == "all CE" { 160 } else { 60 };
        assert!(marked < limit, "{name}: {marked} marked");
        let read = bulk.run_for(&mut world, Duration::from_secs(1));
        assert!(read * 8 > 40_000_000, "{name}: {read} bytes in a second");
    }
}

/// A client moves to where marked packets are dropped: the test of the new path
/// finds that out by their losses.
#[test]
fn new_path_dropping_marked_packets_disables_ecn() {
    let mut world = world(Algorithm::Prague, "rate=50M delay=5ms queue=1000");
    world.handshake();
    let mut bulk = Bulk::begin(&mut world);
    bulk.run_for(&mut world, Duration::from_millis(500));
    assert_eq!(server_path(&mut world).ecn, EcnState::Capable);
    let old = world.client.address;
    let new = SocketAddr::new(old.ip(), old.port() + 1);
    world.client.address = new;
    world.filter = Some(Box::new(
        move |direction: Direction, packet: &mut Packet| {
            direction == Direction::Up || packet.dst != new || packet.ecn == Ecn::NotEct
        },
    ));
    let now = world.now;
    let moved = world.client.connection().migrate(now, Some(old.ip()));
    moved.expect("may migrate");
    bulk.run_for(&mut world, Duration::from_secs(3));
    let path = server_path(&mut world);
    assert_eq!(path.remote, new);
    assert_eq!(path.ecn, EcnState::Failed(EcnFailure::AllLost));
    let read = bulk.run_for(&mut world, Duration::from_secs(1));
    assert!(read * 8 > 40_000_000, "{read} bytes in a second");
}

/// Exact to the nanosecond, for the connection and for each path.
#[test]
fn time_in_limits_sums_to_connection_lifetime() {
    let mut world = world(Algorithm::Cubic, "rate=50M delay=15ms queue=50");
    world.handshake();
    Bulk::begin(&mut world).run_for(&mut world, Duration::from_millis(1_234));
    let now = world.now;
    let server = world.server.connection();
    let sum = |limits: &[(_, Duration)]| limits.iter().map(|(_, time)| *time).sum::<Duration>();
    let life = sum(&server.stats(now).limits);
    let paths: Vec<Duration> = server
        .path_stats(now)
        .map(|path| sum(&path.limits))
        .collect();
    assert_eq!(paths, [life], "one path, as old as the connection");
    // It began when the first datagram reached the server.
    let later = now + Duration::from_nanos(1_234_567);
    let grown = sum(&server.stats(later).limits);
    assert_eq!(grown - life, Duration::from_nanos(1_234_567));
    assert!(now - clearway_quic::Instant::ZERO - life < Duration::from_millis(17));
}
