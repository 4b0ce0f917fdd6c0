//! A server's preferred address must not turn others into targets (RFC 9000 §9.6, §21.5.3).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::connection::Forgery;
use clearway_quic::event::{Observer, TraceEvent};
use clearway_quic::stream::{Directionality, WriteError};
use clearway_quic::wire::{Frames, PacketKind, PartialHeader};
use clearway_quic::{Instant, Role};

use crate::hostile::pair::{HostilePair, LINK, SentNumbers, fields};
use clearway_testing::{Setup, World, download, path};

/// Challenges that a path gets in the three PTOs of its validation, one each.
const CHALLENGES: usize = 3;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// The packets that an end sends, in order: whether each holds no more than
/// probing frames.
#[derive(Clone, Debug, Default)]
struct Probing(Arc<Mutex<VecDeque<bool>>>);

impl Observer for Probing {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::PacketSent { payload, .. } = *event {
            let mut frames = Frames::new(payload);
            let probing = frames.all(|frame| frame.is_ok_and(|frame| frame.is_probing()));
            self.0.lock().expect("one thread").push_back(probing);
        }
    }
}

impl Probing {
    /// Whether the datagram that now leaves holds no more than probing frames.
    fn next_datagram(&self, mut datagram: &[u8]) -> bool {
        let mut sent = self.0.lock().expect("one thread");
        let mut all = true;
        while !datagram.is_empty() {
            let header = PartialHeader::parse(datagram, 8).expect("our own packet");
            all &= sent.pop_front().expect("a packet that was sent");
            datagram = &datagram[header.packet_len..];
        }
        all
    }
}

/// Every datagram: direction, from, to, whether it only probes.
type Log = Arc<Mutex<Vec<(Direction, SocketAddr, SocketAddr, bool)>>>;

/// A world whose server prefers `preferred`, its handshake done, with a log of what
/// was sent. `heard` decides what arrives.
fn preferring(
    preferred: SocketAddr,
    heard: impl Fn(Direction, &Packet) -> bool + 'static,
) -> (World, Log) {
    let SocketAddr::V4(v4) = preferred else {
        panic!("an IPv4 address")
    };
    let mut setup = Setup::new();
    setup.preferred = Some(v4);
    let mut world = World::new(setup, path(LINK, 1), 1);
    let (client, server) = (Probing::default(), Probing::default());
    world.connect();
    world
        .client
        .connection()
        .set_observer(Box::new(client.clone()));
    // The server's connection exists with the first datagram it gets.
    world.run_until(Duration::from_secs(1), |world| {
        !world.server.connections.is_empty()
    });
    world
        .server
        .connection()
        .set_observer(Box::new(server.clone()));
    client.0.lock().expect("one thread").clear();
    server.0.lock().expect("one thread").clear();
    let log = Log::default();
    let sink = log.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        let probing = match direction {
            Direction::Up => client.next_datagram(&packet.data),
            Direction::Down => server.next_datagram(&packet.data),
        };
        let entry = (direction, packet.src, packet.dst, probing);
        sink.lock().expect("one thread").push(entry);
        heard(direction, packet)
    }));
    let done = world.run_until(Duration::from_secs(5), |world| {
        world.client.connection().is_confirmed()
    });
    assert!(done, "no handshake");
    (world, log)
}

fn upload(world: &mut World, total: usize) {
    let client = world.client.connection();
    let id = client.open(Directionality::Unidirectional).expect("credit");
    let mut written = 0;
    world.run_until(Duration::from_secs(10), |world| {
        while written < total {
            match world.client.connection().write(id, &[7; 4096]) {
                Ok(n) => written += n,
                Err(WriteError::Blocked) => break,
                Err(error) => panic!("write: {error:?}"),
            }
        }
        let server = world.server.connection();
        if let Some(id) = server.accept(Directionality::Unidirectional) {
            assert_eq!(server.read(id, &mut [0; 1]), Ok(Some(1)));
        }
        written >= total
    });
    assert!(written >= total, "{written} of {total} bytes");
}

/// The address of somebody who never asked gets a few probes, and the connection
/// stays where it works.
#[test]
fn silent_preferred_address_gets_no_data() {
    let victim = address("10.0.0.77:443");
    let (mut world, log) = preferring(victim, move |_, packet| packet.dst != victim);
    let home = world.server.address;
    upload(&mut world, 200_000);
    assert!(download(&mut world, 200_000, Duration::from_secs(5)));
    world.run_for(Duration::from_secs(10));
    let log = log.lock().expect("one thread");
    let sent: Vec<_> = log.iter().filter(|entry| entry.2 == victim).collect();
    assert!((1..=CHALLENGES).contains(&sent.len()), "{}", sent.len());
    assert!(sent.iter().all(|entry| entry.3), "only probes: {sent:?}");
    drop(log);
    assert_eq!(world.client.connection().remote_address(), home);
    assert_eq!(world.client.connection().error(), None);
}

/// Nor does a server that acknowledges everything without having seen it draw more.
#[test]
fn optimistic_acks_do_not_validate_preferred_address() {
    let victim = address("10.0.0.77:443");
    let mut pair = HostilePair::begun(Role::Server, |setup| {
        setup.preferred = Some("10.0.0.77:443".parse().expect("an address"));
    });
    // The send buffer of an upload that goes well.
    pair.bound(2 << 20);
    let numbers = SentNumbers::default();
    pair.victim().set_observer(Box::new(numbers.clone()));
    let count = Arc::new(Mutex::new(0));
    let sum = count.clone();
    pair.world.filter = Some(Box::new(move |_, packet: &mut Packet| {
        *sum.lock().expect("one thread") += usize::from(packet.dst == victim);
        packet.dst != victim
    }));
    pair.world.run_for(Duration::from_secs(1));
    let id = pair
        .victim()
        .open(Directionality::Unidirectional)
        .expect("credit");
    for _ in 0..200 {
        while let Ok(1..) = pair.victim().write(id, &[7; 4096]) {}
        pair.world.run_for(Duration::from_millis(1));
        // Every packet sent by now, wherever it went; none that was left out.
        let mut sent = numbers.sent();
        sent.sort_unstable();
        let largest = *sent.last().expect("packets");
        let runs = sent.chunk_by(|a, b| b - a == 1);
        let newest = runs.last().map_or(0, <[u64]>::len) as u64;
        pair.say(&fields(&[2, largest, 0, 0, newest - 1]));
        if pair.victim().error().is_some() {
            break;
        }
    }
    pair.world.run_for(Duration::from_secs(10));
    let sent = *count.lock().expect("one thread");
    assert!((1..=CHALLENGES).contains(&sent), "{sent} datagrams");
    assert_eq!(pair.victim().error(), None);
}

/// The client moves once the address has answered, and until then neither end says
/// more there than it has to.
#[test]
fn only_probes_are_sent_until_preferred_address_is_validated() {
    let preferred = address("10.0.0.77:443");
    let (mut world, log) = preferring(preferred, |_, _| true);
    assert!(download(&mut world, 500_000, Duration::from_secs(10)));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.client.connection().remote_address(), preferred);
    let log = log.lock().expect("one thread");
    let up: Vec<_> = log.iter().filter(|entry| entry.2 == preferred).collect();
    let down: Vec<_> = log.iter().filter(|entry| entry.1 == preferred).collect();
    assert!(up[0].3, "the client probes first");
    assert!(down[0].3, "and so does the server");
    let data = |entry: &&(Direction, SocketAddr, SocketAddr, bool)| !entry.3;
    let at = |entry: &(Direction, SocketAddr, SocketAddr, bool)| {
        log.iter().position(|each| std::ptr::eq(each, entry))
    };
    let answer = at(down[0]).expect("in the log");
    let first = up.iter().copied().find(data).expect("data");
    assert!(at(first) > Some(answer), "data before the answer");
    // The rest of the download comes from there.
    assert!(down.iter().copied().filter(data).count() > 100);
    let last = log.iter().rfind(|entry| entry.0 == Direction::Down);
    assert_eq!(last.expect("data").1, preferred);
}

/// A client that speaks to the preferred address and answers no challenge there:
/// somebody may be making it up, so data comes from where it came.
#[test]
fn server_sends_no_data_from_preferred_address_before_validation() {
    let mut pair = HostilePair::new(Role::Client);
    let (client, home) = (pair.world.client.address, pair.world.server.address);
    let other = address("10.0.0.77:443");
    let probing = Probing::default();
    pair.victim().set_observer(Box::new(probing.clone()));
    let counts = Arc::new(Mutex::new((0, 0)));
    let sink = counts.clone();
    pair.world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up {
            return true;
        }
        let mut counts = sink.lock().expect("one thread");
        let probes = probing.next_datagram(&packet.data);
        counts.0 += usize::from(packet.src == home);
        counts.1 += usize::from(packet.src == other);
        assert!(probes || packet.src == home, "data from elsewhere");
        // The client hears nothing from there, and so answers nothing.
        packet.src != other
    }));
    let id = pair
        .victim()
        .open(Directionality::Unidirectional)
        .expect("credit");
    pair.victim().write(id, &[7; 100_000]).expect("writes");
    let ping = pair.forge(&Forgery {
        pad_to: 1200,
        ..Forgery::new(PacketKind::OneRtt, &[0x01])
    });
    pair.world
        .deliver(Direction::Up, Packet::new(client, other, ping));
    pair.world.run_for(Duration::from_secs(10));
    let (from_home, from_other) = *counts.lock().expect("one thread");
    assert!(from_home > 50, "data flows: {from_home}");
    assert!((1..=CHALLENGES).contains(&from_other), "{from_other}");
    pair.still_serves();
}

/// Addresses that reach less far than the server's own are for requests forged in
/// the client's name, not for moving (RFC 9000 §21.5.6).
#[test]
fn preferred_address_on_loopback_is_not_probed() {
    for target in [
        "127.0.0.1:80",
        "169.254.169.254:80",
        "0.0.0.0:443",
        "10.0.0.77:0",
    ] {
        let target = address(target);
        let (mut world, log) = preferring(target, move |_, packet| packet.dst != target);
        assert!(download(&mut world, 20_000, Duration::from_secs(5)));
        world.run_for(Duration::from_secs(4));
        let log = log.lock().expect("one thread");
        let sent = log.iter().filter(|entry| entry.2 == target).count();
        assert_eq!(sent, 0, "{target}");
    }
}

/// A client that moves while it probes the preferred address probes it again from
/// where it is now, under another connection ID (RFC 9000 §9.5, §9.6.3).
#[test]
fn client_migrating_meanwhile_probes_preferred_address_from_new_path() {
    let preferred = address("10.0.0.77:443");
    let to = address("10.0.7.7:5000");
    let (mut world, log) = preferring(preferred, move |_, packet| {
        packet.dst != preferred || packet.src == to
    });
    world.run_for(Duration::from_millis(500));
    let now = world.now;
    let client = world.client.connection();
    client.migrate(now, Some(to.ip())).expect("migrates");
    world.client.address = to;
    assert!(download(&mut world, 200_000, Duration::from_secs(10)));
    let log = log.lock().expect("one thread");
    let probes = log.iter().filter(|entry| entry.2 == preferred);
    assert!(probes.clone().any(|entry| entry.1 != to));
    assert!(probes.clone().any(|entry| entry.1 == to));
    drop(log);
    assert_eq!(world.client.connection().remote_address(), preferred);
}
