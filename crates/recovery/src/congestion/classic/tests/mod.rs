use core::time::Duration;

use super::super::testing::{MDS, acked, at_ms, lost, marked, persistent, sent, spurious};
use super::super::{cubic::Cubic, newreno::NewReno};
use super::*;

mod extremes;
mod idle;
mod internals;
mod network;
mod resume;
mod undo;
mod validation;

fn newreno() -> Classic<NewReno> {
    Classic::new(NewReno::default(), SlowStart::Standard, MDS)
}

fn cubic() -> Classic<Cubic> {
    let mut cubic = Classic::new(Cubic::default(), SlowStart::Standard, MDS);
    cubic.on_limit(Limit::Congestion, at_ms(0));
    cubic
}

/// Sends packets of the range on top of `in_flight` packets.
fn send<A: WindowAdjustment>(
    controller: &mut Classic<A>,
    range: core::ops::Range<SendIndex>,
    in_flight: u64,
) {
    for (ahead, index) in range.enumerate() {
        controller.on_sent(&sent(index, (in_flight + ahead as u64) * MDS));
    }
}

/// What NewReno leaves of a window after a loss.
const fn half(window: u64) -> u64 {
    window / 2 + MDS / 2
}

/// In avoidance at 50 packets (NewReno), packets 0..=100 sent and 100 acknowledged. The
/// next index is 151.
fn in_avoidance<A: WindowAdjustment>(mut controller: Classic<A>) -> Classic<A> {
    controller.window = 99 * MDS;
    send(&mut controller, 0..99, 0);
    controller.on_congestion(&lost(0..1, 100));
    send(&mut controller, 99..151, 48);
    controller.on_ack(&acked(100, 1, 50));
    assert_eq!(controller.state(), State::CongestionAvoidance);
    controller
}

#[test]
fn duplicate_goes_on_with_the_same_window() {
    let reno = in_avoidance(newreno());
    let copy = reno.duplicate().expect("one of its own kind");
    assert_eq!(copy.window(), reno.window());
    assert_eq!(copy.name(), "newreno");
}

#[test]
fn fewer_acks_are_needed_once_the_window_grows_slowly() {
    let mut reno = newreno();
    assert_eq!(reno.acks_needed(), AcksNeeded::SMOOTH);
    send(&mut reno, 0..10, 0);
    reno.on_congestion(&lost(0..1, 10));
    assert_eq!(reno.state(), State::Recovery);
    assert_eq!(reno.acks_needed(), AcksNeeded::STEADY);
    let reno = in_avoidance(newreno());
    assert_eq!(reno.acks_needed(), AcksNeeded::STEADY);
}

#[test]
fn slow_start_doubles_the_window_each_round() {
    let mut reno = newreno();
    assert_eq!(reno.window(), 10 * MDS);
    send(&mut reno, 0..10, 0);
    reno.on_ack(&acked(9, 10, 0));
    assert_eq!(reno.window(), 20 * MDS);
    send(&mut reno, 10..30, 0);
    reno.on_ack(&acked(29, 20, 0));
    assert_eq!(reno.window(), 40 * MDS);
    assert_eq!(reno.state(), State::SlowStart);
    assert_eq!(reno.metrics().ssthresh, None);
}

#[test]
fn under_used_window_does_not_grow() {
    for mut controller in [newreno(), in_avoidance(newreno())] {
        let before = controller.window();
        let idle = Ack {
            window_used_bytes: 0,
            ..acked(200, 10, 0)
        };
        send(&mut controller, 151..250, 0);
        controller.on_ack(&idle);
        assert_eq!(controller.window(), before);
        controller.on_ack(&acked(210, 10, 0));
        assert!(controller.window() > before, "a used window grows");
    }
}

#[test]
fn recovery_ends_when_a_packet_sent_after_entry_is_acknowledged() {
    let mut reno = newreno();
    send(&mut reno, 0..10, 0);
    reno.on_congestion(&lost(0..1, 10));
    assert_eq!(reno.state(), State::Recovery);
    // The ACK that proved the loss, then the rest of the old flight.
    for (largest, in_flight) in [(3, 6), (8, 2), (9, 1)] {
        reno.on_ack(&acked(largest, 1, in_flight));
        assert_eq!(reno.state(), State::Recovery, "after {largest}");
    }
    send(&mut reno, 10..12, 1);
    reno.on_ack(&acked(10, 1, 1));
    assert_eq!(reno.state(), State::CongestionAvoidance);
}

#[test]
fn window_after_recovery_is_ssthresh() {
    let mut reno = newreno();
    send(&mut reno, 0..10, 0);
    // Nine of ten lost: PRR starts from nothing.
    reno.on_congestion(&lost(0..9, 10));
    reno.on_ack(&acked(9, 1, 0));
    assert_eq!(reno.state(), State::Recovery);
    assert!(reno.window() < 5 * MDS, "no burst: {}", reno.window());
    send(&mut reno, 10..12, 0);
    reno.on_ack(&acked(11, 2, 0));
    assert_eq!(reno.window(), half(10 * MDS));
    assert_eq!(reno.metrics().ssthresh, Some(half(10 * MDS)));
}

#[test]
fn prr_sends_in_proportion_while_the_flight_is_above_ssthresh() {
    let mut reno = newreno();
    reno.window = 20 * MDS;
    send(&mut reno, 0..20, 0);
    let loss = Congestion {
        acked_bytes: MDS,
        in_flight_after: 18 * MDS,
        ..lost(0..1, 20)
    };
    reno.on_congestion(&loss);
    reno.on_ack(&Ack {
        lost_bytes: MDS,
        ..acked(3, 1, 18)
    });
    // One delivered of twenty allows a twentieth of ssthresh, half a packet and a little.
    let share = half(20 * MDS) / 20;
    assert_eq!(reno.window(), 18 * MDS + share);
    reno.on_ack(&acked(4, 1, 17));
    assert_eq!(reno.window(), 17 * MDS + 2 * share);
    send(&mut reno, 20..21, 17);
    reno.on_ack(&acked(5, 1, 17));
    assert_eq!(reno.window(), 16 * MDS + 3 * share);
}

#[test]
fn prr_adds_a_packet_per_ack_without_further_loss() {
    let after = |lost_bytes: u64| {
        let mut reno = newreno();
        reno.window = 20 * MDS;
        send(&mut reno, 0..20, 0);
        reno.on_congestion(&lost(0..15, 20));
        reno.on_ack(&Ack {
            lost_bytes,
            ..acked(18, 1, 4)
        });
        reno.window()
    };
    assert_eq!(after(MDS), 5 * MDS);
    assert_eq!(after(0), 6 * MDS);
}

#[test]
fn losses_found_by_the_timer_do_not_allow_a_burst() {
    let mut reno = newreno();
    reno.window = 40 * MDS;
    send(&mut reno, 0..40, 0);
    reno.on_congestion(&lost(0..1, 40));
    let room = reno.window() - 39 * MDS;
    reno.on_congestion(&lost(1..31, 40));
    assert_eq!(reno.window() - 9 * MDS, room);
    // However many: the minimum stays.
    reno.on_congestion(&lost(31..40, 40));
    assert_eq!(reno.window(), reno.min_window());
}

#[test]
fn loss_and_mark_in_one_ack_reduce_once() {
    let mut reno = in_avoidance(newreno());
    let loss = Congestion {
        acked_bytes: MDS,
        ..lost(101..110, 151)
    };
    reno.on_congestion(&loss);
    reno.on_congestion(&marked(112, 151));
    reno.on_ack(&Ack {
        lost_bytes: 9 * MDS,
        ..acked(112, 1, 38)
    });
    assert_eq!(
        reno.metrics().congestion_events,
        2,
        "this one and the first"
    );
    assert_eq!(reno.metrics().ssthresh, Some(half(50 * MDS)));
    assert_eq!(reno.state(), State::Recovery);
}

#[test]
fn losses_of_one_flight_reduce_once() {
    let mut cubic = in_avoidance(cubic());
    let (events, window) = (cubic.metrics().congestion_events, cubic.window());
    for index in 101..151 {
        cubic.on_congestion(&lost(index..index + 1, 151));
    }
    assert_eq!(cubic.metrics().congestion_events, events + 1);
    assert_eq!(cubic.metrics().ssthresh, Some(window / 10 * 7));
    // A loss among what was sent since is a new event.
    cubic.on_congestion(&lost(151..152, 160));
    assert_eq!(cubic.metrics().congestion_events, events + 2);
    assert_eq!(cubic.metrics().ssthresh, Some(window * 49 / 100));
}

#[test]
fn marks_reduce_once_per_round() {
    let mut reno = in_avoidance(newreno());
    let events = reno.metrics().congestion_events;
    for largest in 110..151 {
        reno.on_congestion(&marked(largest, 151));
        reno.on_ack(&acked(largest, 1, 150 - largest));
    }
    assert_eq!(reno.metrics().congestion_events, events + 1);
    assert_eq!(reno.metrics().ssthresh, Some(40 * MDS));
    reno.on_congestion(&marked(151, 170));
    assert_eq!(reno.metrics().congestion_events, events + 2);
}

#[test]
fn persistent_congestion_collapses_the_window_once() {
    let mut cubic = in_avoidance(cubic());
    let window = cubic.window();
    cubic.on_congestion(&persistent(101..140, 151));
    assert_eq!(cubic.window(), 2 * MDS);
    assert_eq!(cubic.metrics().ssthresh, Some(window / 10 * 7));
    // Not in recovery: the next ACK grows the window, even one of a packet sent before.
    assert_eq!(cubic.state(), State::SlowStart);
    send(&mut cubic, 151..153, 0);
    cubic.on_ack(&acked(150, 2, 0));
    assert_eq!(cubic.window(), 4 * MDS);
    // Further losses of the same outage change nothing.
    cubic.on_congestion(&persistent(141..149, 153));
    cubic.on_congestion(&lost(149..150, 153));
    assert_eq!(cubic.window(), 4 * MDS);
    assert_eq!(cubic.metrics().ssthresh, Some(window / 10 * 7));
    assert_eq!(cubic.metrics().persistent_events, 1);
    // A new one does.
    cubic.on_congestion(&persistent(151..153, 160));
    assert_eq!(cubic.metrics().persistent_events, 2);
    assert_eq!(cubic.window(), 2 * MDS);
}

#[test]
fn persistent_congestion_within_recovery_keeps_ssthresh() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..102, 151));
    reno.on_congestion(&persistent(102..150, 151));
    assert_eq!(reno.window(), 2 * MDS);
    assert_eq!(
        reno.metrics().ssthresh,
        Some(half(50 * MDS)),
        "cut once, not twice"
    );
    assert_eq!(reno.metrics().congestion_events, 2);
    assert_eq!(reno.state(), State::SlowStart);
    reno.on_spurious(&spurious(151));
    assert_eq!(reno.metrics().spurious_events, 0, "two responses, no undo");
    // Packets sent in that recovery were lost in the same outage.
    let mut later = in_avoidance(newreno());
    later.on_congestion(&lost(101..102, 151));
    send(&mut later, 151..160, 30);
    later.on_congestion(&persistent(102..150, 160));
    later.on_congestion(&lost(151..155, 162));
    assert_eq!(later.metrics().congestion_events, 2);
    assert_eq!(later.state(), State::SlowStart);
}

#[test]
fn cubic_starts_at_the_plateau_after_persistent_congestion() {
    let mut cubic = in_avoidance(cubic());
    cubic.on_congestion(&persistent(101..140, 151));
    let ssthresh = cubic.metrics().ssthresh.unwrap();
    cubic.window = ssthresh - 1;
    send(&mut cubic, 151..200, 0);
    cubic.on_ack(&acked(199, 49, 0));
    assert_eq!(cubic.state(), State::CongestionAvoidance);
    let adjustment = format!("{:?}", cubic.adjustment);
    for part in [format!("w_max: {ssthresh},"), "k: 0,".to_owned()] {
        assert!(adjustment.contains(&part), "{part} in {adjustment}");
    }
}

#[test]
fn slow_start_after_persistent_congestion_stops_at_ssthresh() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&persistent(101..140, 151));
    reno.window = 24 * MDS;
    send(&mut reno, 151..175, 0);
    reno.on_ack(&acked(174, 24, 0));
    assert_eq!(reno.window(), half(50 * MDS));
    assert_eq!(reno.state(), State::CongestionAvoidance);
}

#[test]
fn hystart_exit_starts_avoidance_with_w_max_at_the_window() {
    let mut cubic = Classic::new(Cubic::default(), SlowStart::HyStart, MDS);
    cubic.window = 1_000 * MDS;
    let round = |cubic: &mut Classic<Cubic>, index: SendIndex, rtt: u64| {
        for _ in 0..8 {
            cubic.on_ack(&Ack {
                rtt_sample: Some(Duration::from_millis(rtt)),
                window_used_bytes: 0,
                ..acked(index, 1, 0)
            });
        }
    };
    round(&mut cubic, 10, 20);
    assert_eq!(cubic.state(), State::SlowStart);
    round(&mut cubic, 20, 40);
    assert_eq!(cubic.state(), State::ConservativeSlowStart);
    for index in 3..8 {
        round(&mut cubic, index * 10, 40);
    }
    assert_eq!(cubic.state(), State::CongestionAvoidance);
    assert_eq!(cubic.metrics().ssthresh, Some(1_000 * MDS));
    let adjustment = format!("{:?}", cubic.adjustment);
    for part in ["w_max: 1200000", "cwnd_prior: 1200000", "k: 0,"] {
        assert!(adjustment.contains(part), "{part} in {adjustment}");
    }
}

#[test]
fn search_exit_drains_the_window_to_what_the_path_holds() {
    let mut reno = Classic::new(NewReno::default(), SlowStart::Search, MDS);
    let mut index = 0;
    let mut deliver = |reno: &mut Classic<NewReno>, ms: u64, sent: u64, acked: u64| {
        send(reno, index..index + sent, 100);
        index += sent;
        reno.on_ack(&Ack {
            now: at_ms(ms),
            rtt_sample: Some(Duration::from_millis(100)),
            min_rtt: Duration::from_millis(100),
            ..super::super::testing::acked(index, acked, 100)
        });
    };
    deliver(&mut reno, 0, 100, 0);
    let mut bin = 0;
    while reno.metrics().ssthresh.is_none() {
        bin += 1;
        deliver(&mut reno, 35 * bin, 42, 21);
        assert!(bin < 20, "twice as much is sent as arrives");
    }
    // 21 packets in 35 ms are 60 in a round trip.
    let target = 60 * MDS;
    assert_eq!(reno.metrics().ssthresh, Some(target));
    assert_eq!(reno.settled_window(), target);
    let above = reno.window();
    assert!(above > 2 * target, "{above}");
    deliver(&mut reno, 35 * bin + 1, 0, 20);
    assert_eq!(
        reno.window(),
        above - 10 * MDS,
        "a byte for two that arrive"
    );
    while reno.window() > target {
        deliver(&mut reno, 35 * bin + 2, 0, 20);
    }
    assert_eq!(reno.window(), target);
    assert_eq!(reno.state(), State::CongestionAvoidance);
}

#[test]
fn loss_while_draining_reduces_from_what_the_path_holds() {
    let mut reno = Classic::new(NewReno::default(), SlowStart::Search, MDS);
    reno.window = 100 * MDS;
    reno.ssthresh = Some(60 * MDS);
    reno.draining = true;
    send(&mut reno, 0..100, 0);
    reno.on_congestion(&lost(0..1, 100));
    assert_eq!(reno.metrics().ssthresh, Some(half(60 * MDS)));
    assert!(!reno.draining);
}

#[test]
fn hystart_applies_only_to_the_first_slow_start() {
    let mut cubic = Classic::new(Cubic::default(), SlowStart::HyStart, MDS);
    cubic.on_congestion(&persistent(0..9, 10));
    for (index, rtt) in [(10, 20), (20, 90)] {
        for _ in 0..8 {
            cubic.on_ack(&Ack {
                rtt_sample: Some(Duration::from_millis(rtt)),
                window_used_bytes: 0,
                ..acked(index, 1, 0)
            });
        }
    }
    assert_eq!(cubic.window(), 2 * MDS);
    send(&mut cubic, 21..23, 0);
    cubic.on_ack(&acked(22, 2, 0));
    assert_eq!(cubic.window(), 4 * MDS, "doubled, not a quarter more");
}

#[test]
fn conservative_slow_start_grows_a_quarter_as_fast() {
    let mut cubic = Classic::new(Cubic::default(), SlowStart::HyStart, MDS);
    for (index, rtt) in [(10, 20), (20, 40)] {
        for _ in 0..8 {
            cubic.on_ack(&Ack {
                rtt_sample: Some(Duration::from_millis(rtt)),
                window_used_bytes: 0,
                ..acked(index, 1, 0)
            });
        }
    }
    send(&mut cubic, 21..31, 0);
    cubic.on_ack(&Ack {
        next_index: 21,
        ..acked(20, 8, 0)
    });
    assert_eq!(cubic.window(), 12 * MDS);
}

/// The appendix of draft-ietf-ccwg-ratelimited-increase, ACK by ACK.
#[test]
fn rate_limited_increase_matches_the_example_of_the_draft() {
    const SMSS: u64 = 1_000;
    let mut reno = Classic::new(NewReno::default(), SlowStart::Standard, SMSS);
    assert_eq!(reno.window(), 10_000);
    let mut index = 0;
    let mut window_after = |packets: u64| {
        for ahead in 0..packets {
            reno.on_sent(&Sent {
                bytes: SMSS,
                ..sent(index + ahead, ahead * SMSS)
            });
        }
        for _ in 0..packets {
            reno.on_ack(&Ack {
                bytes: SMSS,
                window_used_bytes: SMSS,
                ..acked(index, 1, 0)
            });
            index += 1;
        }
        reno.window()
    };
    assert_eq!(window_after(4), 14_000);
    assert_eq!(window_after(8), 20_000, "not 22000");
    assert_eq!(window_after(4), 20_000, "not 24000");
    assert_eq!(window_after(20), 40_000);
}

#[test]
fn reduction_resets_the_largest_flight() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..102, 151));
    send(&mut reno, 151..156, 0);
    reno.on_ack(&acked(151, 1, 4));
    assert_eq!(reno.window(), half(50 * MDS));
    // Five packets in flight since: they justify no growth above that.
    reno.on_ack(&acked(155, 4, 0));
    assert_eq!(reno.window(), half(50 * MDS));
}

#[test]
fn minimum_window_follows_the_datagram_size() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&persistent(101..140, 151));
    assert_eq!(reno.window(), 2 * MDS);
    reno.on_mds(1_400);
    assert_eq!((reno.min_window(), reno.window()), (2_800, 2_800));
    // A window above the minimum keeps its bytes, up and down.
    let mut large = in_avoidance(newreno());
    large.on_mds(9_000);
    assert_eq!(large.window(), 50 * MDS);
    large.on_mds(1_200);
    assert_eq!(large.window(), 50 * MDS);
}

#[test]
fn initial_window_follows_the_datagram_size_before_feedback() {
    let mut reno = newreno();
    reno.on_mds(1_472);
    assert_eq!(reno.window(), 14_720);
    send(&mut reno, 0..10, 0);
    reno.on_ack(&acked(0, 1, 9));
    let window = reno.window();
    reno.on_mds(1_200);
    assert_eq!(reno.window(), window);
}

#[test]
fn window_never_falls_below_two_datagrams() {
    let mut cubic = cubic();
    for event in 0..40 {
        let first = event * 10;
        cubic.on_congestion(&lost(first..first + 10, first + 10));
        assert_eq!(cubic.window().max(cubic.min_window()), cubic.window());
        cubic.on_ack(&acked(first + 10, 1, 0));
    }
    assert_eq!(cubic.window(), 2 * MDS);
    assert_eq!(cubic.metrics().ssthresh, Some(2 * MDS));
}

#[test]
fn restart_from_idle_in_recovery_opens_the_window_to_ssthresh() {
    let mut reno = newreno();
    send(&mut reno, 0..10, 0);
    reno.on_congestion(&lost(0..9, 10));
    reno.on_ack(&acked(9, 1, 0));
    assert!(reno.window() < 5 * MDS);
    reno.restart_from_idle(at_ms(900));
    assert_eq!(reno.window(), half(10 * MDS));
    assert_eq!(reno.state(), State::Recovery, "which an ACK ends");
    send(&mut reno, 10..15, 0);
    reno.on_ack(&acked(14, 5, 0));
    assert_eq!(reno.state(), State::CongestionAvoidance);
}
