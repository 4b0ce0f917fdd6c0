use core::time::Duration;

use proptest::prelude::*;

use super::super::testing::{MDS, at_ms};
use super::*;

/// A stage that began at `window` on a clock that runs from zero.
fn running(w_max: u64, window: u64) -> Cubic {
    let mut cubic = Cubic::default();
    cubic.state.w_max = w_max;
    cubic.state.cwnd_prior = w_max;
    cubic.on_limit(Limit::Congestion, at_ms(0));
    cubic.start_avoidance(window, MDS, at_ms(0));
    cubic
}

const LOSS: CongestionCause = CongestionCause::Loss;

fn growth(ms: u64, window: u64, acked: u64) -> Growth {
    Growth {
        now: at_ms(ms),
        window,
        acked,
        largest_flight: window,
        min_rtt: Duration::from_millis(100),
        mds: MDS,
    }
}

/// Milliseconds to microseconds.
fn us(ms: u64) -> u64 {
    ms * 1_000
}

#[test]
fn curve_starts_at_the_window_and_passes_w_max_at_k() {
    // 1000 segments, reduced to 700: K = ∛(300 / 0.4) = 9.0856 s.
    let cubic = running(1_000 * MDS, 700 * MDS);
    let epoch = cubic.state.epoch.unwrap();
    assert_eq!(epoch.k, 9_085_602);
    let start = w_cubic(1_000 * MDS, &epoch, 0);
    assert!(start.abs_diff(700 * MDS) <= 1, "{start}");
    assert_eq!(w_cubic(1_000 * MDS, &epoch, epoch.k), 1_000 * MDS);
    // Ten seconds after K: 0.4 · 10³ segments above.
    let later = w_cubic(1_000 * MDS, &epoch, epoch.k + us(10_000));
    assert_eq!(later, 1_400 * MDS);
}

#[test]
fn target_is_clamped_to_one_and_a_half_windows() {
    assert_eq!(target(90, 100), 100);
    assert_eq!(target(120, 100), 120);
    assert_eq!(target(400, 100), 150);
    // Far beyond K a whole window acknowledged yields half a window, no more.
    let window = 700 * MDS;
    let mut cubic = running(1_000 * MDS, window);
    assert_eq!(cubic.grow(&growth(60_000, window, window)), window * 3 / 2);
    assert_eq!(
        running(1_000 * MDS, window).grow(&growth(60_000, window, 3 * window)),
        window * 3 / 2,
        "nor do three"
    );
}

#[test]
fn window_grows_by_target_minus_window_over_window_per_segment() {
    let window = 700 * MDS;
    let at_once = running(1_000 * MDS, window).grow(&growth(1_000, window, window));
    let epoch = running(1_000 * MDS, window).state.epoch.unwrap();
    assert_eq!(at_once, w_cubic(1_000 * MDS, &epoch, us(1_100)));
    // The same bytes in ever smaller ACKs: the share shrinks as the window nears
    // the target, but the fractions of a byte must not get lost. Dropping them
    // would cost the 7000 ACKs about 3500 bytes.
    let in_pieces = |pieces: u64| {
        let (mut cubic, mut grown) = (running(1_000 * MDS, window), window);
        for _ in 0..pieces {
            grown = cubic.grow(&growth(1_000, grown, window / pieces));
        }
        grown
    };
    let (coarse, fine) = (in_pieces(700), in_pieces(7_000));
    assert!(window < fine && fine < at_once);
    assert!(coarse.abs_diff(fine) < 100, "{coarse} and {fine}");
}

#[test]
fn w_est_alpha_becomes_one_at_cwnd_prior() {
    let window = 10 * MDS;
    let rise = |w_est: u64, cwnd_prior: u64| {
        let mut epoch = running(cwnd_prior, window).state.epoch.unwrap();
        epoch.w_est = w_est;
        epoch.grow_w_est(&growth(0, window, window), cwnd_prior);
        epoch.w_est - w_est
    };
    assert_eq!(rise(13 * MDS - 1, 13 * MDS), MDS * 9 / 17);
    assert_eq!(rise(13 * MDS, 13 * MDS), MDS);
    // cwnd_prior decides, not a W_max that fast convergence has lowered.
    let mut cubic = running(100 * MDS, 20 * MDS);
    cubic.reduce(20 * MDS, MDS, LOSS);
    assert_eq!(cubic.state.w_max, 17 * MDS);
    assert_eq!(cubic.state.cwnd_prior, 20 * MDS);
}

#[test]
fn mark_leaves_more_of_the_window_than_a_loss() {
    let mut cubic = Cubic::default();
    assert_eq!(
        cubic.reduce(1_000_000, MDS, CongestionCause::EcnCe),
        850_000
    );
}

/// K is 3.9 s, shorter than the round trip of five seconds. Looking that far ahead would mean
/// a window beyond W_max at once, and the queue of the last loss again.
#[test]
fn queue_longer_than_k_does_not_skip_the_plateau() {
    let w_max = 80 * MDS;
    let start = w_max * 7 / 10;
    let (mut cubic, mut window) = (running(w_max, start), start);
    for ms in (0..3_500).step_by(50) {
        window = cubic.grow(&Growth {
            min_rtt: Duration::from_millis(40),
            ..growth(ms, window, MDS)
        });
        assert!(window <= w_max, "{window} of {w_max} at {ms} ms");
    }
}

#[test]
fn short_path_grows_like_reno() {
    // Window 20 at 10 ms: the curve adds nothing in a round, α a datagram's 9/17.
    let (mut cubic, mut window) = (running(28 * MDS, 20 * MDS), 20 * MDS);
    for round in 0..10 {
        window = cubic.grow(&Growth {
            min_rtt: Duration::from_millis(10),
            ..growth(10 * round, window, window)
        });
    }
    let expected = 20 * MDS + 10 * MDS * 9 / 17;
    assert!(window.abs_diff(expected) <= 1, "{window} for {expected}");
}

#[test]
fn fast_convergence_lowers_w_max_and_beta_applies_to_the_window() {
    let mut cubic = Cubic::default();
    assert_eq!(cubic.reduce(1_000_000, MDS, LOSS), 700_000);
    assert_eq!(cubic.state.w_max, 1_000_000);
    // Below the old W_max: release more.
    assert_eq!(
        cubic.reduce(900_000, MDS, LOSS),
        630_000,
        "0.7 of the window, not of W_max"
    );
    assert_eq!(cubic.state.w_max, 765_000, "0.85 of the window");
    assert_eq!(cubic.state.cwnd_prior, 900_000);
    // Above it: remember all.
    assert_eq!(cubic.reduce(800_000, MDS, LOSS), 560_000);
    assert_eq!(cubic.state.w_max, 800_000);
}

#[test]
fn flow_control_stops_the_curve_and_pacing_does_not() {
    let window = 700 * MDS;
    let after = |limit: Limit| {
        let mut cubic = running(1_000 * MDS, window);
        cubic.on_limit(limit, at_ms(1_000));
        cubic.on_limit(Limit::Congestion, at_ms(5_000));
        cubic.grow(&growth(6_000, window, window))
    };
    let steady = |ms| running(1_000 * MDS, window).grow(&growth(ms, window, window));
    assert_eq!(after(Limit::Pacing), steady(6_000));
    for stop in [
        Limit::ConnectionFlowControl,
        Limit::StreamFlowControl,
        Limit::Application,
        Limit::Scheduling,
    ] {
        assert_eq!(after(stop), steady(2_000), "{stop:?}");
    }
    assert!(steady(6_000) > steady(2_000) + MDS);
}

#[test]
fn epoch_after_persistent_congestion_starts_with_k_zero() {
    let mut cubic = running(1_000 * MDS, 700 * MDS);
    cubic.reduce(800 * MDS, MDS, LOSS);
    cubic.on_persistent_congestion();
    cubic.start_avoidance(560 * MDS, MDS, at_ms(900));
    let epoch = cubic.state.epoch.unwrap();
    assert_eq!((epoch.k, epoch.w_est), (0, 560 * MDS));
    assert_eq!(cubic.state.w_max, 560 * MDS);
    assert_eq!(cubic.state.cwnd_prior, 800 * MDS);
    assert_eq!(epoch.start, 900_000_000);
}

#[test]
fn growth_is_bounded_by_the_largest_flight() {
    let window = 700 * MDS;
    let grown = |largest_flight: u64| {
        running(1_000 * MDS, window).grow(&Growth {
            largest_flight,
            ..growth(60_000, window, window)
        })
    };
    assert_eq!(grown(window), window * 3 / 2);
    assert_eq!(
        grown(600 * MDS),
        900 * MDS,
        "what a window of 600 would grow to"
    );
    assert_eq!(grown(100 * MDS), window, "never shrinks");
}

/// Otherwise a sender that uses half of its window would accumulate growth and get it all
/// at once when it uses the whole window again.
#[test]
fn w_est_does_not_grow_beyond_the_largest_flight_bound() {
    let (mut cubic, window) = (running(28 * MDS, 20 * MDS), 20 * MDS);
    for _ in 0..100 {
        cubic.grow(&Growth {
            largest_flight: window / 2,
            ..growth(1, window, window)
        });
    }
    assert_eq!(cubic.state.epoch.unwrap().w_est, window);
}

#[test]
fn new_datagram_size_does_not_change_a_running_curve() {
    let window = 700 * MDS;
    let mut cubic = running(1_000 * MDS, window);
    let same = running(1_000 * MDS, window).grow(&growth(3_000, window, window));
    let larger = cubic.grow(&Growth {
        mds: 9_000,
        ..growth(3_000, window, window)
    });
    assert_eq!(larger, same);
}

proptest! {
    #[test]
    fn curve_is_monotonic_and_starts_at_the_window(
        w_max in 2_400_u64..200_000_000_000,
        part in 1_u64..1_000,
        mds in 1_200_u64..9_000,
        a in 0_u64..10_000_000_000,
        b in 0_u64..10_000_000_000,
    ) {
        let window = scale(w_max, part, 1_000);
        let epoch = Epoch { start: 0, k: k(w_max, window, mds), mds, w_est: 0, w_est_carry: Carry::default() };
        let start = w_cubic(w_max, &epoch, 0);
        // K is rounded to a microsecond.
        prop_assert!(start >= window && start - window <= mds, "{start} for {window}");
        prop_assert!(w_cubic(w_max, &epoch, a.min(b)) <= w_cubic(w_max, &epoch, a.max(b)));
    }
}

/// RFC 9438 §4.7: fast convergence lowers W_max only if the window is below the last W_max.
#[test]
fn fast_convergence_applies_only_below_the_last_w_max() {
    let mut cubic = Cubic::default();
    cubic.reduce(100 * MDS, MDS, LOSS);
    cubic.reduce(100 * MDS, MDS, LOSS);
    assert_eq!(cubic.state.w_max, 100 * MDS);
    cubic.reduce(99 * MDS, MDS, LOSS);
    assert_eq!(cubic.state.w_max, 99 * MDS * 17 / 20);
}
