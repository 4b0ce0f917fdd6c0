//! The test cases of the appendix for ProbeBW.

use core::time::Duration;

use super::super::gains::{BETA, Percent};
use super::super::phase::Phase;
use super::super::{INFINITE, gains};
use super::sim::{App, Link, MDS, Sim};

const SECONDS: Duration = Duration::from_secs(1);

/// A bulk flow in its first UP.
fn in_up(link: Link) -> Sim {
    let mut sim = Sim::new(link, App::Bulk);
    sim.until_phase(Phase::Up);
    sim
}

/// "Exiting PROBE_UP on Bandwidth Plateau"
#[test]
fn probe_up_ends_on_a_bandwidth_plateau() {
    let mut sim = in_up(Link::new(10, 40, 400));
    let lost = sim.lost();
    let mut counts = vec![0];
    sim.until(5 * SECONDS, |sim| {
        let bbr = sim.bbr();
        if counts.last() != Some(&bbr.full_pipe.count) {
            counts.push(bbr.full_pipe.count);
        }
        bbr.phase != Phase::Up
    });
    assert_eq!(counts, [0, 1, 2, 3]);
    assert!(sim.bbr().full_pipe.now);
    assert_eq!(sim.phase(), Phase::Down);
    assert_eq!(sim.lost(), lost);
}

/// "Exiting PROBE_UP on Loss When Application-Limited"
#[test]
fn probe_up_ends_on_loss_when_application_limited() {
    let mut sim = in_up(Link::new(100, 40, 400));
    sim.set_app(App::mbit(50));
    // Until everything sent before is acknowledged.
    sim.run(Duration::from_millis(200));
    assert_eq!(sim.phase(), Phase::Up);
    let before = sim.bbr().inflight_longterm;
    sim.link.loss = 60_000;
    sim.until(2 * SECONDS, |sim| sim.phase() != Phase::Up);
    assert!(sim.path().delivery_rate().unwrap().app_limited);
    // Without a queue DOWN may be over at once.
    let trail = sim.trail();
    let up = trail.iter().rposition(|phase| *phase == Phase::Up).unwrap();
    assert_eq!(trail[up + 1], Phase::Down);
    let bbr = sim.bbr();
    assert!(bbr.probe.too_high);
    // The bytes in flight of an application-limited flow are not a bound (§5.5.10.2).
    assert_eq!(bbr.inflight_longterm, before);
}

/// "Never Exiting PROBE_UP (or STARTUP) When Application-Limited With No Loss":
/// UP.
#[test]
fn probe_up_does_not_end_while_application_limited() {
    let mut sim = in_up(Link::new(100, 40, 400));
    sim.set_app(App::mbit(20));
    let seen = sim.phases.len();
    let rounds = sim.bbr().rounds.count;
    sim.run(20 * SECONDS);
    assert_eq!(sim.phases.len(), seen, "{:?}", sim.phases);
    assert!(sim.bbr().rounds.count > rounds + 100);
}

/// "Exiting PROBE_DOWN on Inflight"
#[test]
fn probe_down_ends_when_the_queue_is_drained() {
    let mut sim = in_up(Link::new(10, 40, 400));
    sim.until_phase(Phase::Down);
    {
        let bbr = sim.bbr();
        assert_eq!(bbr.pacing_rate, bbr.bw * 90 / 100 * 99 / 100);
    }
    let mut most = 0;
    sim.until(5 * SECONDS, |sim| {
        let (bbr, in_flight) = (sim.bbr(), sim.in_flight());
        if bbr.phase == Phase::Down {
            most = most.max(in_flight);
        } else {
            assert!(in_flight <= bbr.inflight_with_headroom());
            assert!(in_flight <= bbr.inflight_at(bbr.max_bw.get()));
        }
        bbr.phase != Phase::Down
    });
    assert_eq!(sim.phase(), Phase::Cruise);
    assert!(most > sim.link.bdp(), "there was a queue to drain");
}

/// "Exiting PROBE_DOWN After Max Time"
#[test]
fn probe_down_ends_when_the_next_probe_is_due() {
    // On a long path, where the probe wait is shorter than the rounds of Reno.
    let mut sim = Sim::new(Link::new(20, 100, 400), App::Bulk);
    sim.until_phase(Phase::Refill);
    // A lower RTT sample prevents a ProbeRTT in between.
    sim.link.rtt -= Duration::from_millis(5);
    sim.until_phase(Phase::Down);
    sim.link.rate = sim.link.rate * 90 / 100;
    let (begin, wait) = (sim.now, sim.bbr().probe.wait);
    assert!(wait >= 2 * SECONDS && wait < 3 * SECONDS);
    sim.until(5 * SECONDS, |sim| sim.phase() != Phase::Down);
    assert_eq!(sim.phase(), Phase::Refill, "bypassing CRUISE");
    let lasted = sim.now - begin;
    assert!(
        lasted > wait && lasted < wait + Duration::from_millis(50),
        "{lasted:?}"
    );
}

/// "Increasing Bandwidth 10x and Ensuring Full Bandwidth is Reached"
#[test]
fn tenfold_bandwidth_increase_is_found() {
    let mut sim = Sim::new(Link::new(10, 40, 50), App::Bulk);
    sim.until_phase(Phase::Cruise);
    assert!(
        sim.bbr().inflight_longterm < INFINITE,
        "Startup overflowed the queue"
    );
    sim.link = Link::new(100, 40, 50);
    let mut up_rounds = Vec::new();
    let begin = sim.now;
    let mut found = None;
    let mut rounds = (0, 0);
    while sim.now < begin + 30 * SECONDS && found.is_none() {
        sim.step(begin + 30 * SECONDS);
        let bbr = sim.bbr();
        if bbr.phase == Phase::Up {
            if rounds.0 == 0 {
                rounds.0 = bbr.rounds.count;
            }
            let slope = (bbr.probe.up_rounds, bbr.probe.acked_per_increase);
            if up_rounds.last() != Some(&slope) {
                up_rounds.push(slope);
            }
        }
        if bbr.max_bw.get() >= sim.link.rate * 95 / 100 {
            rounds.1 = bbr.rounds.count;
            found = Some(sim.now - begin);
        }
    }
    let found = found.expect("found");
    assert!(found < 6 * SECONDS, "{found:?}");
    assert!(rounds.1 - rounds.0 <= 40, "{rounds:?}");
    // Each round fewer bytes raise the bound by a datagram: 1, 2, 4, 8 … datagrams a round.
    let slopes: Vec<u32> = up_rounds.iter().map(|slope| slope.0).collect();
    assert!(
        slopes.windows(2).any(|pair| pair[1] == pair[0] + 1),
        "{up_rounds:?}"
    );
}

/// "Decreasing Bandwidth 10x and Ensuring Max Bandwidth Adapts Down"
#[test]
fn rate_follows_bandwidth_drop_to_a_tenth() {
    let mut sim = Sim::new(Link::new(100, 40, 100), App::Bulk);
    sim.until_phase(Phase::Cruise);
    sim.run(SECONDS / 2);
    // The queue shrinks with the rate.
    sim.link = Link::new(10, 40, 100);
    let begin = sim.now;
    sim.until(5 * SECONDS, |sim| {
        sim.bbr().bw_shortterm < sim.link.rate * 2
    });
    let reacted = sim.now - begin;
    assert!(reacted < SECONDS, "{reacted:?}");
    // Two cycles of two to three seconds.
    sim.run(10 * SECONDS);
    let max_bw = sim.bbr().max_bw.get();
    assert!(
        max_bw.abs_diff(sim.link.rate) * 10 <= sim.link.rate,
        "{max_bw}"
    );
    let rate = sim.measure(5 * SECONDS);
    assert!(rate >= sim.link.rate * 85 / 100, "{rate}");
}

/// "Handling Loss During PROBE_UP After inflight_longterm is Set"
#[test]
fn loss_in_probe_up_lowers_inflight_longterm() {
    let mut sim = in_up(Link::new(50, 40, 60));
    let (before, target, beta) = {
        let bbr = sim.bbr();
        let target = bbr.target_inflight();
        (bbr.inflight_longterm, target, BETA.of(target))
    };
    assert!(before < INFINITE, "established by Startup");
    sim.link.loss = 100_000;
    sim.until(2 * SECONDS, |sim| sim.phase() != Phase::Up);
    let bbr = sim.bbr();
    assert_eq!(bbr.phase, Phase::Down);
    assert!(bbr.probe.too_high);
    assert!(
        bbr.inflight_longterm < before,
        "{} of {before}",
        bbr.inflight_longterm
    );
    assert!(
        bbr.inflight_longterm >= beta,
        "{} of {target}",
        bbr.inflight_longterm
    );
}

#[test]
fn inflight_longterm_falls_once_per_probe() {
    let mut sim = in_up(Link::new(50, 40, 60));
    sim.link.loss = 100_000;
    sim.until_phase(Phase::Down);
    let bound = sim.bbr().inflight_longterm;
    while sim.phase() == Phase::Down || sim.phase() == Phase::Cruise {
        let end = sim.now + SECONDS;
        sim.step(end);
        assert!(sim.bbr().inflight_longterm >= bound);
    }
}

/// "Handling Application-Limited Sending During PROBE_REFILL"
#[test]
fn application_limited_refill_does_not_lower_max_bw() {
    let mut sim = Sim::new(Link::new(50, 40, 400), App::Bulk);
    sim.until_phase(Phase::Refill);
    let max_bw = sim.bbr().max_bw.get();
    sim.set_app(App::mbit(2));
    sim.until(SECONDS, |sim| {
        assert!(sim.bbr().max_bw.get() >= max_bw);
        sim.phase() != Phase::Refill
    });
    assert_eq!(sim.phase(), Phase::Up);
    sim.run(SECONDS);
    assert!(sim.path().delivery_rate().unwrap().app_limited);
    assert!(sim.path().delivery_rate().unwrap().delivery_rate < max_bw / 10);
    assert_eq!(sim.bbr().max_bw.get(), max_bw);
    // The probe continues when there is data again.
    sim.set_app(App::Bulk);
    sim.until(5 * SECONDS, |sim| sim.phase() == Phase::Down);
}

#[test]
fn refill_lasts_one_round_and_resets_the_short_term_model() {
    let mut sim = Sim::new(Link::new(50, 40, 100), App::Bulk);
    sim.link.loss = 5_000;
    sim.until(30 * SECONDS, |sim| {
        sim.phase() == Phase::Cruise && sim.bbr().bw_shortterm < INFINITE
    });
    sim.until_phase(Phase::Refill);
    {
        let bbr = sim.bbr();
        assert_eq!(
            (bbr.bw_shortterm, bbr.inflight_shortterm),
            (INFINITE, INFINITE)
        );
        assert_eq!(bbr.pacing_rate, bbr.max_bw.get() * 99 / 100);
    }
    let round = sim.bbr().rounds.count;
    sim.until(SECONDS, |sim| sim.phase() != Phase::Refill);
    assert_eq!(sim.phase(), Phase::Up);
    assert_eq!(sim.bbr().rounds.count, round + 1);
}

#[test]
fn precautionary_probe_stops_at_inflight_longterm_and_a_full_probe_follows() {
    let mut sim = in_up(Link::new(50, 40, 60));
    sim.link.loss = 100_000;
    sim.until_phase(Phase::Down);
    sim.link.loss = 0;
    assert!(sim.bbr().probe.too_high);
    sim.until_phase(Phase::Up);
    let begin = sim.now;
    sim.until_phase(Phase::Down);
    {
        let bbr = sim.bbr();
        assert!(bbr.probe.precautionary && !bbr.probe.too_high);
        assert!(!bbr.full_pipe.now, "stopped before a plateau was seen");
    }
    assert!(sim.now - begin < 2 * sim.link.rtt);
    sim.until(SECONDS, |sim| sim.phase() != Phase::Down);
    assert_eq!(sim.phase(), Phase::Refill, "no CRUISE in between");
    sim.until_phase(Phase::Up);
    assert!(!sim.bbr().probe.precautionary);
}

#[test]
fn probes_start_every_two_to_three_seconds_or_63_rounds() {
    let ups = |link: Link| {
        let mut sim = Sim::new(link, App::Bulk);
        sim.run(30 * SECONDS);
        let starts: Vec<_> = sim
            .phases
            .iter()
            .filter(|(_, phase)| *phase == Phase::Refill)
            .map(|(at, _)| *at)
            .collect();
        assert!(starts.len() >= 4, "{:?}", sim.phases);
        let gaps: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps
    };
    // 100 ms: the probe wait counts. UP and DOWN are added to it, and after a ProbeRTT it
    // begins again.
    let gaps = ups(Link::new(20, 100, 400));
    assert!(
        gaps.iter()
            .all(|gap| *gap >= 2 * SECONDS && *gap < 6 * SECONDS),
        "{gaps:?}"
    );
    assert!(
        gaps.windows(2).any(|pair| pair[0] != pair[1]),
        "random: {gaps:?}"
    );
    // 10 ms: 63 rounds, and once two waits with a ProbeRTT between them.
    let gaps = ups(Link::new(100, 10, 400));
    let longer = gaps.iter().filter(|gap| **gap >= SECONDS).count();
    assert!(longer <= 1, "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap < 2 * SECONDS), "{gaps:?}");
    // 10 ms and ten packets: ten rounds.
    let gaps = ups(Link::new(10, 10, 400));
    let median = {
        let mut gaps = gaps;
        gaps.sort_unstable();
        gaps[gaps.len() / 2]
    };
    assert!(median < SECONDS / 2, "{median:?}");
}

#[test]
fn gains_match_the_table_of_the_draft() {
    let table = [
        (Phase::Startup, 277, 200),
        (Phase::Drain, 50, 200),
        (Phase::Down, 90, 200),
        (Phase::Cruise, 100, 200),
        (Phase::Refill, 100, 200),
        (Phase::Up, 125, 225),
        (Phase::ProbeRtt, 100, 50),
    ];
    for (phase, pacing, cwnd) in table {
        assert_eq!(phase.pacing_gain(), Percent(pacing), "{phase:?}");
        assert_eq!(phase.cwnd_gain(), Percent(cwnd), "{phase:?}");
    }
    assert_eq!(gains::MIN_PIPE_DATAGRAMS * MDS, 4_800);
}

#[test]
fn cruise_leaves_headroom() {
    let mut sim = in_up(Link::new(50, 40, 60));
    sim.link.loss = 100_000;
    sim.until_phase(Phase::Down);
    sim.link.loss = 0;
    sim.until_phase(Phase::Cruise);
    while sim.phase() == Phase::Cruise {
        let end = sim.now + SECONDS;
        sim.step(end);
        let bbr = sim.bbr();
        if bbr.phase == Phase::Cruise {
            assert!(bbr.cwnd <= bbr.inflight_longterm * 86 / 100);
        }
    }
}
