//! The bounds that probes change: what raises them, what does not, where a probe stops
//! (§5.3.3.6, §5.3.3.9), and how losses are counted (§5.5.10).

use super::super::facts::Facts;
use super::super::rounds::Rounds;
use super::driver::{Driver, facts};
use super::sim::MDS;
use crate::controller::{Congestion, CongestionCause, Controller};

#[test]
fn inflight_with_high_loss_does_not_raise_inflight_longterm() {
    let raised = |lost| {
        let mut driver = Driver::probing();
        let facts = facts(&driver, 300_000, lost);
        assert!(!driver.bbr.adapt_long_term_model(&facts));
        driver.bbr.inflight_longterm
    };
    // 2 % of 300,000 are tolerated.
    assert_eq!(raised(6_000), 300_000);
    assert_eq!(raised(6_001), 200_000);
}

/// ProbeInflightLongtermUpward(): the bound is raised only if it limits the window and the
/// window is in full use.
#[test]
fn only_a_cwnd_limited_flow_raises_inflight_longterm() {
    let raised = |full: bool, cwnd: u64| {
        let mut driver = Driver::probing();
        driver.bbr.rounds = Rounds::default();
        driver.bbr.probe.acked_per_increase = 10 * MDS;
        driver.bbr.cwnd = cwnd;
        if full {
            driver.sent(cwnd);
        }
        assert_eq!(driver.bbr.rounds.is_cwnd_limited(), full);
        let facts = facts(&driver, 100_000, 0);
        assert!(!driver.bbr.adapt_long_term_model(&facts));
        driver.bbr.inflight_longterm
    };
    assert_eq!(raised(true, 200_000), 200_000 + 10 * MDS);
    assert_eq!(raised(true, 200_001), 200_000 + 10 * MDS);
    assert_eq!(raised(true, 199_999), 200_000, "the bound does not hold it");
    assert_eq!(raised(false, 200_000), 200_000, "the window has room");
}

/// While inflight_longterm limits the bandwidth, no round can bring a quarter more.
#[test]
fn round_counts_towards_a_plateau_by_what_the_bound_lets_it_bring() {
    let counted = |bounded: bool, rate: u64| {
        let mut driver = Driver::probing();
        driver.bbr.rounds = Rounds::default();
        driver.bbr.rounds.started = true;
        driver.bbr.cwnd = 200_000;
        if bounded {
            driver.sent(200_000);
        }
        driver.bbr.full_pipe.reset(1_000_000);
        let facts = Facts {
            delivery_rate: rate,
            ..facts(&driver, 100_000, 0)
        };
        driver.bbr.check_full_bw_reached(&facts);
        driver.bbr.full_pipe.count
    };
    assert_eq!(counted(true, 1_169_999), 1);
    assert_eq!(counted(true, 1_170_000), 0);
    assert_eq!(counted(false, 1_170_000), 1);
    assert_eq!(counted(false, 1_250_000), 0);
}

#[test]
fn bounded_probe_compares_with_its_best_rate() {
    let mut driver = Driver::probing();
    driver.bbr.cwnd = 200_000;
    driver.sent(200_000);
    driver.bbr.full_pipe.reset(0);
    driver.bbr.full_pipe.count = 2;
    for (rate, best) in [
        (1_000_000, 1_000_000),
        (900_000, 1_000_000),
        (1_010_000, 1_010_000),
    ] {
        let facts = Facts {
            delivery_rate: rate,
            ..facts(&driver, 100_000, 0)
        };
        assert!(!driver.bbr.is_time_to_go_down(&facts));
        assert_eq!(driver.bbr.full_pipe.baseline, best);
        assert_eq!(driver.bbr.full_pipe.count, 0);
    }
}

/// Startup ends by loss after a full round of recovery, also if that ended before the round did.
#[test]
fn recovery_that_ended_within_the_round_ends_startup() {
    let is_over = |recovered: bool, at_its_end: bool, ranges: u64| {
        let mut driver = Driver::new();
        for _ in 0..ranges {
            driver.next_index += 2;
            driver.bbr.on_lost(&driver.lost_packet(1_000_000, MDS));
        }
        if recovered {
            driver.bbr.loss_round.started = at_its_end;
            driver.bbr.loss_round.note_recovered();
        }
        driver.bbr.loss_round.started = true;
        let facts = facts(&driver, 300_000, 6_001);
        driver.bbr.check_startup_done(&facts);
        driver.bbr.full_pipe.reached
    };
    assert!(is_over(true, false, 6));
    assert!(!is_over(true, false, 5));
    assert!(!is_over(false, false, 6));
    assert!(!is_over(true, true, 6), "it was the round's before");
}

/// IsTimeToGoDown(): the probe after one that was too high stops where another datagram
/// would exceed the bound.
#[test]
fn precautionary_probe_stops_one_datagram_below_inflight_longterm() {
    let ends = |in_flight| {
        let mut driver = Driver::probing();
        driver.bbr.probe.too_high = true;
        let facts = facts(&driver, in_flight, 0);
        let ends = driver.bbr.is_time_to_go_down(&facts);
        assert_eq!(driver.bbr.probe.precautionary, ends);
        ends
    };
    assert!(!ends(100_000));
    assert!(!ends(200_000 - MDS), "just room for it");
    assert!(ends(200_000 - MDS + 1));
    assert!(ends(300_000));
}

/// StartProbeBW_DOWN() clears the congestion signals of the probe that ended.
#[test]
fn entering_down_clears_congestion_signals() {
    let mut driver = Driver::probing();
    driver.lose();
    assert!(driver.bbr.loss_round.loss_seen);
    assert!(driver.bbr.loss_round.bw_latest > 0);
    assert!(driver.bbr.loss_round.inflight_latest > 0);
    driver.bbr.start_probe_bw_down(driver.now);
    let round = &driver.bbr.loss_round;
    assert!(!round.loss_seen);
    assert_eq!((round.bw_latest, round.inflight_latest), (0, 0));
}

/// §5.3.1.3 counts discontiguous sequence ranges.
#[test]
fn losses_of_adjacent_packets_count_as_one_range() {
    let mut driver = Driver::cruising();
    driver.bbr.loss_round.take_tally();
    let first = driver.next_index;
    for step in [0, 1, 2, 3, 10, 12, 13] {
        driver.next_index = first + step;
        let lost = driver.lost_packet(1_000_000, MDS);
        driver.bbr.on_lost(&lost);
    }
    assert_eq!(driver.bbr.loss_round.take_tally().ranges, 3);
    assert_eq!(driver.bbr.loss_round.take_tally().ranges, 0, "taken");
}

/// InitLowerBounds() (§5.5.10.3) begins from C.cwnd; only persistent congestion, which QUIC has in
/// the place of a timeout, is no measure of the path.
#[test]
fn short_term_bound_begins_from_the_window_unless_persistent_congestion_collapsed_it() {
    for (collapsed, from) in [(false, 120_000), (true, 200_000)] {
        let mut driver = Driver::cruising();
        let bbr = &mut driver.bbr;
        (bbr.cwnd, bbr.prior_cwnd) = (120_000, 200_000);
        (bbr.recovering, bbr.collapsed) = (true, collapsed);
        bbr.loss_round.inflight_latest = 0;
        bbr.adapt_lower_bounds();
        assert_eq!(bbr.inflight_shortterm, from / 10 * 7, "{collapsed}");
    }
}

#[test]
fn collapse_lasts_until_its_recovery_ends() {
    let mut driver = Driver::cruising();
    let persistent = Congestion {
        persistent: true,
        ..driver.congestion(CongestionCause::Loss)
    };
    driver.bbr.on_congestion(&persistent);
    assert!(driver.bbr.collapsed);
    // A second event in the same recovery.
    driver.next_index += 100;
    driver.lose();
    assert!(driver.bbr.recovering && driver.bbr.collapsed);
    driver.next_index += 200;
    driver.ack(1_000_000, 2 * MDS, 50_000);
    assert!(!driver.bbr.recovering);
    driver.lose();
    assert!(driver.bbr.recovering && !driver.bbr.collapsed);
}
