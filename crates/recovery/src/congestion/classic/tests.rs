use core::time::Duration;

use super::super::testing::{MDS, acked, at_ms, lost, marked, persistent, sent, spurious};
use super::super::{cubic::Cubic, newreno::NewReno};
use super::*;

mod extremes;
mod idle;
mod network;

fn newreno() -> Classic<NewReno> {
    Classic::new(NewReno::default(), SlowStart::Standard, MDS)
}

fn cubic() -> Classic<Cubic> {
    let mut cubic = Classic::new(Cubic::default(), SlowStart::Standard, MDS);
    cubic.on_limit(Limit::Congestion, at_ms(0));
    cubic
}

/// Sends packets of the range on top of `in_flight` packets.
fn send<L: Law>(controller: &mut Classic<L>, range: core::ops::Range<SendIndex>, in_flight: u64) {
    for (ahead, index) in range.enumerate() {
        controller.on_sent(&sent(index, (in_flight + ahead as u64) * MDS));
    }
}

/// In avoidance at 50 packets, packets 0..=100 sent and 100 acknowledged. The
/// next index is 151.
fn in_avoidance<L: Law>(mut controller: Classic<L>) -> Classic<L> {
    controller.window = 100 * MDS;
    send(&mut controller, 0..100, 0);
    controller.on_congestion(&lost(0..1, 100));
    send(&mut controller, 100..151, 49);
    controller.on_ack(&acked(100, 1, 50));
    assert_eq!(controller.state(), State::CongestionAvoidance);
    controller
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
fn an_under_used_window_does_not_grow() {
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
        assert!(controller.window() > before, "used, it grows");
    }
}

#[test]
fn recovery_ends_only_with_a_packet_sent_after_entry() {
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
fn recovery_ends_at_ssthresh() {
    let mut reno = newreno();
    send(&mut reno, 0..10, 0);
    // Nine of ten lost: PRR starts from nothing.
    reno.on_congestion(&lost(0..9, 10));
    reno.on_ack(&acked(9, 1, 0));
    assert_eq!(reno.state(), State::Recovery);
    assert!(reno.window() < 5 * MDS, "no burst: {}", reno.window());
    send(&mut reno, 10..12, 0);
    reno.on_ack(&acked(11, 2, 0));
    assert_eq!(reno.window(), 5 * MDS);
    assert_eq!(reno.metrics().ssthresh, Some(5 * MDS));
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
    // One delivered of twenty allows half a packet.
    assert_eq!(reno.window(), 18 * MDS + MDS / 2);
    reno.on_ack(&acked(4, 1, 17));
    assert_eq!(reno.window(), 17 * MDS + MDS);
    send(&mut reno, 20..21, 17);
    reno.on_ack(&acked(5, 1, 17));
    assert_eq!(reno.window(), 17 * MDS + MDS / 2);
}

#[test]
fn a_timer_that_finds_more_losses_makes_no_room_for_a_burst() {
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
fn one_ack_cannot_cut_twice() {
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
    assert_eq!(reno.metrics().ssthresh, Some(25 * MDS));
    assert_eq!(reno.state(), State::Recovery);
}

#[test]
fn multiple_cuts_in_one_round_are_impossible() {
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
    assert_eq!(cubic.metrics().ssthresh, Some(window / 100 * 49));
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
    assert_eq!(reno.metrics().ssthresh, Some(25 * MDS));
    reno.on_congestion(&marked(151, 170));
    assert_eq!(reno.metrics().congestion_events, events + 2);
}

#[test]
fn persistent_congestion_collapses_the_window_exactly_once() {
    let mut cubic = in_avoidance(cubic());
    let window = cubic.window();
    cubic.on_congestion(&persistent(101..140, 151));
    assert_eq!(cubic.window(), 2 * MDS);
    assert_eq!(cubic.metrics().ssthresh, Some(window / 10 * 7));
    // Not in recovery: the next ACK grows, whatever was sent when.
    assert_eq!(cubic.state(), State::SlowStart);
    send(&mut cubic, 151..153, 0);
    cubic.on_ack(&acked(150, 2, 0));
    assert_eq!(cubic.window(), 4 * MDS);
    // The rest of the same disaster changes nothing any more.
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
fn persistent_congestion_within_recovery_keeps_its_ssthresh() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..102, 151));
    reno.on_congestion(&persistent(102..150, 151));
    assert_eq!(reno.window(), 2 * MDS);
    assert_eq!(
        reno.metrics().ssthresh,
        Some(25 * MDS),
        "cut once, not twice"
    );
    assert_eq!(reno.metrics().congestion_events, 2);
    assert_eq!(reno.state(), State::SlowStart);
    reno.on_spurious(&spurious(151));
    assert_eq!(reno.metrics().spurious_events, 0, "two responses, no undo");
}

#[test]
fn slow_start_after_a_collapse_stops_at_ssthresh() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&persistent(101..140, 151));
    reno.window = 24 * MDS;
    send(&mut reno, 151..175, 0);
    reno.on_ack(&acked(174, 24, 0));
    assert_eq!(reno.window(), 25 * MDS);
    assert_eq!(reno.state(), State::CongestionAvoidance);
}

#[test]
fn proof_restores_everything() {
    let mut cubic = in_avoidance(cubic());
    cubic.on_ack(&acked(110, 10, 40));
    // An undo keeps no older undo.
    cubic.undo = None;
    let before = format!("{cubic:?}");
    let (window, flight) = (cubic.window(), cubic.largest_flight);
    cubic.on_congestion(&lost(111..112, 151));
    cubic.on_ack(&acked(115, 1, 38));
    assert_ne!(cubic.window(), window);
    cubic.on_spurious(&spurious(151));
    assert_eq!(cubic.window(), window);
    assert_eq!(cubic.largest_flight, flight);
    // All of it, the law's memory included, but for the count of events.
    cubic.metrics = in_avoidance(self::cubic()).metrics;
    assert_eq!(format!("{cubic:?}"), before);
}

#[test]
fn an_undone_curve_goes_on_without_the_pause_between() {
    let grown = |undo: bool, pause_ms: u64| {
        let mut cubic = in_avoidance(cubic());
        cubic.on_ack(&acked(110, 10, 40));
        if undo {
            cubic.on_congestion(&lost(111..112, 151));
        }
        cubic.on_limit(Limit::Application, at_ms(500));
        cubic.on_limit(Limit::Congestion, at_ms(500 + pause_ms));
        if undo {
            cubic.on_spurious(&spurious(151));
        }
        cubic.on_ack(&Ack {
            now: at_ms(3_000 + pause_ms),
            ..acked(140, 30, 10)
        });
        cubic.window()
    };
    assert_eq!(grown(true, 0), grown(false, 0));
    assert_eq!(grown(true, 60_000), grown(false, 0));
}

#[test]
fn the_proof_of_another_event_undoes_nothing() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    let window = reno.window();
    reno.on_spurious(&spurious(100));
    assert_eq!(reno.window(), window);
    // The newer event's state is kept, the older one's is gone.
    send(&mut reno, 151..160, 30);
    reno.on_congestion(&lost(151..152, 160));
    reno.on_spurious(&spurious(151));
    assert_eq!(reno.metrics().spurious_events, 0);
    reno.on_spurious(&spurious(160));
    assert_eq!(reno.metrics().spurious_events, 1);
    assert_eq!(reno.window(), 25 * MDS);
}

#[test]
fn an_event_is_undone_once() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    reno.on_spurious(&spurious(151));
    let window = reno.window();
    reno.window = 30 * MDS;
    reno.on_spurious(&spurious(151));
    assert_eq!((window, reno.window()), (50 * MDS, 30 * MDS));
}

#[test]
fn after_an_undo_a_real_loss_counts_again() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    reno.on_spurious(&spurious(151));
    reno.on_congestion(&lost(120..121, 155));
    assert_eq!(reno.state(), State::Recovery);
    assert_eq!(reno.metrics().ssthresh, Some(25 * MDS));
}

#[test]
fn a_window_grown_past_cwnd_prior_is_not_undone() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    reno.on_ack(&acked(151, 1, 20));
    reno.window = 50 * MDS;
    reno.on_spurious(&spurious(151));
    assert_eq!(reno.metrics().spurious_events, 0);
    assert_eq!(reno.metrics().ssthresh, Some(25 * MDS));
}

#[test]
fn a_mark_in_the_same_event_voids_the_undo() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    reno.on_congestion(&marked(105, 151));
    reno.on_spurious(&spurious(151));
    assert_eq!(reno.metrics().spurious_events, 0);
    // Nor is an event undone that a mark began.
    let mut marked_first = in_avoidance(newreno());
    marked_first.on_congestion(&marked(105, 151));
    marked_first.on_congestion(&lost(106..107, 151));
    marked_first.on_spurious(&spurious(151));
    assert_eq!(marked_first.metrics().spurious_events, 0);
}

#[test]
fn an_undone_first_loss_resumes_slow_start() {
    let mut cubic = cubic();
    send(&mut cubic, 0..10, 0);
    cubic.on_congestion(&lost(0..1, 10));
    cubic.on_spurious(&spurious(10));
    assert_eq!(cubic.state(), State::SlowStart);
    cubic.on_ack(&acked(9, 10, 0));
    assert_eq!(cubic.window(), 20 * MDS);
}

#[test]
fn hystart_leaves_to_avoidance_with_w_max_at_the_window() {
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
    let law = format!("{:?}", cubic.law);
    for part in ["w_max: 1200000", "cwnd_prior: 1200000", "k: 0,"] {
        assert!(law.contains(part), "{part} in {law}");
    }
}

#[test]
fn conservative_slow_start_grows_by_a_quarter() {
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
fn rate_limited_increase_follows_the_example_of_its_draft() {
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
fn a_reduction_forgets_the_largest_flight() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..102, 151));
    send(&mut reno, 151..156, 0);
    reno.on_ack(&acked(151, 1, 4));
    assert_eq!(reno.window(), 25 * MDS);
    // Five packets in flight since: they justify nothing above 25.
    reno.on_ack(&acked(155, 4, 0));
    assert_eq!(reno.window(), 25 * MDS);
}

#[test]
fn the_minimum_follows_the_datagram_size() {
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
fn before_feedback_the_initial_window_follows_the_datagram_size() {
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
fn the_window_never_falls_below_two_datagrams() {
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
fn after_idle_in_recovery_the_settled_window_is_open() {
    let mut reno = newreno();
    send(&mut reno, 0..10, 0);
    reno.on_congestion(&lost(0..9, 10));
    reno.on_ack(&acked(9, 1, 0));
    assert!(reno.window() < 5 * MDS);
    reno.restart_from_idle(at_ms(900));
    assert_eq!(reno.window(), 5 * MDS);
    assert_eq!(reno.state(), State::Recovery, "which an ACK ends");
    send(&mut reno, 10..15, 0);
    reno.on_ack(&acked(14, 5, 0));
    assert_eq!(reno.state(), State::CongestionAvoidance);
}
