//! The test cases of the appendix for Startup and Drain.

use core::time::Duration;

use super::super::gains::Percent;
use super::super::phase::Phase;
use super::sim::{App, Link, MBIT, Sim};

const SECONDS: Duration = Duration::from_secs(1);

/// "Exiting STARTUP on Bandwidth Plateau"
#[test]
fn startup_ends_on_a_bandwidth_plateau() {
    let link = Link::new(10, 40, 300);
    let mut sim = Sim::new(link, App::Bulk);
    let mut counts = Vec::new();
    sim.until(5 * SECONDS, |sim| {
        let bbr = sim.bbr();
        let seen = (bbr.rounds.count, bbr.full_pipe.count);
        if counts.last() != Some(&seen) {
            counts.push(seen);
        }
        bbr.phase != Phase::Startup
    });
    let bbr = sim.bbr();
    assert_eq!(bbr.phase, Phase::Drain);
    assert!(bbr.full_pipe.now && bbr.full_pipe.reached);
    let &[.., (one, 1), (two, 2), (three, 3)] = &counts[..] else {
        panic!("{counts:?}");
    };
    assert_eq!((two, three), (one + 1, one + 2), "consecutive rounds");
    assert!(bbr.max_bw.get().abs_diff(link.rate) * 50 <= link.rate);
    drop(bbr);
    assert_eq!(sim.lost(), 0);
}

/// "Exiting STARTUP on Loss When Application-Limited"
#[test]
fn startup_ends_on_loss_when_application_limited() {
    let mut sim = Sim::new(Link::new(100, 40, 100), App::mbit(40));
    sim.run(SECONDS);
    assert_eq!(sim.phase(), Phase::Startup);
    sim.link.loss = 80_000;
    sim.until(5 * SECONDS, |sim| sim.phase() != Phase::Startup);
    assert!(sim.path().delivery_rate().unwrap().app_limited);
    let bbr = sim.bbr();
    assert!(bbr.full_pipe.now && bbr.full_pipe.reached);
    // There is no queue, so Drain ends with the ACK that began it.
    assert_eq!(bbr.drain_start_round, bbr.rounds.count);
    assert!(bbr.rounds.count > 1);
    assert!(bbr.inflight_longterm >= bbr.bdp_multiple(bbr.bw, Percent(100)));
}

#[test]
fn few_losses_do_not_end_startup() {
    // Two or three losses a round: under the threshold of the rate, and of the
    // number of ranges.
    let mut sim = Sim::new(Link::new(100, 40, 100), App::mbit(40));
    sim.link.loss = 10_000;
    sim.run(5 * SECONDS);
    assert_eq!(sim.phase(), Phase::Startup);
    assert!(sim.lost() > 0);
}

/// "Exiting DRAIN Based on Inflight"
#[test]
fn drain_ends_when_the_queue_is_drained() {
    let mut sim = Sim::new(Link::new(10, 40, 300), App::Bulk);
    sim.until_phase(Phase::Drain);
    let (bw, rate) = (sim.bbr().bw, sim.bbr().pacing_rate);
    assert_eq!(rate, bw / 2 * 99 / 100);
    sim.until(5 * SECONDS, |sim| {
        let (bbr, in_flight) = (sim.bbr(), sim.in_flight());
        if bbr.phase == Phase::Drain {
            assert!(bbr.rounds.count <= bbr.drain_start_round + 3);
        } else {
            assert!(in_flight <= bbr.inflight_at(bbr.bw), "{in_flight}");
            assert!(bbr.phase.is_probe_bw());
        }
        bbr.phase != Phase::Drain
    });
}

/// "Exiting DRAIN Based on Time": the bandwidth falls on entry, so far that the
/// halved rate cannot drain the queue.
#[test]
fn drain_ends_after_three_rounds() {
    let mut sim = Sim::new(Link::new(10, 40, 300), App::Bulk);
    sim.until_phase(Phase::Drain);
    sim.link.rate = sim.link.rate * 45 / 100;
    let started = sim.bbr().drain_start_round;
    sim.until(5 * SECONDS, |sim| sim.phase() != Phase::Drain);
    let (bbr, in_flight) = (sim.bbr(), sim.in_flight());
    assert_eq!(bbr.phase, Phase::Down);
    assert_eq!(bbr.rounds.count, started + 4, "three full rounds are over");
    assert!(in_flight > bbr.inflight_at(bbr.bw), "{in_flight}");
}

/// "Never Exiting PROBE_UP (or STARTUP) When Application-Limited With No Loss":
/// Startup.
#[test]
fn startup_does_not_end_while_application_limited() {
    let mut sim = Sim::new(Link::new(10, 40, 100), App::mbit(2));
    sim.run(20 * SECONDS);
    assert!(sim.bbr().rounds.count > 100);
    assert!(!sim.bbr().full_pipe.reached);
    assert_eq!(sim.phases.len(), 1, "{:?}", sim.phases);
}

#[test]
fn startup_doubles_the_rate_each_round() {
    let mut sim = Sim::new(Link::new(1000, 40, 100), App::Bulk);
    let mut rates = vec![0];
    sim.until(2 * SECONDS, |sim| {
        let bbr = sim.bbr();
        if bbr.rounds.count as usize > rates.len() {
            rates.push(bbr.max_bw.get());
        }
        rates.len() == 9
    });
    // From the second round on, because the first samples are of the initial window.
    for pair in rates[3..].windows(2) {
        assert!(pair[1] * 10 >= pair[0] * 18, "{rates:?}");
    }
}

#[test]
fn startup_queue_is_bounded_by_the_window() {
    // The window is two BDP and extra_acked, so there is no queue of 3 BDP.
    let link = Link::new(50, 40, 1000);
    let mut sim = Sim::new(link, App::Bulk);
    let mut most = 0;
    sim.until(5 * SECONDS, |sim| {
        most = most.max(sim.in_flight());
        sim.phase() != Phase::Startup
    });
    assert!(most <= link.bdp() * 225 / 100, "{most} of {}", link.bdp());
    assert!(most >= link.bdp() * 190 / 100, "{most} of {}", link.bdp());
}

#[test]
fn startup_ends_by_loss_when_a_shallow_queue_overflows() {
    let mut sim = Sim::new(Link::new(100, 40, 20), App::Bulk);
    sim.until(5 * SECONDS, |sim| sim.phase() != Phase::Startup);
    let bbr = sim.bbr();
    assert!(bbr.inflight_longterm < u64::MAX);
    assert!(bbr.full_pipe.count < 3, "not by the plateau");
    assert!(bbr.max_bw.get() >= 90 * MBIT, "{}", bbr.max_bw.get());
}
