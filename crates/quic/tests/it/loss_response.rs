//! How the controllers answer random loss, against the formulas of RFC 9438 §5,
//! through the whole transport; and the interop path.
//!
//! `CLEARWAY_PACKETS=4000000 cargo test --release -p clearway-quic --test it loss_response:: -- --nocapture`
//! measures the rare losses too and prints the table of docs/congestion.md.

use std::time::Duration;

use crate::spiral::{chosen, run_all};
use clearway_links::{LinkConfig, Path};
use clearway_recovery::congestion::Algorithm;
use clearway_testing::Bulk;
use clearway_testing::{Setup, World, path};

/// Congestion events that the start is given to be over.
const WARM_UP: u64 = 20;

/// Packets that a point of the grid may take; `CLEARWAY_PACKETS` changes it.
const PACKETS: u64 = 70_000;

/// Events of a point: fewer than the least say nothing, more than the most no more.
const LEAST_EVENTS: u64 = 200;
const MOST_EVENTS: u64 = 400;

/// One point: a controller, a path, a loss rate in packets per million.
#[derive(Clone, Copy, Debug)]
struct Point {
    algorithm: Algorithm,
    rtt_ms: u64,
    loss_ppm: u64,
    /// Congestion events measured.
    events: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Mean packets per round trip.
    window: f64,
    /// Packets lost per packet sent.
    loss: f64,
    events: u64,
}

impl Point {
    fn rtt(&self) -> f64 {
        self.rtt_ms as f64 / 1e3
    }

    /// NewReno: √(3/2p), which is AIMD(1, β)'s √((1 + β) / 2p(1 − β)) at β = 0.5.
    /// CUBIC: C^¼ ((3 + β) / 4(1 − β))^¼ · (RTT/p)^¾ at C = 0.4 and β = 0.7
    /// (§5.1), and no less than Reno's (§4.3), whose α is chosen so that both
    /// have the same mean.
    fn expected(&self, p: f64) -> f64 {
        let reno = (1.5 / p).sqrt();
        match self.algorithm {
            Algorithm::Cubic => reno.max(1.054 * (self.rtt() / p).powf(0.75)),
            _ => reno,
        }
    }

    fn measure(&self) -> Measured {
        let mut setup = Setup::new();
        setup.server.controller = self.algorithm.into();
        setup.server.mtu_discovery = false;
        // The formulas are those of an ACK for every second packet.
        setup.server.ack_frequency = false;
        let delay = self.rtt_ms * 500;
        let up: LinkConfig = format!("delay={delay}us").parse().expect("a link");
        let loss = self.loss_ppm as f64 / 1e4;
        let down: LinkConfig = format!("delay={delay}us loss={loss}%")
            .parse()
            .expect("a link");
        let mut world = World::new(setup, Path::new(up, down, 1), 1);
        world.handshake();
        let mut bulk = Bulk::begin(&mut world);
        let ever = Duration::from_secs(1_000_000);
        let mut until = |world: &mut World, events: u64| {
            let done = bulk.run_until(world, ever, |world, _| {
                let now = world.now;
                let metrics = world.server.connection().stats(now).metrics;
                metrics.congestion_events >= events
            });
            assert!(done, "{self:?}");
            let now = world.now;
            let stats = world.server.connection().stats(now);
            (now, stats.counters, stats.metrics.congestion_events)
        };
        let (begin, first, before) = until(&mut world, WARM_UP);
        let (end, last, after) = until(&mut world, WARM_UP + self.events);
        let lost = last.packets_lost - first.packets_lost;
        let sent = last.packets_sent - first.packets_sent;
        let rounds = (end - begin).as_secs_f64() / self.rtt();
        Measured {
            window: (sent - lost) as f64 / rounds,
            loss: lost as f64 / sent as f64,
            events: after - before,
        }
    }
}

/// Measures all, prints them as a table, and holds them to ±30 %.
fn check(points: &[Point]) {
    let measured = run_all(points, Point::measure);
    println!("| controller | RTT | loss | events | packets per round trip | formula | ratio |");
    println!("|---|---|---|---|---|---|---|");
    let mut off = Vec::new();
    for (point, measured) in points.iter().zip(&measured) {
        let expected = point.expected(point.loss_ppm as f64 / 1e6);
        let ratio = measured.window / expected;
        println!(
            "| {} | {} ms | {:.2} % | {} | {:.1} | {expected:.1} | {ratio:.2} |",
            point.algorithm,
            point.rtt_ms,
            point.loss_ppm as f64 / 1e4,
            measured.events,
            measured.window,
        );
        let seen = measured.loss * 1e6 / point.loss_ppm as f64;
        assert!((0.8..1.2).contains(&seen), "{point:?}: {measured:?}");
        if !(0.7..=1.3).contains(&ratio) {
            off.push(format!("{point:?}: {ratio:.2}"));
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// The points at which `packets` bring events enough.
fn grid(packets: u64) -> Vec<Point> {
    let mut points = Vec::new();
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        for rtt_ms in [20, 50, 100, 200] {
            for loss_ppm in [100, 300, 1_000, 3_000, 10_000, 20_000] {
                let events = (packets * loss_ppm / 1_000_000).min(MOST_EVENTS);
                if events >= LEAST_EVENTS {
                    points.push(Point {
                        algorithm,
                        rtt_ms,
                        loss_ppm,
                        events,
                    });
                }
            }
        }
    }
    points
}

#[test]
fn response_to_loss_follows_formula() {
    let points = grid(chosen("CLEARWAY_PACKETS", PACKETS));
    assert!(!points.is_empty(), "too few packets for any point");
    check(&points);
}

/// The interop runner's path: 10 Mbit/s, 30 ms, 25 packets of queue; ten
/// megabytes, from the first datagram to the last byte.
#[test]
fn interop_path_is_fully_used() {
    let mut world = World::new(Setup::new(), path("rate=10M delay=15ms queue=25", 1), 1);
    world.handshake();
    let done = clearway_testing::download(&mut world, 10_000_000, Duration::from_secs(20));
    assert!(done);
    let seconds = (world.now - clearway_quic::Instant::ZERO).as_secs_f64();
    let megabits = 80.0 / seconds;
    println!("cubic: {megabits:.2} Mbit/s");
    assert!(megabits >= 9.43, "{megabits:.2} Mbit/s of 10");
}
