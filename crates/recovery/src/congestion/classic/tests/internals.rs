//! The figures that controllers show to traces and detectors.

use super::*;

fn shown<A: WindowAdjustment>(controller: &Classic<A>, now_ms: u64) -> Vec<(&'static str, u64)> {
    let mut shown = Vec::new();
    controller.internals(at_ms(now_ms), &mut |name, value| shown.push((name, value)));
    shown
}

fn value(shown: &[(&str, u64)], name: &str) -> Option<u64> {
    let found = shown.iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| *value)
}

#[test]
fn cubic_internals_show_boundary_curve_and_stopped_time() {
    let mut cubic = in_avoidance(cubic());
    cubic.on_congestion(&lost(101..102, 151));
    cubic.on_ack(&acked(151, 1, 30));
    let (boundary, window) = (cubic.boundary(), cubic.settled_window());
    cubic.on_limit(Limit::Application, at_ms(1_000));
    cubic.on_limit(Limit::Congestion, at_ms(1_700));
    let shown = shown(&cubic, 2_000);
    assert_eq!(value(&shown, "boundary"), Some(151));
    assert_eq!(boundary, 151);
    assert_eq!(value(&shown, "epoch_shift"), Some(700_000_000));
    let flight = cubic.largest_flight.bytes();
    assert_eq!(value(&shown, "largest_flight"), Some(flight));
    // The window is reduced to 7/10. It was below the last W_max, so the next W_max is
    // 17/20 of it (RFC 9438 §4.7).
    let prior = value(&shown, "cwnd_prior").unwrap();
    assert_eq!(prior * 7 / 10, window);
    assert_eq!(value(&shown, "w_max"), Some(prior * 17 / 20));
    assert!(value(&shown, "k").unwrap() > 0);
    assert_eq!(value(&shown, "w_est"), Some(window));
}

#[test]
fn newreno_internals_show_the_boundary() {
    let mut reno = in_avoidance(newreno());
    reno.on_congestion(&lost(101..102, 151));
    assert_eq!(value(&shown(&reno, 0), "boundary"), Some(151));
}

/// RFC 9438 §4.9.2: the undo restores the window of slow start, which has no curve yet.
#[test]
fn undo_into_slow_start_starts_no_epoch() {
    let mut cubic = cubic();
    send(&mut cubic, 0..10, 0);
    cubic.on_congestion(&lost(0..1, 10));
    cubic.on_spurious(&spurious(10));
    assert_eq!(cubic.state(), State::SlowStart);
    assert_eq!(value(&shown(&cubic, 0), "k"), None);
}

/// The pacer derives the rate (RFC 9002 §7.7).
#[test]
fn classic_controllers_leave_the_pacing_rate_to_the_pacer() {
    assert_eq!(newreno().pacing_rate(), None);
    assert_eq!(cubic().pacing_rate(), None);
}
