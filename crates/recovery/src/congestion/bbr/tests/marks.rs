//! CE marks: congestion without loss (§3.6).

use core::time::Duration;

use super::super::INFINITE;
use super::super::phase::Phase;
use super::bench::Bench;
use super::sim::{App, Link, MDS, Sim};
use crate::controller::{Congestion, CongestionCause, Controller, Spurious};

const SECONDS: Duration = Duration::from_secs(1);

#[test]
fn ce_marks_are_congestion() {
    let mut bench = Bench::cruising();
    bench
        .bbr
        .on_congestion(&bench.congestion(CongestionCause::EcnCe));
    bench.ack(100_000, MDS, 50_000);
    assert_eq!(bench.bbr.bw_shortterm, 1_000_000, "as a round with loss");
    assert!(bench.bbr.inflight_shortterm < INFINITE);
    let mut bench = Bench::probing();
    bench
        .bbr
        .on_congestion(&bench.congestion(CongestionCause::EcnCe));
    assert_eq!(bench.bbr.phase, Phase::Down, "and the end of a probe");
    assert_eq!(bench.bbr.inflight_longterm, 100_000);
}

#[test]
fn later_marks_of_the_same_flight_do_not_slow_the_drain() {
    let mut bench = Bench::probing();
    let first = bench.congestion(CongestionCause::EcnCe);
    bench.bbr.on_congestion(&first);
    assert!(!bench.bbr.loss_round.loss_seen, "DOWN begins anew");
    let same_flight = Congestion {
        largest_index: first.next_index - 1,
        next_index: first.next_index + 100,
        ..first
    };
    bench.bbr.on_congestion(&same_flight);
    assert!(!bench.bbr.loss_round.loss_seen);
    let next_flight = Congestion {
        largest_index: first.next_index,
        ..same_flight
    };
    bench.bbr.on_congestion(&next_flight);
    assert!(bench.bbr.loss_round.loss_seen, "the queue is still there");
}

#[test]
fn marks_end_startup() {
    let mut sim = Sim::new(Link::new(50, 40, 400), App::Bulk);
    sim.link.mark_every = 10;
    sim.until(SECONDS, |sim| sim.phase() != Phase::Startup);
    assert!(sim.bbr().full_pipe.count < 3, "not by a plateau");
}

#[test]
fn marks_void_the_undo() {
    let mut bench = Bench::probing();
    let event = bench.next_index + 100;
    bench.bbr.on_lost(&bench.lost_packet(60_000, 5 * MDS));
    bench
        .bbr
        .on_congestion(&bench.congestion(CongestionCause::EcnCe));
    let now = bench.now;
    bench.bbr.on_spurious(&Spurious { now, event });
    assert_eq!(bench.bbr.phase, Phase::Down);
}

#[test]
fn marked_flight_does_not_raise_inflight_longterm() {
    for (marked, bound) in [(false, 300_000), (true, 200_000)] {
        let mut bench = Bench::cruising();
        bench.bbr.inflight_longterm = 200_000;
        if marked {
            let event = bench.congestion(CongestionCause::EcnCe);
            bench.bbr.on_congestion(&event);
        }
        // Of the marked flight: the round is not over.
        let prior = bench.delivered - MDS;
        bench.ack_of(prior, 1_000_000, 2 * MDS, 300_000, false);
        assert_eq!(bench.bbr.inflight_longterm, bound, "marked: {marked}");
    }
}
