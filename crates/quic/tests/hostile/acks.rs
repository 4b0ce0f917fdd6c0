//! Acknowledgements of what was never received (RFC 9000 §13.1, §21.4).

use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::connection::{Event, Forgery};
use clearway_quic::error::Code;
use clearway_quic::event::{Observer, TraceEvent};
use clearway_quic::stream::Directionality;
use clearway_quic::wire::PacketKind;
use clearway_quic::wire::frame::kind;
use std::sync::{Arc, Mutex};

use crate::duel::{Duel, IDLE_MEMORY, fields, raw};

/// Largest, delay 0, no more ranges, `first` numbers before the largest.
fn ack(largest: u64, first: u64) -> Vec<u8> {
    fields(&[kind::ACK, largest, 0, 0, first])
}

#[derive(Clone, Debug, Default)]
struct Numbers(Arc<Mutex<Vec<u64>>>);

impl Observer for Numbers {
    fn on_event(&mut self, _: clearway_quic::Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::PacketSent {
            kind: PacketKind::OneRtt,
            number,
            ..
        } = event
        {
            self.0.lock().expect("one thread").push(*number);
        }
    }
}

#[test]
fn acknowledging_a_packet_never_sent() {
    for hostile in [Role::Client, Role::Server] {
        let mut duel = Duel::new(hostile);
        duel.say(&ack(1_000_000, 0));
        let error = duel.verdict();
        assert_eq!(error.code, Code::PROTOCOL_VIOLATION);
        assert_eq!(error.frame, Some(kind::ACK));
        assert!(error.reason.contains("1000000"), "{}", error.reason);
    }
}

#[test]
fn acknowledging_a_packet_never_sent_in_the_handshake() {
    let mut duel = Duel::begun(Role::Client, |_| {});
    duel.world.run_for(Duration::from_millis(6));
    duel.strike(&Forgery::new(PacketKind::Initial, &ack(77, 0)));
    let error = duel.verdict();
    assert_eq!(error.code, Code::PROTOCOL_VIOLATION);
    assert_eq!(error.frame, Some(kind::ACK));
}

/// A peer that acknowledges everything, to make the sender go faster than the
/// path bears, meets a number that was left out on purpose.
#[test]
fn optimistic_acknowledgement_meets_a_skipped_number() {
    let mut duel = Duel::new(Role::Client);
    let numbers = Numbers::default();
    duel.victim().set_observer(Box::new(numbers.clone()));
    let id = duel
        .victim()
        .open(Directionality::Bidirectional)
        .expect("credit");
    let skipped = |numbers: &Numbers| {
        let sent = numbers.0.lock().expect("one thread");
        sent.windows(2)
            .find(|pair| pair[1] > pair[0] + 1)
            .map(|pair| pair[0] + 1)
    };
    for _ in 0..1000 {
        let _ = duel.victim().write(id, &[0; 4096]);
        duel.world.run_for(Duration::from_millis(10));
        let mut sink = [0; 8192];
        while let Ok(Some(n)) = duel.hostile().read(id, &mut sink)
            && n > 0
        {}
        if skipped(&numbers).is_some() {
            break;
        }
    }
    let skipped = skipped(&numbers).expect("a number is left out now and then");
    duel.say(&ack(skipped, 0));
    let error = duel.verdict();
    assert_eq!(error.code, Code::PROTOCOL_VIOLATION);
    assert_eq!(error.frame, Some(kind::ACK));
    assert!(
        error.reason.contains(&skipped.to_string()),
        "{}",
        error.reason
    );
}

#[test]
fn ranges_below_zero() {
    let mut duel = Duel::new(Role::Client);
    duel.say(&ack(1, 5));
    let error = duel.verdict();
    assert_eq!(error.code, Code::FRAME_ENCODING_ERROR);
    assert_eq!(error.frame, Some(kind::ACK));
}

/// The most ranges a datagram holds, again and again, cost no memory and no
/// connection: each names only numbers that may have been sent.
#[test]
fn thousands_of_ranges() {
    let mut duel = Duel::new(Role::Client);
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
    duel.say(&payload);
    let error = duel.verdict();
    assert_eq!(error.code, Code::PROTOCOL_VIOLATION);
    duel.victim_holds_at_most(IDLE_MEMORY);
}

/// Gap-makers: every second number never arrives, so that the victim's list of
/// what it received would grow without end.
#[test]
fn gap_makers() {
    let mut duel = Duel::new(Role::Client);
    for _ in 0..20_000 {
        duel.strike(&Forgery {
            skip: 1,
            ..Forgery::new(PacketKind::OneRtt, &[0x01])
        });
    }
    duel.victim_holds_at_most(IDLE_MEMORY);
    duel.world.run_for(Duration::from_secs(1));
    duel.still_serves();
    let closed = |events: &Vec<Event>| events.iter().any(|e| matches!(e, Event::Closed(_)));
    assert!(!duel.world.server.events.values().any(closed));
}
