//! RFC 9002 §6.1: packet threshold, time threshold, and packets that are not lost.

use super::harness::{BYTES, Bench, Call, MS, PATH, at};
use crate::controller::CongestionCause;
use crate::outcome::{LossCause, NewlyAcked};
use crate::{SentInfo, Space};

/// §6.1.1.
#[test]
fn packet_is_lost_when_the_third_later_packet_is_acknowledged() {
    let mut bench = Bench::sampled(100);
    bench.send_many(4, 1000);
    bench.ack(3..=3, 1100);
    assert_eq!(bench.lost(), [0_u64; 0]);
    bench.ack(4..=4, 1100);
    assert_eq!(bench.lost(), [1]);
    assert_eq!(bench.out.lost[0].cause, LossCause::PacketThreshold);
    assert_eq!(bench.out.lost[0].content, (Space::Data, 1));
    assert_eq!(bench.in_flight(), BYTES);
}

/// §6.1.1 and A.10: skipped numbers are not packets.
#[test]
fn skipped_numbers_do_not_count_towards_the_packet_threshold() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.recovery.skip_number(Space::Data);
    bench.send_many(3, 1000);
    bench.ack(4..=4, 1100);
    assert_eq!(bench.lost(), [0_u64; 0], "two packets later, not three");
    bench.ack(5..=5, 1100);
    assert_eq!(bench.lost(), [1]);
}

/// §6.1.2.
#[test]
fn packet_past_the_time_threshold_is_lost_by_the_timer() {
    let mut bench = Bench::sampled(80);
    bench.send(1000);
    bench.send(1005);
    bench.ack(2..=2, 1085);
    assert_eq!(bench.lost(), [0_u64; 0]);
    // 9/8 of 80 ms after it was sent.
    assert_eq!(bench.recovery.next_timeout(), Some(at(1090)));
    bench.timeout(at(1089));
    assert_eq!(bench.lost(), [0_u64; 0], "early calls are harmless");
    bench.timeout(at(1090));
    assert_eq!(bench.lost(), [1]);
    assert_eq!(bench.out.lost[0].cause, LossCause::TimeThreshold);
    assert_eq!(bench.out.pto, None);
}

/// §6.1.2: the larger of smoothed and latest.
#[test]
fn larger_latest_rtt_raises_the_time_threshold() {
    let mut bench = Bench::sampled(80);
    bench.send(1000);
    bench.send(1001);
    bench.ack(2..=2, 1161);
    assert_eq!(bench.recovery.next_timeout(), Some(at(1180)));
}

/// §6.1: only packets sent before an acknowledged one.
#[test]
fn packets_after_the_largest_acknowledged_are_not_lost() {
    let mut bench = Bench::sampled(10);
    bench.send_many(3, 1000);
    bench.ack(1..=1, 1010);
    bench.timeout(at(9000));
    assert_eq!(bench.lost(), [0_u64; 0]);
    assert!(bench.out.pto.is_some(), "a timeout is not a loss (§6.2)");
}

#[test]
fn losses_are_detected_per_space() {
    let mut bench = Bench::handshaking(crate::PtoContext::default());
    bench.send_in(Space::Initial, 0);
    for _ in 0..4 {
        bench.send_in(Space::Handshake, 1);
    }
    bench.ack_in(Space::Handshake, 3..=3, 20);
    assert_eq!(bench.lost(), [0], "of the Handshake space");
    assert_eq!(bench.out.lost[0].space, Space::Handshake);
    assert!(bench.recovery.has_unacked(Space::Initial));
}

#[test]
fn controller_is_told_of_losses_once_and_before_the_ack() {
    let mut bench = Bench::sampled(100);
    bench.send_many(9, 1000);
    bench.controller.take();
    // 1–9 in flight; 1, 2, 4 are missing.
    bench.ack_ranges(&[5..=9, 3..=3], 1100);
    let told = bench.controller.take();
    let lost = Call::Congested {
        cause: CongestionCause::Loss,
        largest: 4,
        next: 10,
        bytes: 3 * BYTES,
        packets: 3,
        ranges: 2,
        before: 9 * BYTES,
        after: 0,
        acked: 6 * BYTES,
        persistent: false,
    };
    let acked = Call::Acked {
        bytes: 6 * BYTES,
        packets: 6,
        largest: 9,
        before: 9 * BYTES,
        after: 0,
        lost: 3 * BYTES,
        used: 0,
        sampled: true,
    };
    assert_eq!(told, [lost, acked]);
}

/// RFC 9000 §14.4.
#[test]
fn lost_mtu_probe_is_not_congestion() {
    let mut bench = Bench::sampled(100);
    let probe = SentInfo {
        mtu_probe: true,
        size: 1452,
        ..bench.info(Space::Data, 1000)
    };
    bench.send_info(probe);
    let path = bench.recovery.path(PATH).unwrap();
    assert_eq!((path.in_flight(), path.data_in_flight()), (1452, 0));
    bench.send_many(3, 1000);
    let path = bench.recovery.path(PATH).unwrap();
    assert_eq!(path.data_in_flight(), 3 * BYTES);
    bench.ack(2..=4, 1100);
    assert_eq!(bench.recovery.path(PATH).unwrap().data_in_flight(), 0);
    assert_eq!(bench.lost(), [1]);
    assert!(bench.out.lost[0].mtu_probe);
    assert_eq!(bench.in_flight(), 0, "it did count in flight");
    assert_eq!(bench.controller.congestion(), []);
    assert_eq!(bench.recovery.path(PATH).unwrap().lost(), 0);
}

#[test]
fn padded_packet_counts_in_flight_and_can_be_lost() {
    let mut bench = Bench::sampled(100);
    let padded = SentInfo {
        ack_eliciting: false,
        ..bench.info(Space::Data, 1000)
    };
    bench.send_info(padded);
    assert_eq!(bench.in_flight(), BYTES);
    assert_eq!(bench.recovery.next_timeout(), None, "no ack is due");
    bench.send_many(3, 1000);
    bench.ack(4..=4, 1100);
    assert_eq!(bench.lost(), [1]);
}

#[test]
fn loss_timer_is_rearmed_in_the_future_when_the_rtt_rises() {
    let mut bench = Bench::sampled(80);
    bench.send_many(2, 1000);
    bench.ack(2..=2, 1070);
    // The RTT rises before the timer fires: it fires, and waits again.
    bench.send(1080);
    bench.ack(3..=3, 1089);
    let mut fired = 0;
    while let Some(due) = bench.recovery.next_timeout() {
        bench.timeout(due);
        assert!(bench.recovery.next_timeout().is_none_or(|next| next > due));
        fired += 1;
        assert!(fired < 5);
    }
    assert_eq!(bench.in_flight(), 0);
}

/// RFC 9002 §7.1.
#[test]
fn increase_of_the_ce_count_is_reported_as_congestion() {
    let mut bench = Bench::sampled(100);
    bench.send_many(3, 1000);
    bench.ack(1..=2, 1100);
    bench.controller.take();
    let index = bench.out.newly_acked.largest.unwrap().index;
    bench.recovery.on_ecn_ce(PATH, index, 2, at(1100));
    let marked = Call::Congested {
        cause: CongestionCause::EcnCe,
        largest: 2,
        next: 4,
        bytes: 0,
        packets: 2,
        ranges: 0,
        before: BYTES,
        after: BYTES,
        acked: 2 * BYTES,
        persistent: false,
    };
    assert_eq!(bench.controller.take(), [marked]);
}

/// An ACK that brings losses and marks reduces the window once, for the losses.
#[test]
fn ce_marks_are_reported_after_losses_and_the_ack() {
    let mut bench = Bench::sampled(100);
    bench.send_many(6, 1000);
    bench.controller.take();
    let ranges = core::iter::once(5..=6);
    let now = at(1100);
    let mut asked = None;
    let marks = |newest: &NewlyAcked| {
        asked = Some(*newest);
        2
    };
    bench
        .recovery
        .on_ack_with_ecn(Space::Data, ranges, MS, now, &mut bench.out, marks)
        .unwrap();
    assert_eq!(bench.lost(), [1, 2, 3]);
    assert_eq!(asked, Some(bench.out.newly_acked));
    let told = bench.controller.take();
    let causes = told.iter().map(|told| match told {
        Call::Congested { cause, .. } => Some(*cause),
        Call::Acked { .. } => None,
        other => panic!("{other:?}"),
    });
    let expected = [
        Some(CongestionCause::Loss),
        None,
        Some(CongestionCause::EcnCe),
    ];
    assert!(causes.eq(expected), "{told:?}");
}

#[test]
fn older_ack_only_packet_does_not_disarm_the_loss_timer() {
    let mut bench = Bench::sampled(80);
    bench.send_ack_only(1000);
    bench.send(1000);
    bench.send(1005);
    bench.ack(3..=3, 1085);
    assert_eq!(bench.recovery.next_timeout(), Some(at(1090)));
}

/// The timer acknowledges nothing: the bytes of the last ACK must not be reported again.
#[test]
fn loss_by_timer_reports_no_acknowledged_bytes() {
    let mut bench = Bench::sampled(80);
    bench.send(1000);
    bench.send(1005);
    bench.ack(2..=2, 1085);
    bench.controller.take();
    bench.fire();
    let lost = Call::Congested {
        cause: CongestionCause::Loss,
        largest: 1,
        next: 3,
        bytes: BYTES,
        packets: 1,
        ranges: 1,
        before: BYTES,
        after: 0,
        acked: 0,
        persistent: false,
    };
    assert_eq!(bench.controller.take(), [lost]);
}

/// BBR counts ranges of lost packets, not packets (draft-ietf-ccwg-bbr §5.3.1.3).
#[test]
fn adjacent_losses_are_reported_as_one_range() {
    let mut bench = Bench::sampled(100);
    bench.send_many(12, 1000);
    bench.ack_ranges(&[8..=12, 4..=6], 1100);
    assert_eq!(bench.lost(), [1, 2, 3, 7]);
    let told = bench.controller.congestion();
    let [
        Call::Congested {
            packets, ranges, ..
        },
    ] = told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!((packets, ranges), (4, 2));
}

/// Packets that are not in flight are never lost, so no timer is armed for them.
#[test]
fn ack_only_packet_does_not_arm_the_loss_timer() {
    let mut bench = Bench::sampled(100);
    bench.send_ack_only(1000);
    bench.send(1000);
    bench.ack(2..=2, 1100);
    assert_eq!(bench.recovery.next_timeout(), None);
}
