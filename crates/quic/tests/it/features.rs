//! Features of a connection between two ends: keys, ECN, MTU, timeouts, closing, datagrams,
//! priorities, flow-control tuning.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use clearway_links::{Direction, Ecn, Nat, Packet};
use clearway_quic::Instant;
use clearway_quic::connection::{ConnectionError, Event, UpdateKeysError};
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::{Directionality, Priority, ReadError, StreamId, WriteError};
use clearway_testing::{Host, Setup, World, download, path};

const CLEAN: &str = "rate=20M delay=10ms queue=100";

fn world(link: &str, seed: u64) -> World {
    let mut world = World::new(Setup::new(), path(link, seed), seed);
    world.handshake();
    world
}

fn key_updates(host: &mut Host, now: Instant) -> u64 {
    host.connection().stats(now).counters.key_updates
}

#[test]
fn key_update_is_followed_by_peer() {
    let mut world = world(CLEAN, 1);
    for n in 1..4 {
        let now = world.now;
        world.client.connection().update_keys(now).expect("updates");
        let again = world.client.connection().update_keys(now);
        assert_eq!(again, Err(UpdateKeysError::TooSoon));
        assert!(download(&mut world, 100_000, Duration::from_secs(5)));
        world.run_for(Duration::from_secs(2));
        let now = world.now;
        assert_eq!(key_updates(&mut world.client, now), n);
        assert_eq!(key_updates(&mut world.server, now), n);
    }
}

#[test]
fn key_update_under_reordering_loses_no_data() {
    for seed in 0..10 {
        let mut world = world(
            "rate=20M delay=10ms queue=100 reorder=30%:15ms loss=1%",
            seed,
        );
        let now = world.now;
        world.server.connection().update_keys(now).expect("updates");
        assert!(
            download(&mut world, 500_000, Duration::from_secs(20)),
            "seed {seed}"
        );
        let now = world.now;
        assert_eq!(key_updates(&mut world.client, now), 1, "seed {seed}");
        assert!(world.client.connection().error().is_none());
    }
}

#[test]
fn ce_mark_reduces_window_once() {
    let mut world = world("rate=20M delay=10ms queue=400", 2);
    let marks = Rc::new(Cell::new(0));
    let left = marks.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Down && left.get() > 0 && packet.ecn == Ecn::Ect0 {
            packet.ecn = Ecn::Ce;
            left.set(left.get() - 1);
        }
        true
    }));
    assert!(download(&mut world, 300_000, Duration::from_secs(5)));
    let now = world.now;
    let before = world.server.connection().stats(now);
    assert_eq!(before.counters.ce_marks, 0);
    marks.set(3);
    assert!(download_more(&mut world, 20_000));
    world.run_for(Duration::from_millis(100));
    let now = world.now;
    let after = world.server.connection().stats(now);
    assert_eq!(after.counters.ce_marks, 3);
    assert_eq!(after.counters.packets_lost, before.counters.packets_lost);
    let ratio = after.window * 100 / before.window;
    assert!(
        (60..80).contains(&ratio),
        "{} after {}",
        after.window,
        before.window
    );
}

/// A second, short download.
fn download_more(world: &mut World, total: usize) -> bool {
    download(world, total, Duration::from_secs(5))
}

#[test]
fn bleached_marks_disable_ecn() {
    let mut world = World::new(Setup::new(), path(CLEAN, 3), 3);
    let ect = Rc::new(Cell::new(0));
    let seen = ect.clone();
    world.filter = Some(Box::new(move |_, packet: &mut Packet| {
        seen.set(seen.get() + usize::from(packet.ecn == Ecn::Ect0));
        packet.ecn = Ecn::NotEct;
        true
    }));
    world.handshake();
    assert!(download(&mut world, 200_000, Duration::from_secs(5)));
    let marked = ect.get();
    assert!(download_more(&mut world, 200_000));
    assert_eq!(ect.get(), marked, "nothing is marked any more");
    let now = world.now;
    assert_eq!(world.server.connection().stats(now).counters.ce_marks, 0);
}

#[test]
fn mtu_rises_and_falls_back_in_black_hole() {
    let mut world = world(CLEAN, 4);
    world.run_for(Duration::from_secs(2));
    let now = world.now;
    assert_eq!(world.server.connection().stats(now).mtu, 1452);
    assert_eq!(world.client.connection().stats(now).mtu, 1452);
    world.filter = Some(Box::new(|_, packet: &mut Packet| packet.data.len() <= 1300));
    assert!(download(&mut world, 1_000_000, Duration::from_secs(30)));
    let now = world.now;
    let mtu = world.server.connection().stats(now).mtu;
    assert!((1200..=1300).contains(&mtu), "{mtu}");
}

#[test]
fn mtu_is_found_while_sender_always_has_data() {
    let mut world = World::new(Setup::new(), path(CLEAN, 4), 4);
    world.connect();
    let mut stream = None;
    let end = world.run_until(Duration::from_millis(150), |world| {
        if world.server.connections.is_empty() {
            return false;
        }
        // As soon as there are keys, long before it may probe.
        let server = world.server.connection();
        stream = stream.or_else(|| server.open(Directionality::Unidirectional));
        while stream.is_some_and(|id| server.write(id, &[7; 4_096]).is_ok()) {}
        false
    });
    assert!(!end && stream.is_some());
    let now = world.now;
    let stats = world.server.connection().stats(now);
    assert!(stats.in_flight > 0, "still busy");
    assert_eq!(stats.mtu, 1452);
}

/// RFC 9000 §14: probes mean nothing where datagrams may be fragmented.
#[test]
fn mtu_stays_at_minimum_on_socket_that_fragments() {
    let mut world = World::new(Setup::new(), path(CLEAN, 4), 4);
    world.server.endpoint.disable_mtu_discovery();
    let largest = Rc::new(Cell::new(0));
    let seen = largest.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Down {
            seen.set(seen.get().max(packet.data.len()));
        }
        true
    }));
    world.handshake();
    assert!(download(&mut world, 1_000_000, Duration::from_secs(30)));
    let now = world.now;
    assert_eq!(world.server.connection().stats(now).mtu, 1200);
    assert_eq!(world.client.connection().stats(now).mtu, 1452);
    assert_eq!(largest.get(), 1200);
}

#[test]
fn keep_alive_prevents_idle_timeout() {
    let mut setup = Setup::new();
    setup.client.idle_timeout = Duration::from_secs(2);
    setup.client.keep_alive = Some(Duration::from_millis(500));
    let mut world = World::new(setup, path(CLEAN, 5), 5);
    world.handshake();
    world.run_for(Duration::from_secs(30));
    assert!(world.client.connection().error().is_none());
    assert!(world.server.connection().error().is_none());
    let now = world.now;
    assert!(world.client.connection().stats(now).counters.packets_sent < 200);
}

#[test]
fn idle_timeout_ends_both_ends_silently() {
    let mut world = world(CLEAN, 6);
    world.run_for(Duration::from_secs(29));
    assert!(world.client.connection().error().is_none());
    let sent = Rc::new(Cell::new(0));
    let seen = sent.clone();
    world.filter = Some(Box::new(move |_, _: &mut Packet| {
        seen.set(seen.get() + 1);
        true
    }));
    world.run_for(Duration::from_secs(5));
    for host in [&mut world.client, &mut world.server] {
        let connection = host.connection();
        assert_eq!(connection.error(), Some(&ConnectionError::IdleTimeout));
        assert!(connection.is_drained());
        assert_eq!(connection.next_timeout(), None);
    }
    assert_eq!(sent.get(), 0);
    assert_eq!(world.server.endpoint.len(), 0, "the endpoint forgets");
}

#[test]
fn application_close_reaches_peer() {
    let mut world = world(CLEAN, 7);
    let now = world.now;
    world.server.connection().close(now, 0x1234, b"good night");
    world.run_for(Duration::from_millis(50));
    let expected = ConnectionError::PeerApplication {
        code: 0x1234,
        reason: b"good night".to_vec(),
    };
    assert_eq!(world.client.connection().error(), Some(&expected));
    let closed = Event::Closed(expected);
    assert_eq!(
        world
            .client
            .app
            .events
            .values()
            .flatten()
            .filter(|event| **event == closed)
            .count(),
        1
    );
    world.run_for(Duration::from_secs(5));
    assert!(world.server.connection().is_drained() && world.client.connection().is_drained());
}

#[test]
fn datagrams_arrive_and_oversized_ones_are_rejected() {
    let mut world = world(CLEAN, 8);
    let client = world.client.connection();
    let max = client.max_datagram_size().expect("the server takes them");
    assert!((1100..1452).contains(&max));
    assert!(client.send_datagram(vec![0; max + 1].into()).is_err());
    for n in 0..10 {
        client
            .send_datagram(Bytes::from(vec![n; max]))
            .expect("queued");
    }
    world.run_for(Duration::from_secs(1));
    let server = world.server.connection();
    for n in 0..10 {
        assert_eq!(server.recv_datagram(), Some(Bytes::from(vec![n; max])));
    }
    assert_eq!(server.recv_datagram(), None);
}

/// What a probe repeats may have arrived: a datagram counts as lost once it is known to be.
#[test]
fn datagrams_count_as_lost_when_later_packets_were_acknowledged() {
    let mut world = world(CLEAN, 8);
    world.run_for(Duration::from_millis(200));
    let lost = |world: &mut World| {
        let now = world.now;
        let stats = world.server.connection().stats(now);
        stats.counters.datagram_frames_lost
    };
    let send = |world: &mut World| {
        let server = world.server.connection();
        server
            .send_datagram(Bytes::from_static(b"once"))
            .expect("sends");
        world.flush();
    };

    // It arrives, but its acknowledgements do not.
    world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    send(&mut world);
    world.run_for(Duration::from_millis(500));
    assert!(world.client.connection().recv_datagram().is_some());
    assert_eq!(lost(&mut world), 0, "probed");

    // This one does not arrive.
    world.filter = Some(Box::new(|direction, _| direction == Direction::Up));
    send(&mut world);
    world.filter = None;
    for _ in 0..4 {
        send(&mut world);
    }
    world.run_for(Duration::from_millis(500));
    assert_eq!(lost(&mut world), 1);
}

/// A message without room for its length extends to the end of its packet, so padding must come
/// before it (RFC 9221 §4).
#[test]
fn padding_is_never_part_of_a_datagram() {
    for below_max in 0..64 {
        let mut world = world("rate=5M delay=10ms queue=100", 8);
        let server = world.server.connection();
        let id = server
            .open(Directionality::Unidirectional)
            .expect("a stream");
        let mut received = 0;
        // The server's trains go on while its challenges to the client's new addresses leave.
        for port in 4000..4003 {
            world.nat = Some(Nat::new(([203, 0, 113, 7], port).into()));
            world.client.connection().ping();
            for _ in 0..100 {
                let server = world.server.connection();
                let len = server.max_datagram_size().expect("the client takes them") - below_max;
                for _ in 0..4 {
                    let sent = server.send_datagram(vec![7; len].into());
                    assert!(sent.is_ok() || sent == Err(SendDatagramError::Full));
                }
                let written = server.write(id, &[9; 4_000]);
                assert!(matches!(written, Ok(_) | Err(WriteError::Blocked)));
                world.run_for(Duration::from_millis(2));
                let client = world.client.connection();
                while let Some(message) = client.recv_datagram() {
                    assert!(message.iter().all(|&byte| byte == 7), "padding arrived");
                    received += 1;
                }
                let _ = client.accept(Directionality::Unidirectional);
                while let Ok(Some(_)) = client.read_chunk(id, usize::MAX) {}
            }
        }
        assert!(
            received > 100,
            "{received} messages arrived, {below_max} below the largest"
        );
    }
}

/// Reads what is there; true at the end.
fn drain(world: &mut World, id: StreamId) -> bool {
    loop {
        match world.server.connection().read_chunk(id, usize::MAX) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(ReadError::Blocked | ReadError::Unknown) => return false,
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn urgent_stream_overtakes_others() {
    let mut world = world("rate=2M delay=10ms queue=100", 9);
    let client = world.client.connection();
    let kind = Directionality::Unidirectional;
    let bulk = client.open(kind).expect("a stream");
    let urgent = client.open(kind).expect("a stream");
    client.set_priority(
        urgent,
        Priority {
            urgency: 0,
            incremental: false,
        },
    );
    for id in [bulk, urgent] {
        assert_eq!(client.write(id, &[1; 300_000]), Ok(300_000));
        client.finish(id).expect("finishes");
    }
    let (mut ended, mut bulk_ended) = (None, None);
    world.run_until(Duration::from_secs(20), |world| {
        while world.server.connection().accept(kind).is_some() {}
        if ended.is_none() && drain(world, urgent) {
            ended = Some(world.now);
        }
        if bulk_ended.is_none() && drain(world, bulk) {
            bulk_ended = Some(world.now);
        }
        bulk_ended.is_some()
    });
    let (urgent, bulk) = (ended.expect("urgent"), bulk_ended.expect("bulk"));
    // Alone the urgent stream takes 1.2 s; in turns it would take 2.4.
    assert!(
        bulk - urgent > Duration::from_millis(900),
        "{urgent:?} {bulk:?}"
    );
}

/// Nobody sets a window; half the download suffices to find the right one.
#[test]
fn flow_control_window_grows_on_long_fat_path() {
    let mut world = world("rate=1G delay=50ms queue=9000", 10);
    let total = 160_000_000;
    let half = Rc::new(Cell::new(None));
    let (seen, mut bytes) = (half.clone(), 0);
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Down {
            bytes += packet.data.len();
            if bytes > total / 2 && seen.get().is_none() {
                seen.set(Some(bytes));
            }
        }
        true
    }));
    let begin = world.now;
    assert!(download(&mut world, total, Duration::from_secs(10)));
    let seconds = (world.now - begin).as_secs_f64();
    let floor = total as f64 * 8.0 / 1e9;
    assert!(
        seconds < floor + 1.6,
        "{seconds:.2} s; the link needs {floor:.2}"
    );
}

/// RFC 9000 §17.4: an end that does not use the spin bit sets it at random, here for each
/// connection ID.
#[test]
fn spin_bit_is_random_for_each_connection_id() {
    use std::collections::BTreeMap;
    type BitsById = BTreeMap<Vec<u8>, BTreeMap<bool, usize>>;
    let seen: Arc<Mutex<BitsById>> = Arc::default();
    for seed in 0..20 {
        let mut world = World::new(
            Setup::new(),
            path("rate=20M delay=5ms queue=100", seed),
            seed,
        );
        let sink = seen.clone();
        world.filter = Some(Box::new(move |_, packet| {
            if packet.data[0] & 0x80 == 0 {
                let mut seen = sink.lock().expect("one thread");
                let spins = seen.entry(packet.data[1..9].to_vec()).or_default();
                *spins.entry(packet.data[0] & 0x20 != 0).or_default() += 1;
            }
            true
        }));
        world.handshake();
        assert!(download(&mut world, 100_000, Duration::from_secs(5)));
    }
    let seen = seen.lock().expect("one thread");
    assert!(seen.values().all(|spins| spins.len() == 1), "{seen:?}");
    let ones = seen.values().filter(|spins| spins.contains_key(&true));
    let share = ones.count() as f64 / seen.len() as f64;
    assert!((0.2..0.8).contains(&share), "{share} of {}", seen.len());
}
