//! Spurious losses: thresholds and undo (RFC 9438 §4.9.2).

use super::harness::{Bench, Call, PATH, at};
use crate::PathRecovery;

fn path(bench: &Bench) -> &PathRecovery {
    bench.recovery.path(PATH).unwrap()
}

fn undone(bench: &Bench) -> Vec<u64> {
    let told = bench.controller.take();
    let event = |told| match told {
        Call::Spurious(event) => Some(event),
        _ => None,
    };
    told.into_iter().filter_map(event).collect()
}

/// Packets 1 and 2 of ten are declared lost, in the event bounded by 11.
fn two_lost() -> Bench {
    let mut bench = Bench::sampled(100);
    bench.send_many(10, 1000);
    bench.ack(3..=6, 1100);
    assert_eq!(bench.lost(), [1, 2]);
    bench.controller.take();
    bench
}

#[test]
fn congestion_event_is_undone_when_all_its_losses_are_acknowledged() {
    let mut bench = two_lost();
    bench.ack(1..=1, 1101);
    assert_eq!((bench.out.spurious, bench.out.undone), (1, 0));
    assert_eq!(undone(&bench), []);
    bench.ack(2..=2, 1102);
    assert_eq!((bench.out.spurious, bench.out.undone), (1, 1));
    assert_eq!(undone(&bench), [11]);
    bench.ack(1..=10, 1110);
    assert_eq!(undone(&bench), [], "once");
}

#[test]
fn late_ack_of_one_loss_does_not_undo_the_event() {
    let mut bench = two_lost();
    bench.ack(2..=2, 1101);
    bench.ack(7..=10, 1102);
    assert_eq!(undone(&bench), []);
    // Three PTOs later it is settled that packet 1 was lost.
    bench.send(9000);
    bench.ack_ranges(&[11..=11, 1..=1], 9100);
    assert_eq!(bench.out.spurious, 0);
    assert_eq!(undone(&bench), []);
}

#[test]
fn loss_in_the_same_recovery_joins_the_event() {
    let mut bench = two_lost();
    // 7 is lost too: sent before the boundary, so no new event.
    bench.ack(8..=10, 1105);
    assert_eq!(bench.lost(), [7]);
    bench.ack(1..=2, 1106);
    assert_eq!(undone(&bench), []);
    bench.ack(7..=7, 1107);
    assert_eq!(undone(&bench), [11]);
}

#[test]
fn ecn_mark_prevents_undo_of_the_event() {
    let mut bench = two_lost();
    bench.recovery.on_ecn_ce(PATH, 6, 1, at(1100));
    bench.ack(1..=2, 1102);
    assert_eq!(bench.out.spurious, 2);
    assert_eq!(undone(&bench), []);
}

#[test]
fn late_ack_delivers_bytes_but_returns_no_content() {
    let mut bench = two_lost();
    bench.ack(1..=2, 1102);
    assert!(bench.out.acked.is_empty(), "the content was handed back");
    assert_eq!(bench.in_flight(), 4 * 1200);
    assert_eq!(path(&bench).delivered(), 7 * 1200, "but it was delivered");
}

/// RFC 9002 §6.1.1: reordering seen raises the packet threshold.
#[test]
fn packet_threshold_grows_with_observed_reordering() {
    let mut bench = two_lost();
    bench.ack(1..=1, 1101);
    // Packet 6 was acknowledged before packet 1: five apart.
    assert_eq!(path(&bench).packet_threshold(), 6);
    bench.ack(2..=10, 1102);
    bench.send_many(6, 1200);
    bench.ack(15..=15, 1210);
    assert_eq!(bench.lost(), [0_u64; 0], "tolerated now");
    bench.send(1211);
    bench.send(1211);
    bench.ack(17..=17, 1212);
    assert_eq!(bench.lost(), [11]);
}

/// RFC 9002 §6.1.2: lateness seen raises the time threshold, once per ACK.
#[test]
fn time_threshold_grows_with_late_acks() {
    let mut bench = Bench::sampled(80);
    bench.send_many(3, 1000);
    bench.ack(3..=3, 1080);
    bench.fire();
    assert_eq!(bench.lost(), [1, 2]);
    assert_eq!(path(&bench).time_threshold_eighths(), 9);
    bench.ack(1..=2, 1095);
    assert_eq!(bench.out.spurious, 2);
    assert_eq!(path(&bench).time_threshold_eighths(), 10);
}

#[test]
fn spurious_loss_within_the_time_threshold_does_not_raise_it() {
    let mut bench = two_lost();
    bench.ack(1..=2, 1101);
    assert_eq!(path(&bench).time_threshold_eighths(), 9);
}

#[test]
fn loss_after_undo_begins_a_new_event() {
    let mut bench = two_lost();
    bench.ack(1..=2, 1102);
    assert_eq!(undone(&bench), [11]);
    bench.send_many(10, 1110);
    bench.ack(11..=20, 1200);
    assert_eq!(bench.lost(), [7, 8, 9, 10]);
    bench.ack(7..=10, 1201);
    assert_eq!(undone(&bench), [21]);
}

/// RFC 8985 §6.2: after 16 loss events without reordering.
#[test]
fn thresholds_step_back_after_sixteen_events_without_reordering() {
    let mut bench = two_lost();
    bench.ack(1..=10, 1101);
    assert_eq!(path(&bench).packet_threshold(), 6);
    for round in 1..=16 {
        assert_eq!(path(&bench).packet_threshold(), 6);
        let first = bench.recovery.next_number(crate::Space::Data);
        bench.send_many(20, 1100 + 200 * round);
        bench.ack(first + 1..=first + 19, 1200 + 200 * round);
        assert_eq!(bench.lost(), [first]);
    }
    assert_eq!(path(&bench).packet_threshold(), 4);
}

#[test]
fn lost_bytes_include_spurious_losses() {
    let mut bench = two_lost();
    assert_eq!(path(&bench).lost(), 2 * 1200);
    bench.ack(1..=2, 1102);
    assert_eq!(
        path(&bench).lost(),
        2 * 1200,
        "spurious losses stay counted"
    );
}

/// The time threshold grows if a packet comes later than it allows, not exactly at it: 9/8
/// of 80 ms are 90 ms.
#[test]
fn packet_exactly_at_the_time_threshold_does_not_raise_it() {
    for (acked, eighths) in [(1090, 9), (1091, 10)] {
        let mut bench = Bench::sampled(80);
        bench.send_many(5, 1000);
        bench.ack(5..=5, 1080);
        assert_eq!(bench.lost(), [1, 2]);
        bench.ack(1..=1, acked);
        assert_eq!(bench.out.spurious, 1);
        assert_eq!(path(&bench).time_threshold_eighths(), eighths);
    }
}

/// RFC 8985 §6.2 counts recoveries, not the losses within one.
#[test]
fn losses_of_one_recovery_count_once_for_the_thresholds() {
    let mut bench = two_lost();
    bench.ack(1..=1, 1101);
    let raised = path(&bench).packet_threshold();
    assert!(raised > 3, "{raised}");
    // In one flight, a loss each ten packets, each found by an ACK of its own.
    bench.send_many(400, 1200);
    for hole in 0..30 {
        let first = 11 + hole * 10;
        bench.ack(first + 1..=first + 9, 1300);
    }
    assert!(bench.recovery.path(PATH).unwrap().lost() >= 20 * 1200);
    assert_eq!(path(&bench).packet_threshold(), raised);
}
