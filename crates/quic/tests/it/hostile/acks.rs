//! False and malicious acknowledgements (RFC 9000 §13.1, §21.4).

use std::time::Duration;

use clearway_links::Direction;
use clearway_quic::Role;
use clearway_quic::connection::{Event, Forgery};
use clearway_quic::error::Code;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::PacketKind;
use clearway_quic::wire::frame::kind;

use crate::hostile::pair::{HostilePair, SentNumbers, fields, raw};
use clearway_testing::path;

/// Largest, delay 0, no more ranges, `first` numbers before the largest.
fn ack(largest: u64, first: u64) -> Vec<u8> {
    fields(&[kind::ACK, largest, 0, 0, first])
}

/// Acknowledges these numbers, ascending and no two of them neighbours, each as
/// a range of its own.
pub(crate) fn ack_each(numbers: &[u64]) -> Vec<u8> {
    let (largest, rest) = numbers.split_last().expect("at least one");
    raw(|w| {
        for value in [kind::ACK, *largest, 0, rest.len() as u64, 0] {
            w.varint(value);
        }
        let mut above = *largest;
        for &number in rest.iter().rev() {
            w.varint(above - number - 2);
            w.varint(0);
            above = number;
        }
    })
}

#[test]
fn ack_of_unsent_packet_is_protocol_violation() {
    for hostile in [Role::Client, Role::Server] {
        let mut pair = HostilePair::new(hostile);
        pair.say(&ack(1_000_000, 0));
        pair.closed_with(
            Code::PROTOCOL_VIOLATION,
            kind::ACK,
            "ACK of packet 1000000, which was not sent yet",
        );
    }
}

#[test]
fn ack_of_unsent_handshake_packet_is_protocol_violation() {
    let mut pair = HostilePair::begun(Role::Client, |_| {});
    pair.world.run_for(Duration::from_millis(6));
    pair.strike(&Forgery::new(PacketKind::Initial, &ack(77, 0)));
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        kind::ACK,
        "ACK of packet 77, which was not sent yet",
    );
}

/// A peer that acknowledges packets before they arrive, to make the sender too fast, also acknowledges a
/// number that was skipped on purpose.
#[test]
fn ack_of_skipped_packet_number_is_protocol_violation() {
    let mut pair = HostilePair::new(Role::Client);
    let numbers = SentNumbers::default();
    pair.victim().set_observer(Box::new(numbers.clone()));
    let id = pair
        .victim()
        .open(Directionality::Bidirectional)
        .expect("credit");
    let skipped = |numbers: &SentNumbers| {
        let sent = numbers.sent();
        sent.windows(2)
            .find(|pair| pair[1] > pair[0] + 1)
            .map(|pair| pair[0] + 1)
    };
    for _ in 0..1000 {
        let _ = pair.victim().write(id, &[0; 4096]);
        pair.world.run_for(Duration::from_millis(10));
        let mut sink = [0; 8192];
        while let Ok(Some(n)) = pair.hostile().read(id, &mut sink)
            && n > 0
        {}
        if skipped(&numbers).is_some() {
            break;
        }
    }
    let skipped = skipped(&numbers).expect("a number is left out now and then");
    pair.say(&ack(skipped, 0));
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        kind::ACK,
        &format!("ACK of packet {skipped}, which was deliberately not sent"),
    );
}

#[test]
fn ack_range_below_zero_is_frame_encoding_error() {
    let mut pair = HostilePair::new(Role::Client);
    pair.say(&ack(1, 5));
    pair.closed_with(
        Code::FRAME_ENCODING_ERROR,
        kind::ACK,
        "ACK range below packet number zero",
    );
}

/// The most ranges a datagram holds, again and again, cost no memory and no
/// connection: each names only numbers that may have been sent.
#[test]
fn ack_of_thousands_of_ranges_names_unsent_packets_and_closes() {
    let mut pair = HostilePair::new(Role::Client);
    let payload = raw(|w| {
        // Ranges of one number with gaps of one: 0, 2, 4 … would be sent numbers
        // only if that many were; the first that is not ends it.
        for value in [kind::ACK, 4000, 0, 1500, 0] {
            w.varint(value);
        }
        (0..1500).for_each(|_| {
            w.varint(0);
            w.varint(0);
        });
    });
    pair.say(&payload);
    pair.closed_with(
        Code::PROTOCOL_VIOLATION,
        kind::ACK,
        "ACK of packet 4000, which was not sent yet",
    );
}

/// Lets the victim send until `done`, the hostile end reading all of it.
fn bulk(pair: &mut HostilePair, id: StreamId, mut done: impl FnMut(&mut HostilePair) -> bool) {
    for _ in 0..1000 {
        while let Ok(1..) = pair.victim().write(id, &[0; 65_536]) {}
        pair.world.run_for(Duration::from_millis(10));
        while let Ok(Some(chunk)) = pair.hostile().read_chunk(id, usize::MAX)
            && !chunk.is_empty()
        {}
        if done(pair) {
            return;
        }
    }
    panic!("it never came to that");
}

/// Thousands of ranges over numbers that were really sent: with a window of
/// thousands of packets in flight, every second one is acknowledged, over and
/// over. Each ACK is legal. What is known of the stream then lies in thousands
/// of pieces, in the ledger and in the send buffer; all of it is bounded by the
/// window, and it goes when the transfer goes on.
#[test]
fn ack_of_every_second_packet_keeps_memory_bounded() {
    let mut pair = HostilePair::new(Role::Client);
    pair.world.path = path("rate=1G delay=50ms queue=64MB", 1);
    pair.bound(40 << 20);
    let numbers = SentNumbers::default();
    pair.victim().set_observer(Box::new(numbers.clone()));
    let id = pair
        .victim()
        .open(Directionality::Bidirectional)
        .expect("credit");
    bulk(&mut pair, id, |pair| {
        let now = pair.world.now;
        pair.victim().stats(now).window > 8 << 20
    });
    numbers.take_eliciting();
    let start = pair.world.now;
    bulk(&mut pair, id, |pair| {
        pair.world.now > start + Duration::from_millis(100)
    });
    let before = pair.victim().memory_usage();
    // From here on the hostile end hears and says nothing but what is forged.
    pair.world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    pair.world.run_for(Duration::from_millis(99));
    let sent = numbers.take_eliciting();
    let ledger = pair.victim().memory_usage().ledger / sent.len();
    assert!((64..512).contains(&ledger), "{ledger} bytes a packet sent");
    let every_second: Vec<u64> = sent.iter().copied().step_by(2).collect();
    assert!(every_second.len() > 2000, "{} ranges", every_second.len());
    for _ in 0..100 {
        pair.say(&ack_each(&every_second));
        assert_eq!(pair.victim().error(), None);
    }
    // Some sixteen bytes a range in the send buffer, no more.
    let after = pair.victim().memory_usage();
    assert!(after.streams < 2 * before.streams, "{before:?} {after:?}");
    // It heals: what was left out is declared lost and sent again.
    pair.world.filter = None;
    bulk(&mut pair, id, |pair| {
        let now = pair.world.now;
        pair.victim().stats(now).in_flight > 0
            && pair.victim().memory_usage().streams < before.streams
    });
    pair.world.run_for(Duration::from_secs(5));
    assert_eq!(pair.victim().error(), None);
}

/// ACKs of the victim's own ACKs never come, only of what lies between: one
/// retained packet must not pin the record of its neighbours.
#[test]
fn unacknowledged_acks_do_not_grow_ledger() {
    let mut pair = HostilePair::new(Role::Client);
    let numbers = SentNumbers::default();
    let id = pair
        .victim()
        .open(Directionality::Bidirectional)
        .expect("credit");
    pair.victim().set_observer(Box::new(numbers.clone()));
    pair.world.filter = Some(Box::new(|direction, _| direction == Direction::Down));
    let limit = |kind: u64| fields(&[kind, id.as_u64(), 1 << 40]);
    pair.say(&fields(&[kind::MAX_DATA, 1 << 40]));
    pair.say(&limit(kind::MAX_STREAM_DATA));
    for _ in 0..400 {
        for _ in 0..70 {
            let _ = pair.victim().write(id, &[0; 1000]);
            pair.world.run_for(Duration::from_micros(100));
        }
        // Two packets that ask for an ACK while nothing else is to be sent.
        pair.world.run_for(Duration::from_millis(20));
        let ping = [kind::PING as u8; 1];
        pair.say(&ping);
        pair.say(&ping);
        pair.world.flush();
        for number in numbers.take_eliciting() {
            pair.say(&ack(number, 0));
        }
        assert_eq!(pair.victim().error(), None);
    }
    let ledger = pair.victim().memory_usage().ledger;
    assert!(ledger < 256 << 10, "{ledger} bytes of ledger");
    pair.world.filter = None;
}

/// Every second packet number is skipped, so that the victim's list of received ranges would grow without
/// a bound.
#[test]
fn skipped_packet_numbers_do_not_grow_received_ranges() {
    let mut pair = HostilePair::new(Role::Client);
    for _ in 0..20_000 {
        pair.strike(&Forgery {
            skip: 1,
            ..Forgery::new(PacketKind::OneRtt, &[0x01])
        });
    }
    pair.world.run_for(Duration::from_secs(1));
    pair.still_serves();
    let closed = |events: &Vec<Event>| events.iter().any(|e| matches!(e, Event::Closed(_)));
    assert!(!pair.world.server.app.events.values().any(closed));
}
