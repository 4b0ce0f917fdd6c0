//! Several paths (RFC 9000 §9.4), with separate estimates.

use core::time::Duration;

use super::harness::{BYTES, Bench, Call, Fixed, MS, PATH, at};
use crate::congestion::{Algorithm, build};
use crate::outcome::{LossCause, Outcome};
use crate::{Gate, PathId, SentInfo, Space};

const NEW: PathId = PathId(1);

/// A sampled connection (100 ms) with a second path.
fn migrating() -> (Bench, Fixed) {
    let mut bench = Bench::sampled(100);
    let controller = Fixed::new(1 << 30);
    bench
        .recovery
        .add_path(NEW, Box::new(controller.clone()), BYTES, at(200));
    (bench, controller)
}

fn send_on(bench: &mut Bench, path: PathId, millis: u64) -> u64 {
    let info = SentInfo {
        path,
        ..bench.info(Space::Data, millis)
    };
    bench.send_info(info)
}

fn congested(controller: &Fixed) -> bool {
    !controller.congestion().is_empty()
}

#[test]
fn each_path_counts_its_own_send_indexes_and_bytes_in_flight() {
    let (mut bench, new) = migrating();
    send_on(&mut bench, NEW, 1000);
    send_on(&mut bench, PATH, 1000);
    send_on(&mut bench, NEW, 1000);
    assert_eq!(bench.recovery.path(NEW).unwrap().next_index(), 2);
    assert_eq!(bench.recovery.path(NEW).unwrap().in_flight(), 2 * BYTES);
    assert_eq!(bench.in_flight(), BYTES);
    let indices = new.take().into_iter().map(|told| match told {
        Call::Sent { index, .. } => index,
        other => panic!("{other:?}"),
    });
    assert!(indices.eq([0, 1]));
}

#[test]
fn ack_of_two_paths_reports_to_each_controller_only_its_packets() {
    let (mut bench, new) = migrating();
    send_on(&mut bench, PATH, 1000);
    send_on(&mut bench, NEW, 1000);
    send_on(&mut bench, NEW, 1000);
    bench.controller.take();
    new.take();
    bench.ack(1..=3, 1050);
    let bytes = |controller: &Fixed| match controller.take().as_slice() {
        [Call::Acked { bytes, sampled, .. }] => (*bytes, *sampled),
        other => panic!("{other:?}"),
    };
    assert_eq!(bytes(&new), (2 * BYTES, true));
    assert_eq!(bytes(&bench.controller), (BYTES, false));
}

#[test]
fn rtt_sample_belongs_to_the_path_of_the_packet() {
    let (mut bench, _) = migrating();
    send_on(&mut bench, NEW, 1000);
    bench.ack(1..=1, 1010);
    assert_eq!(bench.out.rtt_updated, Some(NEW));
    let rtt = |path| bench.recovery.path(path).unwrap().rtt().min();
    assert_eq!(rtt(NEW), Some(MS * 10));
    assert_eq!(rtt(PATH), Some(MS * 100));
}

/// Packets of the old path are not lost because the new one is faster.
#[test]
fn faster_new_path_does_not_cause_losses_on_the_old_path() {
    let (mut bench, new) = migrating();
    bench.send_many(10, 1000);
    for _ in 0..10 {
        send_on(&mut bench, NEW, 1001);
    }
    bench.ack(11..=20, 1011);
    assert_eq!(bench.lost(), [0_u64; 0]);
    // They arrive at their own pace.
    bench.ack(1..=20, 1100);
    assert_eq!(bench.acked().len(), 10);
    assert!(!congested(&new) && !congested(&bench.controller));
}

/// Packets of a dead old path are declared lost by ACKs of the new one. The controller of
/// the new path is not told of them.
#[test]
fn packets_on_dead_old_path_are_lost_by_time() {
    let (mut bench, new) = migrating();
    bench.send_many(3, 1000);
    bench.recovery.set_active_path(NEW, at(1001));
    send_on(&mut bench, NEW, 1001);
    bench.ack(4..=4, 1011);
    assert_eq!(bench.recovery.next_timeout(), Some(at(1112) + MS / 2));
    bench.fire();
    assert_eq!(bench.lost(), [1, 2, 3]);
    assert!(bench.out.lost.iter().all(|packet| packet.path == PATH));
    assert!(congested(&bench.controller) && !congested(&new));
}

/// A thousand packets of the old path are in flight after a migration. ACKs of the new path look
/// at a few packets each, not at all of those.
#[test]
fn ack_of_one_path_does_not_walk_over_packets_of_another() {
    const PACKETS: u64 = 1000;
    for acked_between in [false, true] {
        let (mut bench, _) = migrating();
        bench.send_many(PACKETS, 1000);
        let last_old = bench.recovery.next_number(Space::Data) - 1;
        if acked_between {
            // The old path's bytes in flight begin in the middle.
            bench.ack(1..=PACKETS / 2, 1001);
        }
        for _ in 0..PACKETS {
            send_on(&mut bench, NEW, 1002);
        }
        let before = bench.recovery.scanned;
        for number in last_old + 1..=last_old + PACKETS {
            bench.ack(number..=number, 1012);
        }
        let scanned = bench.recovery.scanned - before;
        assert!(scanned <= 3 * PACKETS, "{scanned} for {PACKETS} ACKs");
        // Those of the old path are lost at their own time all the same.
        bench.fire();
        let left = if acked_between { PACKETS / 2 } else { PACKETS };
        assert_eq!(bench.lost().len() as u64, left);
    }
}

/// A migration does not forget the bytes in flight, so the timer stays armed.
#[test]
fn timer_stays_armed_after_migration() {
    let (mut bench, _) = migrating();
    bench.send(1000);
    bench.recovery.set_active_path(NEW, at(1001));
    bench.recovery.check_invariants();
    bench.fire();
    assert_eq!(bench.out.pto, Some(Space::Data));
}

#[test]
fn removing_a_path_returns_its_packets_as_lost() {
    let (mut bench, new) = migrating();
    bench.send_many(2, 1000);
    send_on(&mut bench, NEW, 1000);
    bench.recovery.set_active_path(NEW, at(1000));
    let mut out = Outcome::new();
    bench.recovery.remove_path(PATH, &mut out);
    bench.recovery.check_invariants();
    let causes: Vec<_> = out.lost.iter().map(|p| (p.number, p.cause)).collect();
    assert_eq!(
        causes,
        [(1, LossCause::PathRemoved), (2, LossCause::PathRemoved)]
    );
    assert!(bench.recovery.path(PATH).is_none());
    // A late ACK of them is harmless.
    bench.ack(1..=3, 1100);
    assert_eq!(bench.acked(), [3]);
    assert!(!congested(&new));
}

#[test]
fn late_ack_of_a_loss_on_a_removed_path_is_ignored() {
    let (mut bench, _) = migrating();
    bench.send_many(5, 1000);
    bench.ack(4..=5, 1100);
    assert_eq!(bench.lost(), [1, 2]);
    bench.recovery.set_active_path(NEW, at(1100));
    let mut out = Outcome::new();
    bench.recovery.remove_path(PATH, &mut out);
    bench.ack(1..=5, 1200);
    assert_eq!(bench.out.spurious, 0);
}

#[test]
fn max_datagram_size_is_per_path() {
    let (mut bench, new) = migrating();
    bench.recovery.set_mds(NEW, 1452);
    assert_eq!(bench.recovery.path(NEW).unwrap().mds(), 1452);
    assert_eq!(bench.recovery.path(PATH).unwrap().mds(), BYTES);
    assert_eq!(new.take(), [Call::Mds(1452)]);
    assert_eq!(bench.controller.take(), []);
}

#[test]
fn new_path_may_send_its_initial_window() {
    let (mut bench, _) = migrating();
    match bench.recovery.gate(NEW, at(200)) {
        Gate::Open { bytes } => assert!(bytes >= 2 * BYTES),
        other => panic!("{other:?}"),
    }
}

/// A waiting packet of the slow path does not end the search for losses.
#[test]
fn waiting_packets_of_the_old_path_do_not_hide_losses_on_the_new_path() {
    let (mut bench, new) = migrating();
    send_on(&mut bench, NEW, 1000);
    bench.ack(1..=1, 1010);
    send_on(&mut bench, PATH, 2000);
    for _ in 0..4 {
        send_on(&mut bench, NEW, 2000);
    }
    bench.ack(6..=6, 2010);
    assert_eq!(bench.lost(), [3], "of 2 on the old path, 3 to 5 on the new");
    assert!(congested(&new));
    // The earliest of both paths' deadlines: 9/8 of 10 ms for packet 4.
    let due = at(2000) + Duration::from_micros(11_250);
    assert_eq!(bench.recovery.next_timeout(), Some(due));
}

#[test]
fn path_that_carried_much_is_worth_saving() {
    let mut bench = Bench::new();
    assert_eq!(bench.recovery.path(PATH).unwrap().to_save(), None);
    bench.send_many(100, 0);
    bench.ack(0..=99, 100);
    let saved = bench.recovery.path(PATH).unwrap().to_save().unwrap();
    assert_eq!(saved.rtt, Duration::from_millis(100));
    assert_eq!(saved.capacity, 100 * BYTES);
}

/// A NAT that gives the flow another port does not change the path.
#[test]
fn path_with_another_port_continues_with_window_and_round_trip() {
    const MOVED: PathId = PathId(2);
    let (mut bench, _) = migrating();
    let fixed = |window| build(Algorithm::Fixed(window), BYTES);
    bench
        .recovery
        .add_path(MOVED, fixed(90_000), BYTES, at(200));
    send_on(&mut bench, MOVED, 1000);
    bench.ack(1..=1, 1030);
    let other = PathId(3);
    bench
        .recovery
        .add_path(other, fixed(50_000), BYTES, at(1040));
    assert!(bench.recovery.continue_path(MOVED, other));
    let path = bench.recovery.path(other).unwrap();
    assert_eq!(path.window(), 90_000);
    assert_eq!(path.rtt().smoothed(), 30 * MS);
    // One that was sent on has its own measurements.
    send_on(&mut bench, other, 1050);
    assert!(!bench.recovery.continue_path(MOVED, other));
    let last = PathId(4);
    bench
        .recovery
        .add_path(last, fixed(50_000), BYTES, at(1060));
    // The controller of this path cannot be copied.
    assert!(!bench.recovery.continue_path(NEW, last));
    assert!(!bench.recovery.continue_path(PathId(9), last));
    assert!(bench.recovery.continue_path(MOVED, last));
}
