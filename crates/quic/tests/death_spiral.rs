//! Ten megabytes with 30 % loss towards the client for the first two seconds:
//! when the loss ends, the window grows again at once.
//!
//! `SPIRALS=300 cargo test --release --test death_spiral -- --nocapture`
//! shows the distribution.

mod common;

use std::time::Duration;

use clearway_links::{LinkConfig, Path};
use clearway_recovery::congestion::Algorithm;
use common::{Setup, World, download};

const TOTAL: usize = 10_000_000;

/// Seeds run; `SPIRALS` changes it.
const SEEDS: u64 = if cfg!(debug_assertions) { 10 } else { 100 };

/// When the two seconds begin, and which way they lose.
#[derive(Clone, Copy)]
enum Loss {
    /// With the first 1-RTT data, towards the client.
    Data,
    /// With the first datagram, both ways.
    Flow,
}

/// Virtual seconds from the first datagram on.
fn run(setup: &Setup, algorithm: Algorithm, loss: Loss, seed: u64) -> Duration {
    let clean: LinkConfig = "rate=100M delay=5ms queue=250".parse().expect("a link");
    let lossy: LinkConfig = match loss {
        Loss::Data => "rate=100M delay=5ms queue=250 loss=30%@0s-2s clock=explicit",
        Loss::Flow => "rate=100M delay=5ms queue=250 loss=30%@0s-2s clock=first-packet",
    }
    .parse()
    .expect("a link");
    let up = match loss {
        Loss::Data => clean,
        Loss::Flow => lossy.clone(),
    };
    let mut setup = setup.clone();
    setup.server.controller = algorithm;
    let mut world = World::new(setup, Path::new(up, lossy, seed), seed);
    match loss {
        Loss::Data => {
            world.handshake();
            let at = clearway_links::Time(world.now.as_nanos());
            world.path.start_windows_at(at);
        }
        Loss::Flow => {
            world.connect();
            let done = world.run_until(Duration::from_secs(20), |world| {
                world.client.connection().is_confirmed()
            });
            assert!(done, "seed {seed}: no handshake");
        }
    }
    assert!(
        download(&mut world, TOTAL, Duration::from_secs(30)),
        "seed {seed}: unfinished after 30 s, {:?}",
        world.server.connection().stats(world.now)
    );
    world.now - clearway_quic::Instant::ZERO
}

fn distribution(name: &str, algorithm: Algorithm, loss: Loss) {
    let seeds = std::env::var("SPIRALS").ok().and_then(|n| n.parse().ok());
    let setup = Setup::new();
    let mut times: Vec<_> = (0..seeds.unwrap_or(SEEDS))
        .map(|seed| run(&setup, algorithm, loss, seed))
        .collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{name}: {} seeds: fastest {:?}, median {:?}, 95 % {:?}, slowest {:?}",
        times.len(),
        at(0),
        at(50),
        at(95),
        at(100)
    );
    assert!(at(100) <= Duration::from_secs(5), "{name}: {:?}", at(100));
}

#[test]
fn cubic_loss_on_data() {
    distribution("cubic, data", Algorithm::Cubic, Loss::Data);
}

#[test]
fn cubic_loss_on_everything() {
    distribution("cubic, flow", Algorithm::Cubic, Loss::Flow);
}

#[test]
fn newreno_loss_on_data() {
    distribution("newreno, data", Algorithm::NewReno, Loss::Data);
}

#[test]
fn newreno_loss_on_everything() {
    distribution("newreno, flow", Algorithm::NewReno, Loss::Flow);
}
