//! Spurious congestion events (RFC 9438 §4.9.2).

use super::*;

#[test]
fn spurious_event_restores_window_ssthresh_and_curve() {
    let mut cubic = in_avoidance(cubic());
    cubic.on_ack(&acked(110, 10, 40));
    // An undo keeps no older undo.
    cubic.undo.clear();
    let before = format!("{cubic:?}");
    let (window, flight) = (cubic.window(), cubic.largest_flight);
    cubic.on_congestion(&lost(111..112, 151));
    cubic.on_ack(&acked(115, 1, 38));
    assert_ne!(cubic.window(), window);
    cubic.on_spurious(&spurious(151));
    assert_eq!(cubic.window(), window);
    assert_eq!(cubic.largest_flight, flight);
    // Everything is restored, including the state of the adjustment, except the count of
    // events.
    cubic.metrics = in_avoidance(super::cubic()).metrics;
    assert_eq!(format!("{cubic:?}"), before);
}

#[test]
fn undone_curve_excludes_a_pause_before_the_undo() {
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
fn spurious_event_with_another_boundary_is_ignored() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    let window = reno.window();
    reno.on_spurious(&spurious(99));
    assert_eq!(reno.window(), window);
    send(&mut reno, 151..160, 30);
    reno.on_congestion(&lost(151..152, 160));
    reno.on_spurious(&spurious(159));
    assert_eq!(reno.metrics().spurious_events, 0);
    reno.on_spurious(&spurious(160));
    assert_eq!(reno.metrics().spurious_events, 1);
    assert_eq!(reno.window(), half(50 * MDS));
}

/// Three events, each in the recovery of the one before: 50 datagrams and three halvings.
fn three_events() -> Classic<NewReno> {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    send(&mut reno, 151..160, 30);
    reno.on_congestion(&lost(151..152, 160));
    send(&mut reno, 160..170, 20);
    reno.on_congestion(&lost(160..161, 170));
    assert_eq!(reno.metrics().ssthresh, Some(half(half(half(50 * MDS)))));
    reno
}

#[test]
fn later_reductions_are_repeated_from_the_window_before_an_undone_one() {
    let mut reno = three_events();
    reno.on_spurious(&spurious(151));
    assert_eq!(
        reno.metrics().ssthresh,
        Some(half(half(50 * MDS))),
        "two halvings"
    );
    assert_eq!(reno.state(), State::Recovery, "of the last event");
    reno.on_spurious(&spurious(160));
    assert_eq!(reno.metrics().ssthresh, Some(half(50 * MDS)), "one");
    // Out of recovery, the window itself rises.
    reno.on_ack(&acked(170, 1, 10));
    assert_eq!(reno.window(), half(50 * MDS));
}

#[test]
fn window_is_restored_whichever_event_is_proven_spurious_first() {
    let orders = [
        [151, 160, 170],
        [151, 170, 160],
        [160, 151, 170],
        [160, 170, 151],
        [170, 151, 160],
        [170, 160, 151],
    ];
    for order in orders {
        let mut reno = three_events();
        for event in order {
            reno.on_spurious(&spurious(event));
        }
        assert_eq!(reno.window(), 50 * MDS, "{order:?}");
        assert_eq!(reno.metrics().spurious_events, 3, "{order:?}");
        assert_eq!(reno.state(), State::CongestionAvoidance, "{order:?}");
    }
}

#[test]
fn earlier_event_is_not_undone_after_a_mark() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    send(&mut reno, 151..160, 30);
    reno.on_congestion(&marked(151, 160));
    let ssthresh = reno.metrics().ssthresh;
    reno.on_spurious(&spurious(151));
    assert_eq!(reno.metrics().ssthresh, ssthresh);
}

#[test]
fn eight_reductions_are_remembered_and_a_ninth_forgets_the_first() {
    for (events, undone) in [(8, true), (9, false)] {
        let mut reno = in_avoidance(newreno());
        for event in 1..=events {
            let first = 100 + event * 10;
            send(&mut reno, first..first + 10, 0);
            reno.on_congestion(&lost(first..first + 1, first + 10));
        }
        reno.on_spurious(&spurious(120));
        assert_eq!(reno.metrics().spurious_events == 1, undone, "{events}");
    }
}

#[test]
fn event_is_undone_once() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    reno.on_spurious(&spurious(151));
    let window = reno.window();
    reno.window = 30 * MDS;
    reno.on_spurious(&spurious(151));
    assert_eq!((window, reno.window()), (50 * MDS, 30 * MDS));
}

#[test]
fn loss_after_undo_reduces_the_window() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    reno.on_spurious(&spurious(151));
    reno.on_congestion(&lost(120..121, 155));
    assert_eq!(reno.state(), State::Recovery);
    assert_eq!(reno.metrics().ssthresh, Some(half(50 * MDS)));
}

#[test]
fn undo_is_skipped_if_the_window_has_reached_cwnd_prior() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..103, 151));
    reno.on_ack(&acked(151, 1, 20));
    reno.window = 50 * MDS;
    reno.on_spurious(&spurious(151));
    assert_eq!(reno.metrics().spurious_events, 0);
    assert_eq!(reno.metrics().ssthresh, Some(half(50 * MDS)));
}

#[test]
fn ecn_mark_in_the_same_event_prevents_undo() {
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
fn undo_of_the_first_loss_resumes_slow_start() {
    let mut cubic = cubic();
    send(&mut cubic, 0..10, 0);
    cubic.on_congestion(&lost(0..1, 10));
    cubic.on_spurious(&spurious(10));
    assert_eq!(cubic.state(), State::SlowStart);
    cubic.on_ack(&acked(9, 10, 0));
    assert_eq!(cubic.window(), 20 * MDS);
}
