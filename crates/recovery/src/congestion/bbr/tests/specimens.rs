//! Each specimen shows its symptom, and the correct code does not.

use core::time::Duration;

use super::super::Bbr;
use super::super::phase::Phase;
use super::super::specimens::bug;
use super::shared::AsBbr;
use super::sim::{App, Link, MDS, MS, Sim};
use crate::congestion::specimens::WithBug;
use crate::congestion::{Algorithm, NewPath, SlowStart};
use crate::specimens::Specimen;

const SECONDS: Duration = Duration::from_secs(1);

/// Runs the same with the correct code and with the specimen.
fn both<T>(specimen: Specimen, link: Link, run: impl Fn(&mut Sim) -> T) -> (T, T) {
    let with = |bbr| run(&mut Sim::with(bbr, link, App::Bulk, 1));
    let bug = bug(specimen).expect("a bug of BBR's");
    (
        with(Box::new(Bbr::new(MDS, 1))),
        with(Box::new(WithBug::new(Bbr::new(MDS, 1), bug))),
    )
}

impl AsBbr for WithBug<Bbr> {
    fn bbr(&self) -> &Bbr {
        &self.inner
    }
}

/// Returns the percentage of the link used from `begin` to `end`.
fn use_between(begin: Duration, end: Duration) -> impl Fn(&mut Sim) -> u64 {
    move |sim| {
        sim.run(begin);
        sim.measure(end - begin) * 100 / sim.link.rate
    }
}

#[test]
fn drain_trap_never_leaves_drain() {
    let link = Link::new(10, 40, 300);
    let (right, wrong) = both(Specimen::DrainTrap, link, |sim| {
        // ProbeRTT would come after five.
        sim.run(4 * SECONDS);
        sim.phase()
    });
    assert!(right.is_probe_bw());
    assert_eq!(wrong, Phase::Drain);
}

#[test]
fn down_trap_loses_max_bw() {
    // At nine tenths of the rate the flight never falls to what DOWN waits for.
    let link = Link::new(5, 30, 200);
    let (right, wrong) = both(Specimen::DownTrap, link, |sim| {
        sim.until_phase(Phase::Down);
        let mut least = u64::MAX;
        for _ in 0..80 {
            sim.run(SECONDS / 10);
            least = least.min(sim.bbr().max_bw.get());
        }
        least * 100 / sim.link.rate
    });
    assert!(right >= 95, "{right}");
    assert!(wrong <= 50, "{wrong}");
}

#[test]
fn pre_ack_inflight_exit_stays_in_drain() {
    let mut link = Link::new(50, 40, 400);
    link.ack_slot = Some(100 * MS);
    let (right, wrong) = both(Specimen::PreAckInflightExit, link, |sim| {
        sim.run(4 * SECONDS);
        sim.phase()
    });
    assert!(right.is_probe_bw());
    assert_eq!(wrong, Phase::Drain);
}

#[test]
fn max_filter_same_round_forgets_max_bw_without_loss() {
    let link = Link::new(20, 40, 400);
    let (right, wrong) = both(Specimen::MaxFilterSameRound, link, |sim| {
        sim.until_phase(Phase::Cruise);
        sim.link.rtt += 2 * MS;
        sim.until_phase(Phase::ProbeRtt);
        let mut least = u64::MAX;
        sim.until(SECONDS, |sim| {
            least = least.min(sim.bbr().max_bw.get());
            sim.phase() != Phase::ProbeRtt
        });
        assert_eq!(sim.lost(), 0);
        least * 100 / sim.link.rate
    });
    assert!(right >= 95, "{right}");
    assert!(wrong <= 70, "{wrong}");
}

#[test]
fn bootstrap_rtt_poison_underestimates_the_bdp() {
    let link = Link::new(10, 30, 100);
    let (right, wrong) = both(
        Specimen::BootstrapRttPoison,
        link,
        use_between(2 * SECONDS, 5 * SECONDS),
    );
    assert!(right >= 95, "{right}");
    assert!(wrong <= 80, "{wrong}");
}

#[test]
fn walltime_rate_uses_little_of_the_link() {
    let link = Link::new(10, 30, 100);
    let (right, wrong) = both(
        Specimen::WalltimeRate,
        link,
        use_between(20 * SECONDS, 25 * SECONDS),
    );
    assert!(right >= 95, "{right}");
    assert!(wrong <= 20, "{wrong}");
}

#[test]
fn zero_pacing_bootstrap_uses_little_of_the_link() {
    let link = Link::new(50, 40, 100);
    let (right, wrong) = both(
        Specimen::ZeroPacingBootstrap,
        link,
        use_between(300 * MS, 900 * MS),
    );
    assert!(right >= 90, "{right}");
    assert!(wrong <= 20, "{wrong}");
}

#[test]
fn tokenbucket_startup_sends_one_packet_per_ack() {
    let mut link = Link::new(10, 40, 200);
    link.ack_slot = Some(10 * MS);
    let (right, wrong) = both(
        Specimen::TokenbucketStartup,
        link,
        use_between(SECONDS / 2, 2 * SECONDS),
    );
    assert!(right >= 90, "{right}");
    assert!(wrong <= 20, "{wrong}");
}

#[test]
fn startup_overrun_loses_half_of_what_it_sends() {
    let mut link = Link::new(10, 30, 0);
    link.queue = 25 * MDS;
    let (right, wrong) = both(Specimen::StartupOverrun, link, |sim| {
        sim.until(10 * SECONDS, |sim| sim.packets_dropped > 0);
        let sent = sim.packets_sent;
        sim.until(10 * SECONDS, |sim| sim.phase() != Phase::Startup);
        sim.packets_dropped * 100 / (sim.packets_sent - sent)
    });
    assert!(right <= 30, "{right}");
    assert!(wrong >= 50, "{wrong}");
}

#[test]
fn amnesia_after_outage_recovers_slowly() {
    let link = Link::new(50, 40, 100);
    let (right, wrong) = both(Specimen::AmnesiaAfterOutage, link, |sim| {
        sim.until_phase(Phase::Cruise);
        sim.run(SECONDS / 2);
        sim.link.blackhole = true;
        sim.run(3 * SECONDS);
        sim.link.blackhole = false;
        sim.until(10 * SECONDS, |sim| sim.bbr().metrics.persistent_events > 0);
        let known = sim.bbr().max_bw.get() * 100 / sim.link.rate;
        (known, sim.measure(SECONDS / 2) * 100 / sim.link.rate)
    });
    assert!(right.0 >= 95 && right.1 >= 80, "{right:?}");
    assert!(wrong.0 <= 10 && wrong.1 <= 20, "{wrong:?}");
}

#[test]
fn longterm_spiral_lowers_inflight_longterm_with_each_loss() {
    let link = Link::new(50, 40, 60);
    let (right, wrong) = both(Specimen::LongtermSpiral, link, |sim| {
        sim.until_phase(Phase::Up);
        sim.link.blackhole = true;
        sim.run(30 * MS);
        sim.link.blackhole = false;
        sim.run(SECONDS / 4);
        sim.bbr().inflight_longterm * 100 / sim.link.bdp()
    });
    assert!(right >= 65, "{right}");
    assert!(wrong <= 30, "{wrong}");
}

#[test]
fn every_specimen_builds_a_controller() {
    for specimen in Specimen::ALL {
        let path = NewPath {
            mds: MDS,
            slow_start: SlowStart::HyStart,
            seed: 0,
        };
        let built = specimen.build(&Algorithm::Bbr.into(), &path);
        let name = built.name();
        assert!(["bbr", "cubic"].contains(&name), "{specimen}: {name}");
    }
}
