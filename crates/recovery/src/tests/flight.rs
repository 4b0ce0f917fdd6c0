//! Packets that leave the flight without being acknowledged or lost; the gate; pacing.

use core::time::Duration;

use super::harness::{BYTES, Bench, Call, Fixed, PATH, at};
use crate::congestion::{Algorithm, CongestionControl, NewPath, SlowStart};
use crate::controller::{Controller as _, State};
use crate::outcome::LossCause;
use crate::{Config, Gate, Outcome, PtoContext, Recovery, Space};

/// RFC 9002 §6.4.
#[test]
fn discarding_a_space_removes_its_packets_from_flight() {
    let mut bench = Bench::handshaking(PtoContext::default());
    bench.send_in(Space::Initial, 0);
    bench.send_in(Space::Handshake, 0);
    bench.controller.take();
    bench.recovery.discard_space(Space::Initial, at(10));
    bench.recovery.check_invariants();
    assert_eq!(bench.in_flight(), BYTES);
    assert_eq!(bench.controller.take(), [Call::Discarded(BYTES)]);
    assert!(!bench.recovery.has_unacked(Space::Initial));
}

#[test]
fn no_loss_is_detected_in_a_discarded_space() {
    let mut bench = Bench::handshaking(PtoContext::default());
    for _ in 0..3 {
        bench.send_in(Space::Initial, 0);
    }
    bench.ack_in(Space::Initial, 1..=1, 20);
    assert!(bench.recovery.next_timeout().is_some(), "packet 0 waits");
    bench.recovery.discard_space(Space::Initial, at(21));
    bench.timeout(at(60_000));
    assert_eq!(bench.lost(), [0_u64; 0]);
}

/// RFC 9002 §6.3, RFC 9000 §17.2.5.3.
#[test]
fn retry_returns_the_first_flight_and_keeps_packet_numbers() {
    let mut bench = Bench::handshaking(PtoContext::default());
    bench.send_in(Space::Initial, 0);
    bench.send_in(Space::Data, 0);
    bench.fire();
    bench.controller.take();
    let mut out = Outcome::new();
    bench.recovery.on_retry(at(1100), &mut out);
    bench.recovery.check_invariants();
    let handed: Vec<_> = out.lost.iter().map(|p| (p.space, p.cause)).collect();
    let expected = [
        (Space::Initial, LossCause::NotAccepted),
        (Space::Data, LossCause::NotAccepted),
    ];
    assert_eq!(handed, expected);
    assert_eq!(bench.in_flight(), 0);
    assert_eq!(bench.recovery.path(PATH).unwrap().pto_count(), 0);
    assert_eq!(bench.recovery.next_number(Space::Initial), 1);
    assert_eq!(bench.controller.congestion(), []);
}

/// RFC 9002 §6.4.
#[test]
fn rejected_0_rtt_is_returned_without_a_congestion_signal() {
    let mut bench = Bench::handshaking(PtoContext::default());
    bench.send_in(Space::Initial, 0);
    for _ in 0..3 {
        bench.send_in(Space::Data, 0);
    }
    bench.controller.take();
    let mut out = Outcome::new();
    bench.recovery.on_zero_rtt_rejected(at(100), &mut out);
    bench.recovery.check_invariants();
    assert_eq!(out.lost.len(), 3);
    assert_eq!(bench.in_flight(), BYTES);
    assert_eq!(bench.controller.take(), [Call::Discarded(3 * BYTES)]);
}

fn with_window(window: u64) -> (Recovery<()>, Fixed) {
    let controller = Fixed::new(window);
    let mut recovery = Recovery::new(Config::default(), at(0));
    recovery.add_path(PATH, Box::new(controller.clone()), BYTES, at(0));
    (recovery, controller)
}

fn send(recovery: &mut Recovery<()>, millis: u64) {
    let info = crate::SentInfo {
        space: Space::Data,
        path: PATH,
        number: recovery.next_number(Space::Data),
        now: at(millis),
        size: 1200,
        ack_eliciting: true,
        in_flight: true,
        mtu_probe: false,
        ect: false,
    };
    recovery.on_sent(info, ());
}

#[test]
fn gate_is_closed_when_no_full_packet_fits_the_window() {
    let (mut recovery, _) = with_window(3 * BYTES + BYTES - 1);
    for _ in 0..3 {
        assert!(matches!(recovery.gate(PATH, at(0)), Gate::Open { .. }));
        send(&mut recovery, 0);
    }
    assert_eq!(recovery.gate(PATH, at(0)), Gate::Congestion);
}

#[test]
fn train_never_exceeds_the_window() {
    let (mut recovery, _) = with_window(5 * BYTES);
    send(&mut recovery, 0);
    let Gate::Open { bytes } = recovery.gate(PATH, at(0)) else {
        panic!("closed");
    };
    assert!(bytes <= 4 * BYTES);
}

/// RFC 9002 §7.5: probes may exceed a full window, and count in flight.
#[test]
fn probes_may_exceed_the_window_and_count_in_flight() {
    let (mut recovery, _) = with_window(2 * BYTES);
    for _ in 0..4 {
        send(&mut recovery, 0);
    }
    recovery.check_invariants();
    assert_eq!(recovery.path(PATH).unwrap().in_flight(), 4 * BYTES);
    assert_eq!(recovery.gate(PATH, at(0)), Gate::Congestion);
}

/// RFC 9002 §7.7: the first flight is a burst, the next one is paced.
#[test]
fn initial_window_is_sent_without_pacing_and_next_flight_is_paced() {
    let (mut recovery, _) = with_window(10 * BYTES);
    for _ in 0..10 {
        assert!(matches!(recovery.gate(PATH, at(0)), Gate::Open { .. }));
        send(&mut recovery, 0);
    }
    let mut out = Outcome::new();
    recovery
        .on_ack(
            Space::Data,
            core::iter::once(0..=9),
            Duration::ZERO,
            at(100),
            &mut out,
        )
        .unwrap();
    let mut burst = 0;
    let until = loop {
        match recovery.gate(PATH, at(100)) {
            Gate::Open { .. } => {
                send(&mut recovery, 100);
                burst += 1;
            }
            Gate::Pacing { until } => break until,
            Gate::Congestion => panic!("window full after {burst}"),
        }
    };
    assert!(burst <= 3, "{burst} packets at once");
    assert!(until > at(100));
    assert!(matches!(recovery.gate(PATH, until), Gate::Open { .. }));
}

#[test]
fn pacing_rate_of_the_controller_is_used_unless_zero() {
    let (mut recovery, mut controller) = with_window(100 * BYTES);
    // 5/4 of the window over the initial RTT.
    let derived = 100 * BYTES * 5 * 1000 / 4 / 333;
    assert_eq!(recovery.path(PATH).unwrap().pacing_rate(), derived);
    let doubled = 100 * BYTES * 2 * 1000 / 333;
    let slow_start = State::SlowStart;
    let avoidance = State::CongestionAvoidance;
    for (rate, state, expected) in [
        (Some(777), slow_start, 777),
        (Some(0), avoidance, derived),
        (None, State::Recovery, derived),
        (None, slow_start, doubled),
    ] {
        controller.state = state;
        let controller = Fixed {
            rate,
            ..controller.clone()
        };
        let mut out = Outcome::new();
        recovery.remove_path(PATH, &mut out);
        recovery.add_path(PATH, Box::new(controller), BYTES, at(0));
        assert_eq!(recovery.path(PATH).unwrap().pacing_rate(), expected);
    }
}

/// Each ACK is for so many packets, sent 4 ms apart, the last of them 40 ms before.
#[test]
fn pacing_is_slower_where_acks_come_in_bunches() {
    let rate = |bunch: u64| {
        let mut bench = Bench::new();
        for round in 0..100 {
            let (begin, first) = (round * 200, round * bunch);
            for packet in 0..bunch {
                bench.send(begin + packet * 4);
            }
            bench.ack(first..=first + bunch - 1, begin + bunch * 4 + 36);
        }
        bench.recovery.path(PATH).unwrap().pacing_rate()
    };
    let per_round_trip = (1 << 30) * 25;
    assert_eq!(rate(1), per_round_trip * 5 / 4);
    // On average a packet waits for 6 ms more than the last one of four.
    let four = per_round_trip * 5 / 4 * 40 / 46;
    assert!(rate(4).abs_diff(four) < four / 1_000, "{}", rate(4));
    assert_eq!(rate(20), per_round_trip, "no slower than this");
}

/// With an RTT of 30 µs and timers of 100 µs the window is the limit, not the pacer.
#[test]
fn pacer_does_not_limit_a_path_with_tiny_rtt() {
    let micros = |n: u64| crate::time::Instant::from_nanos(n * 1000);
    let (mut recovery, _) = with_window(50 * BYTES);
    let mut out = Outcome::new();
    let mut now = 0;
    let mut rounds_held = 0;
    for round in 0..200 {
        let first = recovery.next_number(Space::Data);
        while let Gate::Open { bytes } = recovery.gate(PATH, micros(now)) {
            assert!(bytes >= BYTES);
            let info = crate::SentInfo {
                space: Space::Data,
                path: PATH,
                number: recovery.next_number(Space::Data),
                now: micros(now),
                size: 1200,
                ack_eliciting: true,
                in_flight: true,
                mtu_probe: false,
                ect: false,
            };
            recovery.on_sent(info, ());
        }
        let held = recovery.path(PATH).unwrap().in_flight() < 50 * BYTES;
        rounds_held += u64::from(held && round > 20);
        let last = recovery.next_number(Space::Data) - 1;
        if last >= first {
            out.clear();
            recovery
                .on_ack(
                    Space::Data,
                    core::iter::once(first..=last),
                    Duration::ZERO,
                    micros(now + 30),
                    &mut out,
                )
                .unwrap();
        }
        now += 100;
    }
    assert_eq!(rounds_held, 0, "rounds in which the window was not filled");
}

#[test]
fn packets_are_tracked_after_memory_is_released() {
    let mut bench = Bench::sampled(100);
    bench.send_many(500, 1000);
    bench.ack(1..=500, 1100);
    bench.recovery.release_memory();
    bench.send(1200);
    bench.ack(501..=501, 1300);
    assert_eq!(bench.acked(), [501]);
}

/// Returns the bytes of the train that a fast path may send after one round trip. Its first
/// packets were sent under the window `first`, the later ones under `then`.
fn train_after(first: u64, then: u64, acked: core::ops::RangeInclusive<u64>) -> u64 {
    let (mut recovery, _) = with_window(first);
    send(&mut recovery, 0);
    send(&mut recovery, 0);
    recovery.paths[0].controller = Box::new(Fixed {
        rate: Some(1_000_000_000),
        ..Fixed::new(then)
    });
    send(&mut recovery, 0);
    send(&mut recovery, 0);
    let mut out = Outcome::new();
    let ranges = core::iter::once(acked);
    recovery
        .on_ack(Space::Data, ranges, Duration::ZERO, at(100), &mut out)
        .unwrap();
    match recovery.gate(PATH, at(1_000)) {
        Gate::Open { bytes } => bytes,
        closed => panic!("{closed:?}"),
    }
}

/// RFC 9002 §7.7: bursts beyond the initial window are allowed only once a packet is
/// acknowledged that was sent under a larger window.
#[test]
fn bursts_beyond_the_initial_window_wait_for_an_ack_of_a_larger_window() {
    let initial = crate::congestion::initial_window(BYTES);
    let more = 1 << 20;
    assert!(train_after(initial, more, 0..=1) <= initial, "sent before");
    assert!(
        train_after(initial, more, 2..=2) > initial,
        "the first since"
    );
    assert!(train_after(more, more, 0..=0) > initial);
    assert!(train_after(initial, initial, 0..=3) <= initial);
}

#[test]
fn path_reports_delivered_and_lost_bytes() {
    let mut bench = Bench::sampled(100);
    bench.send_many(5, 1000);
    bench.ack(4..=5, 1100);
    assert_eq!(bench.lost(), [1, 2]);
    let path = bench.recovery.path(PATH).unwrap();
    assert_eq!((path.delivered(), path.lost()), (3 * BYTES, 2 * BYTES));
    assert_eq!(path.packets_in_flight(), 1);
    assert_eq!(path.next_index(), 6);
    assert_eq!(path.mds(), BYTES);
    assert_eq!(path.window(), 1 << 30);
}

/// Two datagrams that leave together are marked by their own burst where a queue marks before the
/// second has waited for the first: the controller, a model too, would stay at its minimum.
#[test]
fn datagrams_leave_one_by_one_after_an_early_mark_with_every_controller() {
    for algorithm in Algorithm::ALL {
        let mut bench = Bench::new();
        let path = NewPath {
            mds: BYTES,
            slow_start: SlowStart::HyStart,
            seed: 1,
        };
        let controller = CongestionControl::from(*algorithm).build(&path);
        let mut recovery = Recovery::new(Config::default(), at(0));
        recovery.add_path(PATH, controller, BYTES, at(0));
        bench.recovery = recovery;
        for (sent, acked) in [(0, 40), (41, 82)] {
            let number = bench.send(sent);
            bench.ack(number..=number, acked);
        }
        let train = |bench: &mut Bench| match bench.recovery.gate(PATH, at(200)) {
            Gate::Open { bytes } => bytes,
            other => panic!("{algorithm}: {other:?}"),
        };
        assert!(train(&mut bench) >= 2 * BYTES, "{algorithm}: no mark yet");
        bench.recovery.on_ecn_ce(PATH, 1, 1, at(82));
        let bytes = train(&mut bench);
        assert!((BYTES..2 * BYTES).contains(&bytes), "{algorithm}: {bytes}");
    }
}

/// The round trip of the mark says nothing of the queue here: it is twice the minimum.
#[test]
fn datagrams_leave_one_by_one_after_a_mark_at_a_small_window() {
    for (datagrams, alone) in [(4, true), (5, false)] {
        let mut bench = Bench::new();
        let mut recovery = Recovery::new(Config::default(), at(0));
        let controller = Box::new(Fixed::new(datagrams * BYTES));
        let least = controller.min_window();
        assert_eq!(least, 2 * BYTES);
        recovery.add_path(PATH, controller, BYTES, at(0));
        bench.recovery = recovery;
        for (sent, acked) in [(0, 40), (41, 121)] {
            let number = bench.send(sent);
            bench.ack(number..=number, acked);
        }
        bench.recovery.on_ecn_ce(PATH, 1, 1, at(121));
        let Gate::Open { bytes } = bench.recovery.gate(PATH, at(400)) else {
            panic!("closed after a pause");
        };
        assert_eq!(bytes < 2 * BYTES, alone, "{datagrams}: {bytes}");
    }
}
