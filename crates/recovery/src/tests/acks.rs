//! Acknowledgments: which packets they remove, and which are errors.

use core::time::Duration;

use super::harness::{BYTES, Bench, Call, PATH, at};
use crate::outcome::{AckError, LargestAcked};
use crate::{SentInfo, Space};

#[test]
fn ack_returns_the_content_of_acknowledged_packets() {
    let mut bench = Bench::new();
    bench.send_many(5, 0);
    bench.ack_ranges(&[3..=4, 0..=1], 10);
    assert_eq!(bench.acked(), [3, 4, 0, 1]);
    for packet in &bench.out.acked {
        assert_eq!(packet.content, (Space::Data, packet.number));
    }
    assert_eq!(bench.in_flight(), BYTES);
    assert_eq!(bench.recovery.largest_acked(Space::Data), Some(4));
    let told = bench.controller.take();
    let expected = Call::Acked {
        bytes: 4 * BYTES,
        packets: 4,
        largest: 4,
        before: 5 * BYTES,
        after: BYTES,
        lost: 0,
        used: 0,
        sampled: true,
    };
    assert_eq!(told.last(), Some(&expected));
}

/// A receiver repeats its ranges, and an attacker sends as many as fit.
#[test]
fn ranges_below_the_oldest_packet_are_not_looked_up() {
    let mut bench = Bench::new();
    bench.send_many(1002, 0);
    let mut ranges: Vec<_> = (0..500_u64).rev().map(|n| 2 * n + 1..=2 * n + 1).collect();
    bench.ack_ranges(&ranges, 10);
    assert_eq!((bench.acked().len(), bench.lost().len()), (500, 499));
    ranges.insert(0, 1001..=1001);
    let before = bench.recovery.looked_up;
    bench.ack_ranges(&ranges, 11);
    assert_eq!(bench.acked(), [1001]);
    let looked_up = bench.recovery.looked_up - before;
    assert!((1..=3).contains(&looked_up), "{looked_up}");
    // Packets that were declared lost are found all the same.
    bench.ack_ranges(&[998..=998, 600..=604], 12);
    assert_eq!(bench.out.spurious, 4);
}

#[test]
fn repeated_ack_has_no_effect() {
    let mut bench = Bench::new();
    bench.send_many(3, 0);
    bench.ack(0..=2, 10);
    bench.controller.take();
    bench.ack(0..=2, 20);
    assert!(bench.out.acked.is_empty());
    assert_eq!(bench.out.newly_acked.largest, None);
    assert_eq!(bench.out.rtt_updated, None);
    assert_eq!(bench.controller.take(), []);
}

/// RFC 9000 §13.1.
#[test]
fn ack_of_unsent_packet_is_an_error() {
    let mut bench = Bench::new();
    bench.send(0);
    let result = bench.ack_frame(Space::Data, &[0..=1], Duration::ZERO, 10);
    assert_eq!(result, Err(AckError::NeverSent { number: 1 }));
}

/// RFC 9000 §21.4.
#[test]
fn ack_of_skipped_number_is_an_error() {
    let mut bench = Bench::new();
    bench.send(0);
    bench.recovery.skip_number(Space::Data);
    assert_eq!(bench.recovery.next_number(Space::Data), 2);
    bench.send(0);
    let result = bench.ack_frame(Space::Data, &[0..=2], Duration::ZERO, 10);
    assert_eq!(result, Err(AckError::Skipped { number: 1 }));
    bench.ack_ranges(&[2..=2, 0..=0], 20);
    assert_eq!(bench.acked(), [2, 0]);
}

#[test]
fn acks_of_a_discarded_space_are_ignored() {
    let mut bench = Bench::new();
    let result = bench.ack_frame(Space::Initial, &[7..=9], Duration::ZERO, 10);
    assert_eq!(result, Ok(()));
    assert!(bench.out.acked.is_empty());
}

#[test]
fn newly_acked_summary_counts_ect_packets() {
    let mut bench = Bench::new();
    for number in 0..4 {
        let info = SentInfo {
            ect: number < 3,
            mtu_probe: number == 2,
            ..bench.info(Space::Data, number)
        };
        bench.send_info(info);
    }
    bench.ack_ranges(&[2..=3, 0..=0], 20);
    let newly = bench.out.newly_acked;
    assert_eq!(newly.ect, 2);
    assert!(newly.ack_eliciting && newly.mtu_probe);
    let largest = LargestAcked {
        number: 3,
        path: PATH,
        index: 3,
        sent: at(3),
        ect: false,
    };
    assert_eq!(newly.largest, Some(largest));
}

#[test]
fn ack_with_thousands_of_ranges_is_processed() {
    let mut bench = Bench::new();
    for _ in 0..8000 {
        let info = bench.info(Space::Data, 0);
        bench.recovery.on_sent(info, (Space::Data, info.number));
    }
    let ranges: Vec<_> = (0..4000_u64).rev().map(|n| 2 * n + 1..=2 * n + 1).collect();
    bench.ack_ranges(&ranges, 10);
    assert_eq!(bench.out.acked.len(), 4000);
    assert_eq!(bench.out.lost.len(), 3999, "all but the two newest");
}

/// Packets with only ACKs are not in flight and are never declared lost.
#[test]
fn ack_only_packets_are_acknowledged_but_never_lost() {
    let mut bench = Bench::new();
    for millis in 0..5 {
        bench.send_ack_only(millis);
    }
    assert_eq!(bench.in_flight(), 0);
    assert_eq!(bench.recovery.next_timeout(), None);
    bench.send(5);
    bench.ack_ranges(&[5..=5, 1..=1], 50);
    assert_eq!(bench.acked(), [5, 1]);
    assert_eq!(bench.lost(), [0_u64; 0]);
    assert_eq!(bench.controller.congestion(), []);
}

/// RFC 9002 §6.2.4: a probe may repeat what is in flight.
#[test]
fn unacked_lists_ack_eliciting_packets_in_flight() {
    let mut bench = Bench::new();
    bench.send_many(3, 0);
    bench.send_ack_only(0);
    bench.ack(1..=1, 5);
    let unacked: Vec<u64> = bench
        .recovery
        .unacked(Space::Data)
        .map(|(n, _)| n)
        .collect();
    assert_eq!(unacked, [0, 2]);
    assert!(bench.recovery.has_unacked(Space::Data));
    assert!(!bench.recovery.has_unacked(Space::Initial));
}
