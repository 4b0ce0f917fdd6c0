//! RFC 9002 §7.6: persistent congestion.

use super::harness::{Bench, Call, PATH, at};
use crate::{PtoContext, Space};

fn collapsed(bench: &Bench) -> bool {
    let persistent = |told: &Call| {
        matches!(
            told,
            Call::Congested {
                persistent: true,
                ..
            }
        )
    };
    bench.controller.take().iter().any(persistent)
}

/// Two samples of 100 ms: rttvar is 37.5 ms and the PTO 275 ms.
const SPAN: u64 = 3 * 275;

#[test]
fn losses_spanning_more_than_three_ptos_are_persistent_congestion() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.send(1001 + SPAN);
    bench.send_many(3, 2000);
    bench.ack(3..=5, 2100);
    assert_eq!(bench.lost(), [1, 2]);
    assert!(collapsed(&bench));
    assert_eq!(bench.out.persistent_congestion, [PATH]);
}

#[test]
fn losses_spanning_exactly_three_ptos_are_not_persistent_congestion() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.send(1000 + SPAN);
    bench.send_many(3, 1980);
    bench.ack(3..=5, 2080);
    assert_eq!(bench.lost(), [1, 2]);
    assert!(!collapsed(&bench));
    assert!(bench.out.persistent_congestion.is_empty());
}

/// §7.6.2: none of the packets in between is acknowledged.
#[test]
fn acknowledged_packet_between_losses_prevents_persistent_congestion() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.send(1500);
    bench.send(3000);
    bench.send_many(3, 3000);
    bench.ack_ranges(&[4..=6, 2..=2], 3100);
    assert_eq!(bench.lost(), [1, 3]);
    assert!(!collapsed(&bench));
}

/// §7.6.2: across all packet number spaces.
#[test]
fn acknowledged_packet_of_another_space_prevents_persistent_congestion() {
    for acked in [true, false] {
        let mut bench = Bench::handshaking(PtoContext::default());
        bench.send_in(Space::Initial, 0);
        bench.ack_in(Space::Initial, 0..=0, 100);
        bench.send_in(Space::Handshake, 1000);
        bench.send_in(Space::Initial, 1500);
        if acked {
            bench.ack_in(Space::Initial, 1..=1, 1600);
        }
        bench.send_in(Space::Handshake, 3000);
        for _ in 0..3 {
            bench.send_in(Space::Handshake, 3000);
        }
        bench.ack_in(Space::Handshake, 2..=4, 3100);
        assert_eq!(bench.lost(), [0, 1]);
        assert_eq!(collapsed(&bench), !acked);
    }
}

/// §7.6.2: both packets are ack-eliciting.
#[test]
fn non_ack_eliciting_losses_do_not_span_persistent_congestion() {
    let mut bench = Bench::sampled(100);
    let mut padded = bench.info(Space::Data, 1000);
    padded.ack_eliciting = false;
    bench.send_info(padded);
    bench.send(3000);
    bench.send_many(3, 3000);
    bench.ack(3..=5, 3100);
    assert_eq!(bench.lost(), [1, 2]);
    assert!(!collapsed(&bench));
}

/// §7.6.2: an RTT sample existed when they were sent.
#[test]
fn losses_sent_before_the_first_rtt_sample_do_not_span_persistent_congestion() {
    let mut bench = Bench::new();
    bench.send(0);
    bench.send(20_000);
    bench.send_many(3, 20_000);
    bench.ack(2..=4, 20_050);
    assert_eq!(bench.lost(), [0, 1]);
    assert!(!collapsed(&bench));
}

/// RFC 9000 §14.4 and RFC 9002 §7.6: the loss of an MTU probe is no sign of congestion.
#[test]
fn lost_mtu_probes_do_not_span_persistent_congestion() {
    let mut bench = Bench::sampled(100);
    for millis in [1000, 3000] {
        let mut probe = bench.info(Space::Data, millis);
        probe.mtu_probe = true;
        bench.send_info(probe);
    }
    bench.send_many(3, 3000);
    bench.ack(3..=5, 3100);
    assert_eq!(bench.lost(), [1, 2]);
    assert!(!collapsed(&bench));
}

/// §5.2: the minimum starts over with the newest sample.
#[test]
fn min_rtt_is_reset_by_persistent_congestion() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.send(5000);
    bench.send_many(3, 5000);
    bench.ack(3..=5, 5300);
    assert!(collapsed(&bench));
    let min = bench.recovery.path(PATH).unwrap().rtt().min();
    assert_eq!(min, Some(at(300) - at(0)));
}

/// One period without ACKs is one collapse: its later losses begin a new span.
#[test]
fn persistent_congestion_is_reported_once() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.send(3000);
    bench.send_many(2, 3000);
    bench.send_many(3, 3001);
    bench.ack(5..=5, 3101);
    assert_eq!(bench.lost(), [1, 2]);
    assert!(collapsed(&bench));
    bench.ack(6..=7, 3101);
    assert_eq!(bench.lost(), [3, 4]);
    assert!(!collapsed(&bench));
}

#[test]
fn persistent_congestion_is_not_undone() {
    let mut bench = Bench::sampled(100);
    bench.send(1000);
    bench.send(3000);
    bench.send_many(3, 3000);
    bench.ack(3..=5, 3100);
    assert!(collapsed(&bench));
    bench.ack(1..=2, 3101);
    assert_eq!((bench.out.spurious, bench.out.undone), (2, 0));
}

/// §7.6.2: losses found in two steps count together, unless one of them is acknowledged
/// late.
#[test]
fn late_ack_prevents_persistent_congestion() {
    for late in [true, false] {
        let mut bench = Bench::sampled(100);
        bench.send(1000);
        bench.send_many(3, 2090);
        bench.ack(4..=4, 2150);
        assert_eq!(bench.lost(), [1]);
        if late {
            bench.ack(1..=1, 2160);
            assert_eq!(bench.out.spurious, 1);
        }
        bench.fire();
        assert_eq!(bench.lost(), [2, 3]);
        assert_eq!(collapsed(&bench), !late);
    }
}

/// §7.6.2, appendix B.8: only packets sent after the first RTT sample count.
#[test]
fn loss_sent_at_the_instant_of_the_first_rtt_sample_does_not_count() {
    for (sent, expected) in [(100, false), (101, true)] {
        let mut bench = Bench::sampled(100);
        bench.send(sent);
        bench.send(1500);
        bench.send_many(3, 1500);
        bench.ack(3..=5, 1600);
        assert_eq!(bench.lost(), [1, 2]);
        assert_eq!(collapsed(&bench), expected, "sent at {sent}");
    }
}
