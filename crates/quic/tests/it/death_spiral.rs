//! Ten megabytes with 30 % loss for the first two seconds: when the loss ends,
//! the window grows again at once, whatever the controller, the ACKs, the
//! jitter, and whenever the two seconds began.
//!
//! `CLEARWAY_SEEDS=100 cargo test --release -p clearway-quic --test it death_spiral:: -- --nocapture`
//! shows the distributions.

use std::time::Duration;

use crate::spiral::{DeathSpiral, LossTiming, SpiralResult, run_all, seeds};
use clearway_quic::connection::Config;
use clearway_recovery::congestion::Algorithm;

/// Seeds of each case.
const SEEDS: u64 = if cfg!(debug_assertions) { 2 } else { 20 };

/// Round trips at two packets, from the first sign of life after the loss on.
const PATIENCE: u64 = 20;

/// One row of the table: all that tells its runs apart is their seed.
fn rows() -> Vec<(String, DeathSpiral)> {
    let mut rows = Vec::new();
    // Every controller that there is, so a new one is in it by itself.
    for controller in Algorithm::ALL {
        for ack_every in [1, 2] {
            for jitter_us in [0, 200] {
                for (name, clock) in [("a", LossTiming::Data), ("b", LossTiming::Flow)] {
                    let mut server = Config::default();
                    server.controller = (*controller).into();
                    let spiral = DeathSpiral {
                        server,
                        ack_every,
                        jitter_us,
                        clock,
                        ticks: false,
                        limit: Duration::from_secs(30),
                        seed: 0,
                    };
                    let row = format!(
                        "{:8} ack-every-{ack_every} jitter {jitter_us:3} µs clock {name}",
                        controller.to_string()
                    );
                    rows.push((row, spiral));
                }
            }
        }
    }
    rows
}

#[test]
fn every_controller_recovers_from_death_spiral() {
    let (rows, seeds) = (rows(), seeds(SEEDS));
    let cases: Vec<DeathSpiral> = rows
        .iter()
        .flat_map(|(_, spiral)| {
            (0..seeds).map(|seed| DeathSpiral {
                seed,
                ..spiral.clone()
            })
        })
        .collect();
    let runs = run_all(&cases, DeathSpiral::run);
    let mut late = Vec::new();
    for ((row, _), runs) in rows.iter().zip(runs.chunks(seeds as usize)) {
        let mut times: Vec<Duration> = runs
            .iter()
            .map(|run| run.time.unwrap_or(Duration::MAX))
            .collect();
        times.sort_unstable();
        let floor = runs.iter().map(|run| run.rounds_at_floor).max();
        println!(
            "{row}: median {:5.2} s, slowest {:5.2} s, at the floor {:2} RTT",
            times[times.len() / 2].as_secs_f64(),
            times[times.len() - 1].as_secs_f64(),
            floor.unwrap_or(0)
        );
        late.extend(runs.iter().enumerate().filter_map(|(seed, run)| {
            let SpiralResult {
                time,
                rounds_at_floor,
            } = *run;
            let good = time.is_some_and(|time| time <= Duration::from_secs(5))
                && rounds_at_floor <= PATIENCE;
            (!good).then(|| format!("{row}, seed {seed}: {run:?}"))
        }));
    }
    assert!(late.is_empty(), "{}", late.join("\n"));
}

/// Threads change nothing: the same seed is the same run.
#[test]
fn same_seed_gives_same_run() {
    let (_, spiral) = &rows()[5];
    let cases = vec![spiral.clone(); 2];
    let runs = run_all(&cases, DeathSpiral::run);
    assert_eq!(runs[0], runs[1]);
}
