//! RFC 9002 §5: when an ACK is an RTT sample.

use super::harness::{Bench, MS, PATH};
use crate::{PtoContext, Space};
use core::time::Duration;

fn smoothed(bench: &Bench) -> Duration {
    bench.recovery.path(PATH).unwrap().rtt().smoothed()
}

/// §5.1: the largest acknowledged has to be newly acknowledged.
#[test]
fn ack_without_new_largest_gives_no_rtt_sample() {
    let mut bench = Bench::new();
    bench.send_many(2, 0);
    bench.ack(1..=1, 100);
    assert_eq!(bench.out.rtt_updated, Some(PATH));
    bench.ack_ranges(&[0..=1], 400);
    assert_eq!(bench.acked(), [0]);
    assert_eq!(bench.out.rtt_updated, None);
    assert_eq!(smoothed(&bench), MS * 100);
}

/// §5.1: at least one newly acknowledged packet has to be ack-eliciting.
#[test]
fn ack_of_only_non_ack_eliciting_packets_gives_no_rtt_sample() {
    let mut bench = Bench::new();
    bench.send_ack_only(0);
    bench.ack(0..=0, 100);
    assert_eq!(bench.acked(), [0]);
    assert_eq!(bench.out.rtt_updated, None);
    // The largest may be a packet with only an ACK, if another one is ack-eliciting.
    bench.send(200);
    bench.send_ack_only(210);
    bench.ack(1..=2, 260);
    assert_eq!(bench.out.rtt_updated, Some(PATH));
    assert_eq!(smoothed(&bench), MS * 50);
}

/// §5.3: the peer's delay, limited to its max_ack_delay once confirmed.
#[test]
fn ack_delay_is_limited_to_max_ack_delay_after_handshake_confirmation() {
    let mut bench = Bench::sampled(100);
    bench.recovery.set_max_ack_delay(MS * 8);
    bench.send(1000);
    bench
        .ack_frame(Space::Data, &[1..=1], MS * 80, 1180)
        .unwrap();
    // 7/8·100 + 1/8·(180 − 8).
    assert_eq!(smoothed(&bench), MS * 109);
}

/// An ACK that repeats an earlier one gives no sample: after two seconds of loss the PTO is
/// as before.
#[test]
fn repeated_old_ack_gives_no_rtt_sample() {
    let mut bench = Bench::sampled(100);
    let before = bench.recovery.path(PATH).unwrap().rtt().pto();
    bench.send(1000);
    bench
        .ack_frame(Space::Data, &[1..=1], MS * 2000, 3100)
        .unwrap();
    assert_eq!(bench.acked(), [1], "it acknowledges nonetheless");
    assert_eq!(bench.out.rtt_updated, None);
    let rtt = bench.recovery.path(PATH).unwrap().rtt();
    assert_eq!((rtt.pto(), rtt.latest()), (before, MS * 100));
}

#[test]
fn ack_delay_is_not_limited_before_handshake_confirmation() {
    let mut bench = Bench::handshaking(PtoContext::default());
    bench.send_in(Space::Handshake, 0);
    bench.ack_in(Space::Handshake, 0..=0, 100);
    bench.send_in(Space::Handshake, 1000);
    bench
        .ack_frame(Space::Handshake, &[1..=1], MS * 80, 1180)
        .unwrap();
    assert_eq!(smoothed(&bench), MS * 100);
}

/// §5.3: Initial ACKs are not delayed by the peer.
#[test]
fn ack_delay_of_initial_packets_is_ignored() {
    let mut bench = Bench::handshaking(PtoContext::default());
    bench.send_in(Space::Initial, 0);
    bench.ack_in(Space::Initial, 0..=0, 100);
    bench.send_in(Space::Initial, 1000);
    bench
        .ack_frame(Space::Initial, &[1..=1], MS * 80, 1180)
        .unwrap();
    assert_eq!(smoothed(&bench), MS * 110);
}

#[test]
fn all_spaces_share_one_rtt_estimate() {
    let mut bench = Bench::handshaking(PtoContext::default());
    bench.send_in(Space::Initial, 0);
    bench.ack_in(Space::Initial, 0..=0, 80);
    bench.send_in(Space::Handshake, 100);
    bench.ack_in(Space::Handshake, 0..=0, 260);
    assert_eq!(smoothed(&bench), MS * 90);
}
