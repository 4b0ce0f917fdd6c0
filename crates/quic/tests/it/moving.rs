//! Paths change under a connection: rebinding, migration, preferred address.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{Setup, World, download, path};
use clearway_links::{Direction, Nat, Packet, Path, Time};
use clearway_quic::connection::{Event, MigrateError};
use clearway_quic::stream::Directionality;

const LINK: &str = "rate=20M delay=10ms queue=100";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Every datagram: direction, source, destination, size, first nine bytes.
type Log = Rc<RefCell<Vec<(Direction, SocketAddr, SocketAddr, usize, Vec<u8>)>>>;

fn logged(world: &mut World) -> Log {
    let log = Log::default();
    let seen = log.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        let start = packet.data[..9.min(packet.data.len())].to_vec();
        let entry = (direction, packet.src, packet.dst, packet.data.len(), start);
        seen.borrow_mut().push(entry);
        true
    }));
    log
}

/// After the handshake, behind a NAT that gives the client another address at `at`;
/// that address.
fn rebinding(path: Path, seed: u64, at: Time) -> (World, SocketAddr) {
    let mut world = World::new(Setup::new(), path, seed);
    let (old, new) = (address("203.0.113.1:7000"), address("203.0.113.2:7000"));
    world.nat = Some(Nat::new(old).rebind(at, new));
    world.handshake();
    (world, new)
}

#[test]
fn passive_rebinding_is_challenged_first_and_followed() {
    let (mut world, new) = rebinding(path(LINK, 1), 1, Time(1_000_000_000));
    let log = logged(&mut world);
    assert!(download(&mut world, 6_000_000, Duration::from_secs(20)));
    let server = world.server.connection();
    assert_eq!(server.remote_address(), new);
    assert_eq!(
        server
            .stats(clearway_quic::Instant::ZERO)
            .counters
            .migrations,
        1
    );
    let log = log.borrow();
    let first = log
        .iter()
        .find(|entry| entry.2 == new)
        .expect("it is answered");
    // RFC 9000 §8.2.1: a PATH_CHALLENGE expands its datagram as far as three
    // times what came from there allows, of which the first surely has come;
    // nothing else pads a short header.
    let came = log.iter().find(|entry| entry.1 == new).expect("a first").3;
    assert!(
        first.3 >= 1200.min(3 * came),
        "{} bytes first, {came} came",
        first.3
    );
    let stale = world.nat.as_ref().map_or(0, Nat::stale);
    // The queue, what is on the way, and what leaves until the news arrives.
    assert!(stale < 160, "it went on to the old address: {stale}");
}

#[test]
fn active_migration_takes_a_new_connection_id_and_goes_on() {
    let mut world = World::new(Setup::new(), path(LINK, 2), 2);
    world.handshake();
    world.run_for(Duration::from_millis(500));
    let log = logged(&mut world);
    world.client.connection().ping();
    world.run_for(Duration::from_millis(100));
    let to = address("10.0.7.7:5000");
    let now = world.now;
    let client = world.client.connection();
    client.migrate(now, Some(to.ip())).expect("migrates");
    world.client.address = to;
    assert!(download(&mut world, 2_000_000, Duration::from_secs(10)));
    let now = world.now;
    let server = world.server.connection();
    assert_eq!(server.remote_address(), to);
    let min_rtt = server.stats(now).min_rtt.expect("measured anew");
    assert!(
        min_rtt >= Duration::from_millis(20),
        "{min_rtt:?} on a path of 20 ms"
    );
    let log = log.borrow();
    let cid = |entry: &&(_, _, _, _, Vec<u8>)| entry.4[1..].to_vec();
    let up = |entry: &&(Direction, SocketAddr, _, _, _)| entry.0 == Direction::Up;
    let before: Vec<_> = log
        .iter()
        .filter(up)
        .filter(|entry| entry.1 != to)
        .map(|entry| cid(&entry))
        .collect();
    let after: Vec<_> = log
        .iter()
        .filter(up)
        .filter(|entry| entry.1 == to)
        .map(|entry| cid(&entry))
        .collect();
    assert!(!before.is_empty() && !after.is_empty());
    assert!(
        after.iter().all(|cid| !before.contains(cid)),
        "RFC 9000 §9.5"
    );
    let first = log
        .iter()
        .filter(up)
        .find(|entry| entry.1 == to)
        .expect("a first");
    assert_eq!(first.3, 1200, "the first packet carries PATH_CHALLENGE");
}

/// Late packets of the old path do not flip the server back.
#[test]
fn a_late_packet_from_the_old_path_changes_nothing() {
    let link = path("rate=20M delay=10ms queue=100 reorder=20%:60ms", 3);
    let (mut world, new) = rebinding(link, 3, Time(600_000_000));
    assert!(download(&mut world, 1_000_000, Duration::from_secs(30)));
    let now = world.now;
    let server = world.server.connection();
    assert_eq!(server.remote_address(), new);
    assert_eq!(server.stats(now).counters.migrations, 1);
}

/// A client that only receives has nothing to send when its NAT moves it: it asks, or
/// the answer would go to the old address until both ends time out.
#[test]
fn a_client_that_waits_while_its_nat_moves_it_gets_its_answer() {
    let (mut world, new) = rebinding(path(LINK, 8), 8, Time(1_000_000_000));
    let id = world.ask();
    world.client.connection().finish(id).expect("finishes");
    // The server thinks about it for three seconds, and is asked a few times.
    world.run_for(Duration::from_secs(3));
    let server = world.server.connection();
    let asked = server.accept(Directionality::Bidirectional);
    assert_eq!(asked, Some(id));
    server.write(id, b"well").expect("writes");
    server.finish(id).expect("finishes");
    world.run_for(Duration::from_millis(100));
    let mut answer = [0; 8];
    let read = world.client.connection().read(id, &mut answer);
    assert_eq!((read, &answer[..4]), (Ok(Some(4)), &b"well"[..]));
    assert_eq!(world.server.connection().remote_address(), new);
}

/// Asking is no keep-alive: four times, ever more rarely, and then the connection
/// ends of its idle timeout.
#[test]
fn who_is_never_answered_asks_four_times() {
    let mut world = World::new(Setup::new(), path(LINK, 9), 9);
    world.handshake();
    world.ask();
    world.run_for(Duration::from_millis(400));
    let now = world.now;
    let sent = world.client.connection().stats(now).counters.packets_sent;
    world.run_for(Duration::from_secs(20));
    let now = world.now;
    let client = world.client.connection();
    assert_eq!(client.stats(now).counters.packets_sent - sent, 4);
    world.run_for(Duration::from_secs(60));
    assert!(world.client.connection().error().is_some());
}

/// Migration does not declare everything lost, nor forget the data in flight.
#[test]
fn migration_repeats_little() {
    let (mut world, _) = rebinding(path(LINK, 4), 4, Time(800_000_000));
    assert!(download(&mut world, 4_000_000, Duration::from_secs(30)));
    let now = world.now;
    let counters = world.server.connection().stats(now).counters;
    let stale = world.nat.as_ref().map_or(0, Nat::stale);
    let dropped = world.path.link(Direction::Down).stats().dropped();
    let really = stale + dropped;
    assert!(
        counters.packets_lost <= really + 20,
        "{} lost, {really} were",
        counters.packets_lost
    );
}

#[test]
fn the_client_moves_to_the_preferred_address() {
    let mut setup = Setup::new();
    let preferred = "10.0.0.77:443".parse().expect("an address");
    setup.preferred = Some(preferred);
    let mut world = World::new(setup, path(LINK, 5), 5);
    world.handshake();
    let log = logged(&mut world);
    assert!(download(&mut world, 500_000, Duration::from_secs(10)));
    let client = world.client.connection();
    assert_eq!(client.remote_address(), SocketAddr::V4(preferred));
    // It answers from the address it was sent to.
    let log = log.borrow();
    let from = |entry: &&(Direction, SocketAddr, _, _, _)| entry.0 == Direction::Down;
    let last = log.iter().rfind(from).expect("data");
    assert_eq!(last.1, SocketAddr::V4(preferred));
    let moved = |event: &Event| matches!(event, Event::PathChanged { .. });
    assert!(world.client.events.values().flatten().any(moved));
}

#[test]
fn a_server_that_forbids_migration_is_obeyed() {
    let mut setup = Setup::new();
    setup.server.allow_migration = false;
    let mut world = World::new(setup, path(LINK, 6), 6);
    world.handshake();
    let now = world.now;
    let refused = world.client.connection().migrate(now, None);
    assert_eq!(refused, Err(MigrateError::Forbidden));
}

/// A path that does not answer: back to the one that did.
#[test]
fn a_migration_into_a_black_hole_returns() {
    let mut world = World::new(Setup::new(), path(LINK, 7), 7);
    world.handshake();
    world.run_for(Duration::from_millis(500));
    let (home, to) = (world.client.address, address("10.0.8.8:5000"));
    world.filter = Some(Box::new(move |_, packet: &mut Packet| packet.src != to));
    let now = world.now;
    world
        .client
        .connection()
        .migrate(now, Some(to.ip()))
        .expect("migrates");
    world.client.address = to;
    world.run_for(Duration::from_secs(4));
    world.client.address = home;
    assert!(download(&mut world, 200_000, Duration::from_secs(10)));
    assert_eq!(world.server.connection().remote_address(), home);
}

/// Two moves in a row, neither of which works: what is left is the path that did.
#[test]
fn two_quick_migrations_into_black_holes_return_to_the_path_that_worked() {
    let mut world = World::new(Setup::new(), path(LINK, 10), 10);
    world.handshake();
    world.run_for(Duration::from_millis(500));
    let home = world.client.address;
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        direction == Direction::Down || packet.src == home
    }));
    for to in ["10.0.8.8", "10.0.9.9"] {
        let now = world.now;
        let to = to.parse().expect("an address");
        let moved = world.client.connection().migrate(now, Some(to));
        moved.expect("migrates");
        world.run_for(Duration::from_millis(100));
    }
    world.run_for(Duration::from_secs(5));
    assert!(download(&mut world, 200_000, Duration::from_secs(5)));
    assert_eq!(world.server.connection().remote_address(), home);
}

/// The old path still works, so nothing is risked: data goes on there until the new
/// one has answered.
#[test]
fn probing_moves_the_client_only_once_the_new_path_answers() {
    let mut world = World::new(Setup::new(), path(LINK, 11), 11);
    world.handshake();
    world.run_for(Duration::from_millis(500));
    let (home, to) = (world.client.address, address("10.0.7.7:5000"));
    let now = world.now;
    let client = world.client.connection();
    client.probe(now, to.ip()).expect("probes");
    assert_eq!(client.stats(now).counters.migrations, 0);
    assert!(download(&mut world, 500_000, Duration::from_secs(10)));
    assert_eq!(world.server.connection().remote_address(), to);

    // Nothing answers at a third: all stays as it is, and nothing gets lost.
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        direction == Direction::Down || [home, to].contains(&packet.src)
    }));
    world.run_for(Duration::from_secs(1));
    let now = world.now;
    let client = world.client.connection();
    let lost = client.stats(now).counters.packets_lost;
    let third = "10.0.8.8".parse().expect("an address");
    client.probe(now, third).expect("probes");
    assert!(download(&mut world, 500_000, Duration::from_secs(10)));
    assert_eq!(world.server.connection().remote_address(), to);
    let now = world.now;
    let client = world.client.connection();
    assert_eq!(client.stats(now).counters.migrations, 1);
    assert!(client.stats(now).counters.packets_lost <= lost + 4);
}
