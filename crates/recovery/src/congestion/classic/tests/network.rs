//! The controllers over a simulated path.

use super::super::super::sim::{Drops, Link, Sim};
use super::super::super::{Algorithm, build_with};
use super::*;

fn link(rtt_ms: u64, drops: Drops) -> Link {
    Link {
        rtt: Duration::from_millis(rtt_ms),
        per_packet: Duration::from_nanos(1),
        queue: 1_000_000,
        drops,
        ack_every: 2,
    }
}

fn sim(algorithm: Algorithm, link: Link, seed: u64) -> Sim {
    let controller = build_with(algorithm, SlowStart::HyStart, MDS);
    Sim::new(controller, link, seed)
}

fn secs(secs: u64) -> Instant {
    at_ms(1_000 * secs)
}

/// Mean rate over a stretch of seconds, as packets per round trip.
fn mean_window(algorithm: Algorithm, link: Link, from: u64, to: u64) -> u64 {
    let mut sim = sim(algorithm, link, 1);
    sim.run_until(secs(from), |_| {});
    let before = sim.delivered;
    sim.run_until(secs(to), |_| {});
    let rounds = Duration::from_secs(to - from).as_nanos() / link.rtt.as_nanos();
    (sim.delivered - before) / MDS / u64::try_from(rounds).unwrap()
}

#[test]
fn newreno_average_window_matches_the_model() {
    // √(3 / 2p): 12.2 packets at p = 1/100, 38.7 at 1/1000.
    for (period, expected) in [(100, 12), (1_000, 39)] {
        let link = link(50, Drops::Every(period));
        let mean = mean_window(Algorithm::NewReno, link, 20, 220);
        let (low, high) = (expected * 8 / 10, expected * 12 / 10);
        assert!((low..=high).contains(&mean), "{mean} for {expected}");
    }
}

#[test]
fn cubic_average_window_matches_the_model() {
    // 1.054 · RTT^¾ / p^¾ (RFC 9438 §5.1): at 200 ms and p = 1/10000 that is 315
    // packets, where Reno would have 122; at 10 ms CUBIC is Reno (§4.3).
    for (rtt_ms, expected, from, to) in [(200, 315, 100, 400), (10, 122, 20, 60)] {
        let link = link(rtt_ms, Drops::Every(10_000));
        let mean = mean_window(Algorithm::Cubic, link, from, to);
        let (low, high) = (expected * 8 / 10, expected * 12 / 10);
        assert!((low..=high).contains(&mean), "{mean} for {expected}");
    }
}

/// 30 % loss for two seconds at 10 ms, then none: the case in which another stack took a
/// window of two packets for an idle connection.
#[test]
fn growth_resumes_after_a_death_spiral() {
    let quiet = secs(2);
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Prague] {
        for seed in 1..=40 {
            let link = Link {
                per_packet: Duration::from_micros(10),
                queue: 250,
                ..link(10, Drops::PercentUntil(30, quiet))
            };
            let mut sim = sim(algorithm, link, seed);
            let mut last_at_floor = quiet;
            sim.run_until(secs(4), |sim| {
                if sim.controller.window() < sim.controller.min_window() + MDS {
                    last_at_floor = last_at_floor.max(sim.now);
                }
            });
            // A probe timer that had backed off may still have to run out; from
            // the first ACK on there are at most 20 round trips.
            let first_ack = quiet + sim.silence_after(quiet);
            let rounds = (last_at_floor - first_ack).as_millis() / 10;
            let what = format!("{algorithm}, seed {seed}");
            assert!(rounds <= 20, "{what}: {rounds} round trips at the floor");
            assert!(sim.controller.window() > 20 * MDS, "{what}");
        }
    }
}

#[test]
fn drop_tail_bottleneck_is_kept_busy() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Prague] {
        // 9.6 Mbit/s, 40 ms, a queue of one BDP.
        let link = Link {
            per_packet: Duration::from_millis(1),
            queue: 40,
            ..link(40, Drops::Overflow)
        };
        let mut sim = sim(algorithm, link, 1);
        sim.run_until(secs(30), |_| {});
        let possible = 30_000 * MDS;
        let (delivered, lost) = (sim.delivered, sim.lost);
        assert!(delivered * 100 > possible * 95, "{algorithm}: {delivered}");
        assert!(lost > 0 && lost * 100 < possible, "{algorithm}: {lost}");
    }
}

#[test]
fn hystart_avoids_the_overflow_of_standard_slow_start() {
    let lost = |slow_start: SlowStart| {
        let link = Link {
            per_packet: Duration::from_micros(100),
            // Deeper than a BDP's threefold: five rounds of conservative slow start
            // may still grow by 1.25⁵.
            queue: 6_000,
            ..link(50, Drops::Overflow)
        };
        let controller = build_with(Algorithm::Cubic, slow_start, MDS);
        let mut sim = Sim::new(controller, link, 1);
        sim.run_until(secs(6), |_| {});
        sim.lost
    };
    assert_eq!(lost(SlowStart::HyStart), 0);
    let overflow = lost(SlowStart::Standard);
    assert!(overflow > 1_000 * MDS, "{overflow}");
}

#[test]
fn same_path_and_seed_give_the_same_run() {
    let trace = || {
        let link = link(10, Drops::PercentUntil(5, secs(60)));
        let mut windows = Vec::new();
        sim(Algorithm::Cubic, link, 7).run_until(secs(2), |sim| {
            windows.push((sim.now, sim.controller.window()));
        });
        windows
    };
    assert_eq!(trace(), trace());
}
