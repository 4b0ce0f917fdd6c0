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

/// A round of 100 datagrams of which this many are marked. What is left of them in flight.
fn inflight_after_marks(marked: u64) -> u64 {
    let mut driver = Driver::cruising();
    driver.ack(1_000_000, 100 * MDS, 100 * MDS);
    let event = Congestion {
        packets: marked,
        ..driver.congestion(CongestionCause::EcnCe)
    };
    driver.bbr.on_congestion(&event);
    driver.ack(1_000_000, 100 * MDS, 100 * MDS);
    assert_eq!(
        driver.bbr.rounds.since_probe_up, 0,
        "Reno begins again, too"
    );
    driver.bbr.inflight_shortterm
}

#[test]
fn marked_round_reduces_inflight_by_the_share_of_marks() {
    for (marked, left) in [(1, 99), (25, 75), (50, 50), (100, 4)] {
        let inflight = inflight_after_marks(marked);
        assert!(inflight.abs_diff(left * MDS) < 10, "{marked}: {inflight}");
    }
}

#[test]
fn marks_while_probing_reduce_inflight_only_after_the_probe() {
    let mut driver = Driver::probing();
    driver.ack(1_000_000, 100 * MDS, 100 * MDS);
    driver.bbr.phase = Phase::Refill;
    let event = Congestion {
        packets: 50,
        ..driver.congestion(CongestionCause::EcnCe)
    };
    driver.bbr.probe.is_sample = false;
    driver.bbr.on_congestion(&event);
    driver.bbr.phase = Phase::Refill;
    driver.ack(1_000_000, 100 * MDS, 100 * MDS);
    assert_eq!(driver.bbr.inflight_shortterm, INFINITE);
}

/// Every packet that finds more than 5 ms in the queue is marked: it is drained.
#[test]
fn queue_that_marks_each_packet_is_drained() {
    let mut driver = Driver::cruising();
    for _ in 0..12 {
        let flight = driver.bbr.cwnd.min(100 * MDS);
        let event = Congestion {
            packets: flight / MDS,
            ..driver.congestion(CongestionCause::EcnCe)
        };
        driver.bbr.on_congestion(&event);
        driver.ack(1_000_000, flight, flight);
    }
    assert!(driver.bbr.cwnd <= 8 * MDS, "{}", driver.bbr.cwnd / MDS);
}
