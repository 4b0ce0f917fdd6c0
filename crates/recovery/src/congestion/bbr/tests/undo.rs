//! The state saved before a loss or a ProbeRTT, and what the undo of a spurious loss
//! restores (§5.5.11, §5.6.4.4).

use core::time::Duration;

use super::super::Bbr;
use super::super::phase::Phase;
use super::super::undo::{Probing, Undo};
use super::driver::Driver;
use super::sim::{App, Link, MDS, Sim};
use crate::controller::{CongestionCause, Controller, Spurious};
use crate::time::Instant;

/// Returns a controller in `phase`, with a full pipe, after a loss that ended a probe
/// proved spurious.
fn undone(was_probing: Probing, phase: Phase) -> Bbr {
    let mut bbr = Bbr::new(MDS, 1);
    bbr.full_pipe.reached = true;
    bbr.phase = phase;
    bbr.undo = Undo {
        event: Some(7),
        was_probing: Some(was_probing),
        ..Undo::default()
    };
    bbr.on_spurious(&Spurious {
        now: Instant::ZERO,
        event: 7,
    });
    bbr
}

#[test]
fn spurious_loss_in_startup_returns_to_startup() {
    let bbr = undone(Probing::Startup, Phase::Drain);
    assert_eq!(bbr.phase, Phase::Startup);
    assert!(!bbr.full_pipe.reached);
    let bbr = undone(Probing::Startup, Phase::ProbeRtt);
    assert_eq!(bbr.phase, Phase::ProbeRtt, "which leads back by itself");
    assert!(!bbr.full_pipe.reached);
}

#[test]
fn spurious_loss_in_probe_up_leads_to_refill() {
    assert_eq!(undone(Probing::Up, Phase::Down).phase, Phase::Refill);
    assert_eq!(undone(Probing::Up, Phase::Up).phase, Phase::Up);
    assert_eq!(undone(Probing::Up, Phase::ProbeRtt).phase, Phase::ProbeRtt);
}

/// What else is lost of the flight of an undone event begins an event of its own.
#[test]
fn loss_before_the_boundary_of_an_undone_event_begins_recovery() {
    let mut driver = Driver::cruising();
    let (now, event) = (driver.now, driver.next_index + 100);
    driver.lose();
    driver.bbr.on_spurious(&Spurious { now, event });
    assert!(!driver.bbr.recovering);
    driver.lose();
    assert!(driver.bbr.recovering);
    assert_eq!(driver.bbr.metrics.congestion_events, 2);

    // An event that followed, by a mark, stays.
    let mut driver = Driver::cruising();
    let (now, event) = (driver.now, driver.next_index + 100);
    driver.lose();
    driver.next_index += 100;
    driver
        .bbr
        .on_congestion(&driver.congestion(CongestionCause::EcnCe));
    let boundary = driver.bbr.boundary;
    driver.bbr.on_spurious(&Spurious { now, event });
    assert_eq!(driver.bbr.boundary, boundary);
}

/// BBRSaveCwnd(): a window that recovery or ProbeRTT has reduced is not saved.
#[test]
fn saved_cwnd_is_the_last_one_outside_recovery_and_probe_rtt() {
    let saved = |recovering, phase| {
        let mut bbr = Bbr::new(MDS, 1);
        (bbr.cwnd, bbr.prior_cwnd) = (50_000, 100_000);
        (bbr.recovering, bbr.phase) = (recovering, phase);
        bbr.save_cwnd();
        bbr.prior_cwnd
    };
    assert_eq!(saved(false, Phase::Cruise), 50_000);
    assert_eq!(saved(true, Phase::Cruise), 100_000);
    assert_eq!(saved(false, Phase::ProbeRtt), 100_000);
}

#[test]
fn flow_without_loss_is_never_in_recovery() {
    let mut sim = Sim::new(Link::new(10, 40, 10_000), App::Bulk);
    sim.run(Duration::from_secs(1));
    assert_eq!(sim.packets_dropped, 0);
    assert!(!sim.bbr().recovering);
}

/// One minimum window per second: from a rate of zero there would be no growth.
#[test]
fn pacing_rate_is_at_least_min_pipe_cwnd_per_second() {
    let mut bbr = Bbr::new(MDS, 1);
    bbr.full_pipe.reached = true;
    bbr.bw = 1;
    bbr.set_pacing_rate_with_gain(bbr.pacing_gain());
    assert_eq!(bbr.pacing_rate, 4 * MDS);
}
