//! CE marks, which are congestion without loss (§3.6).

use core::time::Duration;

use super::super::INFINITE;
use super::super::phase::Phase;
use super::driver::Driver;
use super::sim::{App, Link, MDS, Sim};
use crate::controller::{Congestion, CongestionCause, Controller, Spurious};

const SECONDS: Duration = Duration::from_secs(1);

#[test]
fn ce_marks_are_congestion() {
    let mut driver = Driver::cruising();
    driver
        .bbr
        .on_congestion(&driver.congestion(CongestionCause::EcnCe));
    driver.ack(100_000, MDS, 50_000);
    assert_eq!(driver.bbr.bw_shortterm, 1_000_000, "as a round with loss");
    assert!(driver.bbr.inflight_shortterm < INFINITE);
    let mut driver = Driver::probing();
    driver
        .bbr
        .on_congestion(&driver.congestion(CongestionCause::EcnCe));
    assert_eq!(driver.bbr.phase, Phase::Down, "and the end of a probe");
    assert_eq!(driver.bbr.inflight_longterm, 100_000);
}

#[test]
fn later_marks_of_the_same_flight_begin_no_new_event() {
    let mut driver = Driver::probing();
    let first = driver.congestion(CongestionCause::EcnCe);
    driver.bbr.on_congestion(&first);
    assert!(!driver.bbr.loss_round.loss_seen, "DOWN begins anew");
    let same_flight = Congestion {
        largest_index: first.next_index - 1,
        next_index: first.next_index + 100,
        ..first
    };
    driver.bbr.on_congestion(&same_flight);
    assert!(!driver.bbr.loss_round.loss_seen);
    let next_flight = Congestion {
        largest_index: first.next_index,
        ..same_flight
    };
    driver.bbr.on_congestion(&next_flight);
    assert!(driver.bbr.loss_round.loss_seen, "the queue is still there");
}

#[test]
fn marks_end_startup() {
    let mut sim = Sim::new(Link::new(50, 40, 400), App::Bulk);
    sim.link.mark_every = 10;
    sim.until(SECONDS, |sim| sim.phase() != Phase::Startup);
    assert!(sim.bbr().full_pipe.count < 3, "not by a plateau");
}

#[test]
fn ecn_marks_prevent_undo() {
    let mut driver = Driver::probing();
    let event = driver.next_index + 100;
    driver.bbr.on_lost(&driver.lost_packet(60_000, 5 * MDS));
    driver
        .bbr
        .on_congestion(&driver.congestion(CongestionCause::EcnCe));
    let now = driver.now;
    driver.bbr.on_spurious(&Spurious { now, event });
    assert_eq!(driver.bbr.phase, Phase::Down);
}

#[test]
fn marked_flight_does_not_raise_inflight_longterm() {
    for (marked, bound) in [(false, 300_000), (true, 200_000)] {
        let mut driver = Driver::cruising();
        driver.bbr.inflight_longterm = 200_000;
        if marked {
            let event = driver.congestion(CongestionCause::EcnCe);
            driver.bbr.on_congestion(&event);
        }
        // An ACK of the marked flight: the round is not over.
        let prior = driver.delivered - MDS;
        driver.ack_of(prior, 1_000_000, 2 * MDS, 300_000, false);
        assert_eq!(driver.bbr.inflight_longterm, bound, "marked: {marked}");
    }
}
