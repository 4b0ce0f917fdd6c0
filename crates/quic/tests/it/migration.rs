//! Paths change under a connection: rebinding, migration, preferred address.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use clearway_links::{Direction, Nat, Packet, Path, Time};
use clearway_quic::connection::{Event, MigrateError};
use clearway_quic::crypto::{Token, TokenKey};
use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};
use clearway_quic::wire::Version;
use clearway_testing::{Setup, UNIX_ORIGIN, World, download, download_watched, path, server_id};

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
fn rebound_client_is_challenged_and_followed() {
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
fn active_migration_uses_new_cid_and_continues() {
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
fn late_packet_from_old_path_does_not_migrate_back() {
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
fn rebound_client_that_only_waits_gets_its_response() {
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

/// A client behind a NAT that rebinds before the client's last flight leaves: until then
/// the network passes on what `passes` says of the client's datagrams after its first flight.
fn rebound_in_handshake(seed: u64, passes: fn(&Packet) -> bool) -> (World, SocketAddr) {
    let mut world = World::new(Setup::new(), path(LINK, seed), seed);
    let (old, new) = (address("203.0.113.1:7000"), address("203.0.113.2:7000"));
    // The server's flight arrives after 20 ms.
    world.nat = Some(Nat::new(old).rebind(Time(25_000_000), new));
    let mut answered = false;
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        answered |= direction == Direction::Down;
        direction == Direction::Down || !answered || packet.src == new || passes(packet)
    }));
    world.connect();
    (world, new)
}

/// Downloads from the time that the client has completed its handshake, after which the server
/// stays at the client's new address.
fn download_from(world: &mut World, new: SocketAddr) {
    let complete = world.run_until(Duration::from_millis(24), |world| {
        !world.client.connection().is_handshaking()
    });
    assert!(complete, "the server's flight arrives before the rebinding");
    assert!(download(world, 100_000, Duration::from_secs(5)));
    // Longer than a validation may take.
    world.run_for(Duration::from_secs(2));
    assert!(world.client.connection().is_confirmed());
    let server = world.server.connection();
    assert_eq!(server.remote_address(), new);
    let counters = server.stats(clearway_quic::Instant::ZERO).counters;
    assert_eq!(counters.migrations, 1);
}

/// A NAT does not wait for a handshake. If the server dropped the client's last flight
/// because of its address, both ends would repeat themselves until they time out.
#[test]
fn client_rebound_before_its_finished_completes_handshake() {
    for seed in 0..8 {
        let (mut world, new) = rebound_in_handshake(seed, |_| false);
        download_from(&mut world, new);
    }
}

/// 1-RTT packets from the old address, which waited for the handshake to complete, must not
/// lead the server back there: the client may send nothing more until it is answered.
#[test]
fn waiting_packets_from_old_address_do_not_lead_back_after_rebinding() {
    for seed in 0..8 {
        let short = |packet: &Packet| packet.data.first().is_some_and(|first| first & 0x80 == 0);
        let (mut world, new) = rebound_in_handshake(seed, short);
        download_from(&mut world, new);
    }
}

/// Asking is no keep-alive: four times, ever more rarely, and then the connection
/// ends of its idle timeout.
#[test]
fn unanswered_path_validation_sends_four_challenges() {
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
fn migration_retransmits_little() {
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
fn client_migrates_to_preferred_address() {
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
    assert!(world.client.app.events.values().flatten().any(moved));
}

#[test]
fn disable_active_migration_is_obeyed() {
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
fn migration_into_black_hole_returns_to_old_path() {
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
fn two_migrations_into_black_holes_return_to_last_valid_path() {
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
fn probing_migration_waits_for_path_validation() {
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

/// Round trips at a new address until content flows again: one for the
/// validation of both directions, one for what was lost, and time to send.
const PATIENCE: Duration = Duration::from_millis(100);

/// Lets the server write and the client read until it has `total` bytes.
fn download_on_stream(
    world: &mut World,
    id: StreamId,
    read: &mut usize,
    total: usize,
    limit: Duration,
) {
    let done = world.run_until(limit, |world| {
        let server = world.server.connection();
        loop {
            match server.write(id, &[7; 16_384]) {
                Ok(_) => {}
                Err(WriteError::Blocked | WriteError::Unknown) => break,
                Err(error) => panic!("write: {error:?}"),
            }
        }
        loop {
            match world.client.connection().read_chunk(id, usize::MAX) {
                Ok(Some(chunk)) => *read += chunk.len(),
                Ok(None) => panic!("the stream has no end"),
                Err(ReadError::Blocked) => return *read >= total,
                Err(error) => panic!("read: {error:?}"),
            }
        }
    });
    assert!(done, "{read} of {total} bytes after {limit:?}");
}

/// The client keeps its IP address and, as far as it can see, its whole address: only
/// the server can tell the two paths apart.
#[test]
fn rebinding_to_other_port_takes_two_rtts_without_pto() {
    let mut world = World::new(Setup::new(), path("rate=100M delay=5ms queue=250", 1), 1);
    world.handshake();
    let id = world.ask();
    let mut read = 0;
    download_on_stream(&mut world, id, &mut read, 200_000, Duration::from_secs(1));

    let old = world.client.address;
    let new = SocketAddr::new(old.ip(), old.port() + 1);
    world.client.address = new;
    world.filter = Some(Box::new(
        move |direction: Direction, packet: &mut Packet| {
            direction == Direction::Up || packet.dst == new
        },
    ));
    let now = world.now;
    let moved = world.client.connection().migrate(now, Some(old.ip()));
    moved.expect("may migrate");
    let goal = read + 400_000;
    download_on_stream(&mut world, id, &mut read, goal, PATIENCE);
    assert_eq!(world.server.connection().remote_address(), new);
}

/// Bytes that a rebinding test downloads: 4 s at the link's rate.
const MUCH: usize = 10_000_000;

/// A download behind a NAT whose address changes.
struct ReboundDownload {
    took: Duration,
    /// Datagrams that were sent to an address that was gone.
    stale: u64,
    /// The server's window before and after each change.
    windows: Vec<(u64, u64)>,
}

/// Downloads behind a NAT whose address changes to each of `outside`, half a second apart.
fn rebound_download(mut setup: Setup, controller: &str, outside: &[SocketAddr]) -> ReboundDownload {
    setup.server.controller = controller.parse().expect("a controller");
    let mut world = World::new(setup, path(LINK, 10), 10);
    let mut nat = Nat::new(address("203.0.113.1:7000"));
    for (n, outside) in (0..).zip(outside) {
        nat = nat.rebind(Time((n + 2) * 500_000_000), *outside);
    }
    world.nat = Some(nat);
    world.handshake();
    let began = world.now;
    let mut windows = Vec::new();
    let (mut remote, mut window) = (address("203.0.113.1:7000"), 0);
    let limit = Duration::from_secs(30);
    let done = download_watched(&mut world, MUCH, limit, |world| {
        let now = world.now;
        let server = world.server.connection();
        let before = core::mem::replace(&mut window, server.stats(now).window);
        if server.remote_address() != remote {
            remote = server.remote_address();
            windows.push((before, window));
        }
    });
    assert!(done, "the download did not end");
    ReboundDownload {
        took: world.now - began,
        stale: world.nat.as_ref().map_or(0, Nat::stale),
        windows,
    }
}

fn ports(ports: impl IntoIterator<Item = u16>) -> Vec<SocketAddr> {
    let at = |port| SocketAddr::from(([203, 0, 113, 1], port));
    ports.into_iter().map(at).collect()
}

/// RFC 9000 §9.4: a NAT rebinding that changes the client's port alone does not reset the
/// congestion window or the RTT. It costs what was sent to the old port, and little else.
#[test]
fn port_rebinding_keeps_congestion_window() {
    for controller in ["cubic", "newreno", "bbr", "prague"] {
        let undisturbed = rebound_download(Setup::new(), controller, &[]).took;
        let rebound = rebound_download(Setup::new(), controller, &ports(7001..7006));
        assert_eq!(rebound.windows.len(), 5, "{controller}");
        for (before, after) in rebound.windows {
            assert!(after >= before / 2, "{controller}: {before} to {after}");
        }
        // 1,500 bytes at 20 Mbit/s for each; five times a round trip until the new port is
        // validated, before which hardly anything is sent there, as long in the queue, and a
        // quarter of that in which half of NewReno's window does not fill the path.
        let lost = Duration::from_micros(600 * rebound.stale);
        let most = undisturbed + lost + 5 * Duration::from_millis(20 + 20 + 5);
        assert!(
            rebound.took < most,
            "{controller}: {:?}, {undisturbed:?} undisturbed, {lost:?} of datagrams lost",
            rebound.took
        );
    }
}

/// The server's window before and after one change of the client's address.
fn window_across(setup: Setup, outside: SocketAddr) -> (u64, u64) {
    let rebound = rebound_download(setup, "cubic", &[outside]);
    let [window] = rebound.windows[..] else {
        panic!("{:?}", rebound.windows);
    };
    window
}

/// Another address is another network path.
#[test]
fn address_rebinding_resets_congestion_window() {
    let (before, after) = window_across(Setup::new(), address("203.0.113.2:7000"));
    assert!(before > 40_000 && after <= 14_720, "{before} to {after}");
}

/// Behind a balancer, every client has its address, and another port may be another network
/// path.
#[test]
fn port_change_of_trusted_source_resets_congestion_window() {
    let mut setup = Setup::new();
    setup.limits.trusted = vec!["203.0.113.1/32".parse().expect("a network")];
    let (before, after) = window_across(setup, address("203.0.113.1:7001"));
    assert!(before > 40_000 && after <= 14_720, "{before} to {after}");
}

/// RFC 9000 §9.3: after it has validated the client's new address, the server sends a token for it.
#[test]
fn validated_migration_gets_new_token() {
    let mut world = World::new(Setup::new(), path(LINK, 11), 11);
    world.handshake();
    world.run_for(Duration::from_millis(500));
    let name = server_id();
    let sessions = world.setup.sessions.clone();
    assert_eq!(sessions.stored(&name).tokens, 1);
    let to = address("10.0.7.7:5000");
    let now = world.now;
    let client = world.client.connection();
    client.migrate(now, Some(to.ip())).expect("migrates");
    world.client.address = to;
    world.run_for(Duration::from_millis(500));
    assert_eq!(world.server.connection().remote_address(), to);
    assert_eq!(sessions.stored(&name).tokens, 2);
    let newest = sessions.take_token(&name, Version::V1).expect("a token");
    let opened = TokenKey::new(&[7; 32]).open(&newest, UNIX_ORIGIN + 1, to, Version::V1);
    assert!(matches!(opened, Ok(Token::Address(_))), "{opened:?}");
}
