//! Failures of other stacks in the field that only show between two ends. `README.md` lists where every
//! known one is tested.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::Instant;
use clearway_quic::stream::Directionality;
use clearway_quic::wire::PartialHeader;
use clearway_testing::{Setup, World, path};

const CLEAN: &str = "rate=100M delay=5ms queue=250";

fn is_long(packet: &Packet) -> bool {
    packet.data[0] & 0x80 != 0
}

/// The type bits of a version 1 long header: 0 Initial, 2 Handshake.
fn long_type(packet: &Packet) -> u8 {
    packet.data[0] >> 4 & 3
}

/// On a long path with a small window most moments are the pacer's. A peer's
/// packets are acknowledged at once all the same, in packets of their own.
#[test]
fn ack_does_not_wait_for_pacer() {
    let mut world = World::new(Setup::new(), path("rate=100M delay=100ms queue=250", 1), 1);
    world.handshake();
    world.run_for(Duration::from_secs(1));
    let server = world.server.connection();
    let id = server
        .open(Directionality::Unidirectional)
        .expect("a stream");
    assert!(server.write(id, &vec![1; 400_000]).is_ok());
    // Into the middle of the paced first window.
    world.run_for(Duration::from_millis(20));
    let alone = Rc::new(Cell::new(0));
    let seen = alone.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Down && packet.data.len() < 100 {
            seen.set(seen.get() + 1);
        }
        true
    }));
    let mut pings = 0;
    world.run_until(Duration::from_millis(150), |world| {
        if pings < 8 {
            pings += 1;
            world.client.connection().ping();
        }
        false
    });
    assert!(alone.get() > 0, "every ACK waited for data that was paced");
}

/// Application keys come before the handshake is complete. What a client's
/// probe repeats until then is its Finished, not a PING.
#[test]
fn lost_finished_is_retransmitted() {
    let mut world = World::new(Setup::new(), path(CLEAN, 2), 2);
    let dropped = Rc::new(Cell::new(0));
    let count = dropped.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        // Whatever comes after the ClientHello's two datagrams, once.
        let finished = direction == Direction::Up
            && (!is_long(packet) || long_type(packet) == 2 || packet.data.len() < 1200);
        if finished && count.get() < 2 {
            count.set(count.get() + 1);
            return false;
        }
        true
    }));
    world.connect();
    let done = world.run_until(Duration::from_secs(2), |world| {
        world.client.connection().is_confirmed()
    });
    assert!(dropped.get() > 0 && done, "{} dropped", dropped.get());
}

/// The client's second flight coalesces an Initial, the Finished and data. A
/// spoilt Initial costs nothing but itself.
#[test]
fn undecryptable_packet_does_not_affect_rest_of_datagram() {
    let mut world = World::new(Setup::new(), path(CLEAN, 3), 3);
    let spoilt = Rc::new(Cell::new(0));
    let count = spoilt.clone();
    let mut initials = 0;
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up && is_long(packet) && long_type(packet) == 0 {
            initials += 1;
            if initials > 2 {
                // Within the first packet's protected part.
                packet.data[40] ^= 0xff;
                count.set(count.get() + 1);
            }
        }
        true
    }));
    world.handshake();
    assert!(spoilt.get() > 0);
    assert!(
        world.now.as_nanos() < 40_000_000,
        "it took a probe: {:?}",
        world.now
    );
}

/// A post-quantum ClientHello needs two datagrams, which may change places.
#[test]
fn client_hello_in_two_reordered_datagrams_is_accepted() {
    let mut world = World::new(Setup::new(), path(CLEAN, 4), 4);
    let held: Rc<RefCell<Option<Packet>>> = Rc::default();
    let hold = held.clone();
    let mut first = true;
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up && std::mem::take(&mut first) {
            *hold.borrow_mut() = Some(packet.clone());
            return false;
        }
        true
    }));
    world.connect();
    world.run_for(Duration::from_millis(6));
    assert!(
        !world.server.connections.is_empty(),
        "the second half begins it"
    );
    let late = held.borrow_mut().take().expect("the first half");
    world.deliver(Direction::Up, late);
    let done = world.run_until(Duration::from_millis(100), |world| {
        world.client.connection().is_confirmed()
    });
    assert!(done, "it took a probe");
    assert_eq!(world.server.connections.len(), 1);
}

/// Server Initials are padded, and what fits is coalesced: no datagram of the
/// handshake is an unpadded Initial that asks for an acknowledgement.
/// The flight after a lost ServerHello is kept, and opened when that comes: a
/// client that waits for the flight to be sent again loses a probe timeout.
#[test]
fn handshake_packets_ahead_of_server_hello_are_processed() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 1);
    let full = Rc::new(Cell::new(0));
    let seen = full.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if direction == Direction::Up {
            return true;
        }
        seen.set(seen.get() + usize::from(packet.data.len() >= 1200));
        match seen.get() {
            0 => true,
            // Most of the ServerHello.
            1 => false,
            // The rest of it and the Handshake flight.
            2 => true,
            // From here on nothing but Initial packets arrive.
            _ => {
                let first = PartialHeader::parse(&packet.data, 8).expect("a packet");
                packet.data.truncate(first.packet_len);
                is_long(packet) && long_type(packet) == 0
            }
        }
    }));
    world.connect();
    let done = world.run_until(Duration::from_secs(10), |world| {
        world.client.connection().alpn().is_some()
    });
    assert!(done, "{} full datagrams", full.get());
}

/// A client whose Initial ACKs are all lost still knows what a round trip takes, from
/// the server's first answer: its lost Finished is not a second late.
#[test]
fn lost_finished_without_rtt_sample_is_retransmitted_soon() {
    let mut world = World::new(Setup::new(), path(CLEAN, 1), 1);
    let (mut answers, mut after) = (0, 0);
    world.filter = Some(Box::new(move |direction, _: &mut Packet| {
        if direction == Direction::Down {
            // An ACK alone, then the ServerHello's beginning with an ACK before it. What
            // is sent again, the fourth, comes without.
            answers += 1;
            return answers > 2;
        }
        after += u32::from(answers >= 4);
        after != 1
    }));
    world.connect();
    let done = world.run_until(Duration::from_secs(10), |world| {
        world.server.first().is_some_and(|c| c.is_confirmed())
    });
    assert!(done);
    let late = world.now - Instant::ZERO;
    assert!(late < Duration::from_millis(200), "{late:?}");
}

#[test]
fn datagrams_with_initials_are_full_and_coalesced() {
    let mut world = World::new(Setup::new(), path(CLEAN, 5), 5);
    let sizes: Rc<RefCell<Vec<(Direction, usize)>>> = Rc::default();
    let seen = sizes.clone();
    world.filter = Some(Box::new(move |direction, packet: &mut Packet| {
        if is_long(packet) && long_type(packet) == 0 {
            seen.borrow_mut().push((direction, packet.data.len()));
        }
        true
    }));
    world.handshake();
    let sizes = sizes.borrow();
    assert!(
        sizes
            .iter()
            .filter(|(direction, _)| *direction == Direction::Up)
            .all(|(_, size)| *size >= 1200)
    );
    let down: Vec<_> = sizes
        .iter()
        .filter(|(direction, _)| *direction == Direction::Down)
        .collect();
    // An ACK alone may be small; ServerHello and what follows share a datagram.
    assert!(down.iter().any(|(_, size)| *size >= 1200), "{down:?}");
    assert!(down.len() <= 3, "{down:?}");
}

/// One ACK acknowledges hundreds of packets: the reverse path stalls while a
/// window of them arrives.
#[test]
fn single_ack_for_hundreds_of_packets_keeps_transfer_going() {
    let mut world = World::new(Setup::new(), path("rate=100M delay=20ms queue=1000", 6), 6);
    world.handshake();
    assert!(clearway_testing::download(
        &mut world,
        3_000_000,
        Duration::from_secs(10)
    ));
    let lost = world
        .server
        .connection()
        .stats(world.now)
        .counters
        .packets_lost;
    let open = Rc::new(Cell::new(false));
    let gate = open.clone();
    world.filter = Some(Box::new(move |direction, _: &mut Packet| {
        direction == Direction::Down || gate.get()
    }));
    let server = world.server.connection();
    let id = server
        .open(Directionality::Unidirectional)
        .expect("a stream");
    let written = server.write(id, &vec![2; 600_000]).expect("writes");
    server.finish(id).expect("finishes");
    world.run_for(Duration::from_millis(45));
    open.set(true);
    // The next packet that asks for it is acknowledged with all the others.
    world.run_for(Duration::from_secs(3));
    let now = world.now;
    let server = world.server.connection();
    assert!(written > 400_000, "{written}");
    assert_eq!(server.stats(now).in_flight, 0);
    server.check_invariants();
    let after = server.stats(now).counters.packets_lost;
    assert!(after - lost < 10, "{} were not lost", after - lost);
}

/// A stream that ends without a byte still ends.
#[test]
fn empty_stream_is_finished() {
    let mut world = World::new(Setup::new(), path(CLEAN, 7), 7);
    world.handshake();
    let client = world.client.connection();
    let id = client
        .open(Directionality::Unidirectional)
        .expect("a stream");
    client.finish(id).expect("finishes");
    world.run_for(Duration::from_millis(100));
    let server = world.server.connection();
    assert_eq!(server.accept(Directionality::Unidirectional), Some(id));
    assert_eq!(server.read_chunk(id, 1), Ok(None));
}

/// Every test that `README.md` names exists.
#[test]
fn tests_named_in_readme_exist() {
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
    clearway_testing::check_named_tests(&package, "## Pitfalls", 50);
}
