//! The test cases of the appendix for ProbeRTT and restarting from idle.

use core::time::Duration;

use super::super::phase::Phase;
use super::sim::{App, Link, MS, Sim};

const SECONDS: Duration = Duration::from_secs(1);

/// A bulk flow in CRUISE whose round trip has just become longer, so that no
/// sample reaches the minimum.
fn with_longer_path() -> Sim {
    let mut sim = Sim::new(Link::new(20, 40, 300), App::Bulk);
    sim.until_phase(Phase::Cruise);
    sim.run(SECONDS / 2);
    sim.link.rtt += 2 * MS;
    sim
}

/// "Entering and Exiting PROBE_RTT"
#[test]
fn probe_rtt_begins_after_five_seconds_and_lasts_200_ms_and_a_round() {
    let mut sim = with_longer_path();
    let changed = sim.now;
    sim.until_phase(Phase::ProbeRtt);
    let waited = sim.now - changed;
    assert!(
        waited > 4 * SECONDS && waited <= 5 * SECONDS + 100 * MS,
        "{waited:?}"
    );
    let bdp = {
        let bbr = sim.bbr();
        assert_eq!(bbr.phase.cwnd_gain().0, 50);
        bbr.bdp_of(bbr.bw).unwrap()
    };
    assert!(
        sim.bbr().cwnd.abs_diff(bdp / 2) <= 1,
        "{} of {bdp}",
        sim.bbr().cwnd
    );
    sim.until(SECONDS, |sim| sim.bbr().probe_rtt.done_stamp.is_some());
    assert!(sim.in_flight() <= bdp / 2);
    let (begin, round) = (sim.now, sim.bbr().rounds.count);
    sim.until(SECONDS, |sim| sim.phase() != Phase::ProbeRtt);
    let lasted = sim.now - begin;
    assert!(lasted > 200 * MS && lasted < 250 * MS, "{lasted:?}");
    assert!(sim.bbr().rounds.count > round);
    assert_eq!(sim.phase(), Phase::Cruise, "full_bw_reached");
    assert!(sim.bbr().cwnd > bdp, "restored");
    let rate = sim.measure(SECONDS);
    assert!(rate >= sim.link.rate * 90 / 100, "{rate}");
}

/// A queue of two datagrams, the shortest train, does not justify a ProbeRTT: but it may be one
/// beside a standing queue that is not this flow's, so it postpones one for ten seconds only.
#[test]
fn queue_below_two_datagrams_postpones_probe_rtt_by_ten_seconds() {
    let mut sim = Sim::new(Link::new(20, 40, 300), App::Bulk);
    sim.until_phase(Phase::Cruise);
    let min_rtt = sim.bbr().min_rtt();
    // A datagram takes 480 us.
    sim.link.rtt += Duration::from_micros(300);
    sim.run(12 * SECONDS);
    assert!(!sim.trail().contains(&Phase::ProbeRtt));
    assert!(
        sim.bbr().min_rtt() <= min_rtt,
        "and the minimum does not rise"
    );
    sim.run(4 * SECONDS);
    assert!(sim.trail().contains(&Phase::ProbeRtt));
}

/// Before the pipe is full the rate is too low to compute how long a datagram takes. A
/// sample may be 1/64 of the minimum above it.
#[test]
fn min_rtt_slack_is_smaller_in_startup() {
    let startup = |longer| {
        let mut sim = Sim::new(Link::new(20, 128, 100), App::mbit(4));
        sim.run(SECONDS);
        sim.link.rtt += Duration::from_micros(longer);
        sim.run(6 * SECONDS);
        assert!(!sim.bbr().full_pipe.reached);
        sim.trail()
    };
    // 2 ms, of which a lone packet's ACK waits for one.
    assert!(!startup(900).contains(&Phase::ProbeRtt));
    assert!(startup(2_100).contains(&Phase::ProbeRtt));
}

/// BBR.PacingMarginPercent drains a queue; without a queue it would leave the link idle.
#[test]
fn cruise_paces_below_bw_only_while_there_is_a_queue() {
    let mut sim = Sim::new(Link::new(20, 40, 300), App::Bulk);
    sim.until_phase(Phase::Cruise);
    let mut seen = [0; 2];
    while sim.phase() == Phase::Cruise {
        let end = sim.now + SECONDS;
        sim.step(end);
        let bbr = sim.bbr();
        let share = if bbr.queue_seen { 99 } else { 100 };
        if bbr.phase == Phase::Cruise {
            assert_eq!(bbr.pacing_rate, bbr.bw * share / 100);
            seen[usize::from(bbr.queue_seen)] += 1;
        }
    }
    assert!(seen[0] > 0, "{seen:?}");
    sim.until_phase(Phase::Cruise);
    sim.link.rtt += MS;
    sim.run(50 * MS);
    assert_eq!(sim.phase(), Phase::Cruise);
    let bbr = sim.bbr();
    assert!(bbr.queue_seen);
    assert_eq!(bbr.pacing_rate, bbr.bw * 99 / 100);
}

#[test]
fn probe_rtt_lasts_a_round_if_the_rtt_exceeds_200_ms() {
    let mut sim = Sim::new(Link::new(20, 400, 300), App::Bulk);
    sim.until_phase(Phase::Cruise);
    sim.link.rtt += 2 * MS;
    sim.until_phase(Phase::ProbeRtt);
    sim.until(2 * SECONDS, |sim| sim.bbr().probe_rtt.done_stamp.is_some());
    let begin = sim.now;
    sim.until(2 * SECONDS, |sim| sim.phase() != Phase::ProbeRtt);
    assert!(sim.now - begin >= 400 * MS, "{:?}", sim.now - begin);
}

#[test]
fn probe_rtt_samples_are_app_limited_and_do_not_lower_max_bw() {
    let mut sim = with_longer_path();
    sim.until_phase(Phase::ProbeRtt);
    let max_bw = sim.bbr().max_bw.get();
    let mut marked = 0;
    while sim.phase() == Phase::ProbeRtt {
        let end = sim.now + SECONDS;
        sim.step(end);
        assert_eq!(sim.bbr().max_bw.get(), max_bw);
        marked += u32::from(sim.path().delivery_rate().unwrap().app_limited);
    }
    assert!(marked > 100, "{marked}");
}

#[test]
fn min_rtt_rises_to_the_longer_path_after_ten_seconds() {
    let mut sim = with_longer_path();
    let old = sim.bbr().min_rtt().unwrap();
    sim.run(9 * SECONDS);
    assert_eq!(sim.bbr().min_rtt(), Some(old));
    sim.run(3 * SECONDS);
    let new = sim.bbr().min_rtt().unwrap();
    assert!(new >= 42 * MS && new < 44 * MS, "{new:?}");
}

#[test]
fn probe_rtt_repeats_every_five_seconds() {
    // As with a growing queue of another flow, the RTT rises all the time.
    let mut sim = Sim::new(Link::new(20, 40, 300), App::Bulk);
    sim.until_phase(Phase::Cruise);
    let end = sim.now + 31 * SECONDS;
    while sim.now < end {
        sim.run(SECONDS / 10);
        sim.link.rtt += MS / 5;
    }
    let starts: Vec<_> = sim
        .phases
        .iter()
        .filter(|(_, phase)| *phase == Phase::ProbeRtt)
        .map(|(at, _)| *at)
        .collect();
    assert!(starts.len() >= 5, "{starts:?}");
    for pair in starts.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap >= 5 * SECONDS && gap <= 6 * SECONDS, "{gap:?}");
    }
}

/// "Skipping PROBE_RTT Due to Application-Limited Sending"
#[test]
fn idle_period_replaces_probe_rtt() {
    let mut sim = with_longer_path();
    sim.set_app(App::Silent);
    sim.run(6 * SECONDS);
    assert_eq!(sim.in_flight(), 0);
    let seen = sim.phases.len();
    sim.set_app(App::Bulk);
    sim.until(SECONDS, |sim| sim.in_flight() > 0);
    assert!(sim.bbr().idle_restart);
    sim.run(SECONDS);
    assert!(!sim.bbr().idle_restart);
    let phases = &sim.phases[seen..];
    assert!(
        phases.iter().all(|(_, phase)| *phase != Phase::ProbeRtt),
        "{phases:?}"
    );
}

#[test]
fn restarting_from_idle_paces_at_exactly_bw() {
    let mut sim = Sim::new(Link::new(20, 40, 400), App::Bulk);
    sim.until_phase(Phase::Up);
    sim.run(20 * MS);
    assert_eq!(sim.phase(), Phase::Up);
    sim.set_app(App::Silent);
    sim.run(SECONDS / 2);
    assert!(sim.bbr().pacing_rate > sim.bbr().bw);
    let window = sim.bbr().cwnd;
    sim.set_app(App::Bulk);
    sim.until(SECONDS, |sim| sim.in_flight() > 0);
    let bbr = sim.bbr();
    assert_eq!(bbr.pacing_rate, bbr.bw * 99 / 100);
    assert_eq!(bbr.cwnd, window);
}

#[test]
fn probe_rtt_ends_at_restart_from_idle() {
    let mut sim = with_longer_path();
    sim.until_phase(Phase::ProbeRtt);
    sim.until(SECONDS, |sim| sim.bbr().probe_rtt.done_stamp.is_some());
    sim.set_app(App::Silent);
    sim.run(SECONDS / 2);
    assert_eq!(sim.phase(), Phase::ProbeRtt);
    let small = sim.bbr().cwnd;
    sim.set_app(App::Bulk);
    sim.until(MS, |sim| sim.in_flight() > 0);
    assert_eq!(sim.phase(), Phase::Cruise);
    assert!(
        sim.bbr().cwnd > small,
        "restored before the first packet leaves"
    );
}

/// "Entering and Exiting PROBE_RTT During STARTUP"
#[test]
fn probe_rtt_in_startup_leads_back_to_startup() {
    let mut sim = Sim::new(Link::new(20, 40, 100), App::mbit(4));
    sim.run(SECONDS);
    sim.link.rtt += 2 * MS;
    sim.until_phase(Phase::ProbeRtt);
    assert!(!sim.bbr().full_pipe.reached);
    sim.until(SECONDS, |sim| sim.phase() != Phase::ProbeRtt);
    assert_eq!(sim.phase(), Phase::Startup);
    // It finds the bandwidth once there is data.
    sim.set_app(App::Bulk);
    sim.until_phase(Phase::Cruise);
    let max_bw = sim.bbr().max_bw.get();
    assert!(max_bw >= sim.link.rate * 95 / 100, "{max_bw}");
}
