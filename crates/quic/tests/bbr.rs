//! BBR over modelled paths: goodput, random loss, and the death spiral.
//!
//! `SPIRALS=300 cargo test --release --test bbr -- --nocapture` shows the
//! distributions; `--ignored` adds the paths that take minutes.

mod common;

use std::time::Duration;

use clearway_links::{LinkConfig, Path};
use clearway_recovery::congestion::Algorithm;
use common::{Setup, World, download, path};

/// Seeds of the death spiral; `SPIRALS` changes it.
const SEEDS: u64 = if cfg!(debug_assertions) { 5 } else { 100 };

/// BBR towards the client.
fn setup() -> Setup {
    let mut setup = Setup::new();
    setup.server.controller = Algorithm::Bbr;
    setup
}

/// The same with windows that are never the limit.
fn wide() -> Setup {
    let mut setup = setup();
    setup.server.streams.send_budget = 256 << 20;
    setup.client.streams.stream_window = 256 << 20;
    setup.client.streams.connection_window = 256 << 20;
    setup.client.streams.receive_budget = 256 << 20;
    setup
}

/// Mbit/s of application data, from the request on.
fn goodput(setup: Setup, spec: &str, seed: u64, total: usize) -> f64 {
    let mut world = World::new(setup, path(spec, seed), seed);
    world.handshake();
    let begin = world.now;
    let done = download(&mut world, total, Duration::from_secs(300));
    let stats = world.server.connection().stats(world.now);
    assert!(done, "{spec}, seed {seed}: {stats:?}");
    assert_eq!(stats.controller, "bbr");
    let rate = total as f64 * 8e-6 / (world.now - begin).as_secs_f64();
    println!(
        "{spec} seed={seed}: {rate:.2} Mbit/s, {} of {} packets lost",
        stats.counters.packets_lost, stats.counters.packets_sent
    );
    rate
}

/// The same once the flow has found its rate: two transfers that differ in
/// length have the beginning in common.
fn steady_goodput(spec: &str, seed: u64, warm_up: usize, total: usize) -> f64 {
    let time = |bytes: usize| bytes as f64 * 8e-6 / goodput(wide(), spec, seed, bytes);
    (total - warm_up) as f64 * 8e-6 / (time(total) - time(warm_up))
}

#[test]
fn the_interop_path_is_filled() {
    for seed in 0..6 {
        let rate = goodput(setup(), "rate=10M delay=15ms queue=25", seed, 10_000_000);
        assert!(rate >= 9.43, "{rate}");
    }
}

/// What datagrams of 1,452 bytes leave for application data, of all that a link
/// carries: 28 bytes of IP and UDP, and about 28 of QUIC.
const PAYLOAD: f64 = 1424.0 / 1480.0;

/// Mean share of a link's capacity for data in percent, at a loss rate.
fn share(link: &str, mbit: f64, loss: &str, seeds: u64, warm_up: usize, total: usize) -> f64 {
    let spec = format!("{link} loss={loss}");
    let sum: f64 = (1..=seeds)
        .map(|seed| steady_goodput(&spec, seed, warm_up, total))
        .sum();
    let share = sum / seeds as f64 / mbit / PAYLOAD * 100.0;
    println!("{spec}: {share:.1} % of the link");
    share
}

#[test]
fn random_loss_costs_little() {
    let link = "rate=100M delay=20ms queue=340";
    for (loss, least) in [("0%", 95.0), ("0.01%", 90.0), ("0.1%", 85.0)] {
        let share = share(link, 100.0, loss, 2, 10_000_000, 60_000_000);
        assert!(share >= least, "{share:.1} % at {loss}");
    }
}

#[test]
#[ignore = "a gigabit for twenty seconds, several times"]
fn random_loss_on_a_long_fat_path_costs_little() {
    let link = "rate=1G delay=50ms queue=8500";
    let shares = [
        ("0.001%", 90.0),
        ("0.01%", 90.0),
        ("0.1%", 85.0),
        ("1%", 75.0),
    ]
    .map(|(loss, least)| {
        (
            share(link, 1000.0, loss, 1, 200_000_000, 2_500_000_000),
            least,
        )
    });
    assert!(
        shares.iter().all(|(share, least)| share >= least),
        "{shares:?}"
    );
}

/// When the two seconds of 30 % loss begin, and which way they lose.
#[derive(Clone, Copy)]
enum Loss {
    /// With the first 1-RTT data, towards the client.
    Data,
    /// With the first datagram, both ways.
    Flow,
}

/// Virtual seconds from the first datagram on.
fn spiral(loss: Loss, seed: u64) -> Duration {
    let link = |extra: &str| -> LinkConfig {
        format!("rate=100M delay=5ms queue=250 {extra}")
            .parse()
            .expect("a link")
    };
    let path = match loss {
        Loss::Data => Path::new(link(""), link("loss=30%@0s-2s clock=explicit"), seed),
        Loss::Flow => Path::symmetric(&link("loss=30%@0s-2s clock=first-packet"), seed),
    };
    let mut world = World::new(setup(), path, seed);
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
        download(&mut world, 10_000_000, Duration::from_secs(30)),
        "seed {seed}: unfinished after 30 s, {:?}",
        world.server.connection().stats(world.now)
    );
    world.now - clearway_quic::Instant::ZERO
}

fn no_spiral(name: &str, loss: Loss) {
    let seeds = std::env::var("SPIRALS").ok().and_then(|n| n.parse().ok());
    let mut times: Vec<_> = (0..seeds.unwrap_or(SEEDS))
        .map(|seed| spiral(loss, seed))
        .collect();
    times.sort_unstable();
    let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{name}: {} seeds, median {median:?}, slowest {slowest:?}",
        times.len()
    );
    assert!(slowest <= Duration::from_secs(5), "{name}: {slowest:?}");
}

#[test]
fn no_death_spiral_after_loss_on_data() {
    no_spiral("bbr, data", Loss::Data);
}

#[test]
fn no_death_spiral_after_loss_on_everything() {
    no_spiral("bbr, flow", Loss::Flow);
}
