//! The test cases of the appendix for spurious losses.

use core::time::Duration;

use super::super::INFINITE;
use super::super::phase::Phase;
use super::super::undo::Probing;
use super::sim::{App, Link, MS, Sim};

const SECONDS: Duration = Duration::from_secs(1);

/// A bulk flow in UP, some of whose packets are delayed by `detour`.
fn detoured(packets: u64, detour: Duration) -> Sim {
    let mut sim = Sim::new(Link::new(50, 40, 400), App::Bulk);
    sim.until_phase(Phase::Up);
    sim.link.detour = detour;
    let sent = sim.packets_sent;
    sim.until(SECONDS, |sim| sim.packets_sent >= sent + packets);
    sim.link.detour = Duration::ZERO;
    assert_eq!(sim.phase(), Phase::Up);
    sim
}

/// Checks what happens from the loss until it proves spurious.
fn undone(mut sim: Sim) {
    let before = {
        let bbr = sim.bbr();
        (
            bbr.bw_shortterm,
            bbr.inflight_shortterm,
            bbr.inflight_longterm,
        )
    };
    sim.until(2 * SECONDS, |sim| sim.phase() != Phase::Up);
    let trail = sim.trail();
    let up = trail.iter().rposition(|phase| *phase == Phase::Up).unwrap();
    assert_eq!(trail[up + 1], Phase::Down, "taken for too much in flight");
    let saved = {
        let bbr = sim.bbr();
        assert!(bbr.inflight_longterm < before.2);
        assert_eq!(bbr.undo.was_probing, Some(Probing::Up));
        bbr.undo
    };
    assert!(saved.event.is_some());
    assert_eq!(
        (
            saved.bw_shortterm,
            saved.inflight_shortterm,
            saved.inflight_longterm
        ),
        before
    );
    sim.until(2 * SECONDS, |sim| sim.bbr().metrics.spurious_events > 0);
    {
        let bbr = sim.bbr();
        assert!(bbr.bw_shortterm >= before.0);
        assert!(bbr.inflight_shortterm >= before.1);
        assert!(bbr.inflight_longterm >= before.2);
        assert_eq!(bbr.phase, Phase::Refill);
        assert_eq!(bbr.undo.event, None);
        assert!(!bbr.loss_round.loss_seen);
    }
    sim.until(SECONDS, |sim| sim.phase() != Phase::Refill);
    assert_eq!(sim.phase(), Phase::Up, "back to probing");
}

/// "Handling Spurious Fast Recovery"
#[test]
fn spurious_fast_recovery_is_undone() {
    undone(detoured(12, 15 * MS));
}

/// "Handling Spurious RTO Recovery": a probe timeout's packet overtakes a flight.
#[test]
fn spurious_timeout_is_undone() {
    let mut sim = Sim::new(Link::new(50, 40, 400), App::Bulk);
    sim.until_phase(Phase::Up);
    // Only delayed packets are in flight until a probe is sent.
    sim.link.detour = 250 * MS;
    let sent = sim.packets_sent;
    sim.until(SECONDS, |sim| sim.packets_sent >= sent + 30);
    sim.set_app(App::Silent);
    sim.link.detour = Duration::ZERO;
    sim.until(SECONDS, |sim| sim.path().pto_count() > 0);
    sim.set_app(App::Bulk);
    assert_eq!(sim.phase(), Phase::Up);
    undone(sim);
}

#[test]
fn spurious_loss_in_startup_returns_to_startup() {
    // The queue has room for all that Startup sends, so that nothing is really lost.
    let mut sim = Sim::new(Link::new(200, 40, 1_000), App::Bulk);
    sim.until(SECONDS, |sim| sim.bbr().cwnd > 200_000);
    // Every second packet is delayed by more than the round at whose end losses count.
    for _ in 0..15 {
        for detour in [100 * MS, Duration::ZERO] {
            sim.link.detour = detour;
            let sent = sim.packets_sent;
            sim.until(SECONDS, |sim| sim.packets_sent > sent);
        }
    }
    sim.link.detour = Duration::ZERO;
    sim.until(SECONDS, |sim| sim.phase() != Phase::Startup);
    {
        let bbr = sim.bbr();
        assert_eq!(bbr.phase, Phase::Drain);
        assert_eq!(bbr.undo.was_probing, Some(Probing::Startup));
        assert!(bbr.full_pipe.reached);
        assert!(bbr.inflight_longterm < INFINITE);
        assert_eq!(bbr.metrics.spurious_events, 0);
    }
    sim.until(SECONDS, |sim| sim.bbr().metrics.spurious_events > 0);
    assert_eq!(sim.phase(), Phase::Startup);
    assert!(!sim.bbr().full_pipe.reached);
    assert_eq!(sim.bbr().inflight_longterm, INFINITE);
    assert_eq!(sim.packets_dropped, 0);
    sim.until_phase(Phase::Cruise);
    let max_bw = sim.bbr().max_bw.get();
    assert!(max_bw >= sim.link.rate * 95 / 100, "{max_bw}");
}

#[test]
fn real_losses_are_not_undone() {
    let mut sim = detoured(12, 15 * MS);
    sim.link.loss = 20_000;
    sim.run(100 * MS);
    sim.link.loss = 0;
    sim.run(SECONDS / 2);
    assert_eq!(sim.bbr().metrics.spurious_events, 0);
}
