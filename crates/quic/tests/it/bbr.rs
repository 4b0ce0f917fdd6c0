//! BBR over modelled paths: goodput and random loss.
//!
//! `CLEARWAY_SECONDS=20 cargo test --release -p clearway-quic --test it bbr:: -- --nocapture` measures
//! the long fat path for longer and prints the table of docs/congestion.md.

use std::time::Duration;

use crate::spiral::{chosen, run_all};
use clearway_recovery::congestion::Algorithm;
use clearway_testing::Bulk;
use clearway_testing::{Setup, World, download, path};

/// Seconds that the long fat path is measured for; `CLEARWAY_SECONDS` changes it.
/// Two probes for bandwidth are in them.
const SECONDS: u64 = 5;

/// BBR towards the client.
fn setup() -> Setup {
    let mut setup = Setup::new();
    setup.server.controller = Algorithm::Bbr.into();
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

#[test]
fn interop_path_is_fully_used() {
    for seed in 0..6 {
        let rate = goodput(setup(), "rate=10M delay=15ms queue=25", seed, 10_000_000);
        assert!(rate >= 9.43, "{rate}");
    }
}

/// What IP and UDP leave of a link for datagrams of 1,452 bytes.
const PAYLOAD: f64 = 1452.0 / 1480.0;

/// A link at a loss rate, and the least share of it.
#[derive(Clone, Copy, Debug)]
struct Lossy {
    link: &'static str,
    mbit: f64,
    loss: &'static str,
    seed: u64,
    /// What the start takes, and what is measured then.
    warm_up: Duration,
    time: Duration,
    least: f64,
}

impl Lossy {
    /// Share of the link's capacity in percent that QUIC packets get through to
    /// the client, once the flow has found its rate.
    ///
    /// Counted where they arrive, and not as data that is read in order: what
    /// waits behind a loss when the warm-up ends would be read, and count, later.
    fn share(&self) -> f64 {
        let spec = format!("{} loss={}", self.link, self.loss);
        let mut world = World::new(wide(), path(&spec, self.seed), self.seed);
        world.handshake();
        let mut bulk = Bulk::begin(&mut world);
        bulk.run_for(&mut world, self.warm_up);
        let before = arrived(&mut world);
        bulk.run_for(&mut world, self.time);
        let bytes = arrived(&mut world) - before;
        let rate = bytes as f64 * 8e-6 / self.time.as_secs_f64();
        rate / self.mbit / PAYLOAD * 100.0
    }
}

/// UDP payload that the client has received. Without what the server sent twice
/// for no reason, as far as it knows: a packet called lost that was not.
fn arrived(world: &mut World) -> u64 {
    let now = world.now;
    let client = world.client.connection().stats(now).counters;
    let server = world.server.connection().stats(now);
    client.bytes_received - server.counters.spurious_losses * u64::from(server.mtu)
}

/// Measures all, prints them as a table, and holds them to what is required.
fn check(cases: &[Lossy]) {
    let shares = run_all(cases, Lossy::share);
    println!("| link | loss | seed | share | required |");
    println!("|---|---|---|---|---|");
    let mut off = Vec::new();
    for (case, share) in cases.iter().zip(shares) {
        let Lossy { link, loss, .. } = case;
        let (seed, least) = (case.seed, case.least);
        println!("| {link} | {loss} | {seed} | {share:.1} % | {least} % |");
        if share < least {
            off.push(format!("{case:?}: {share:.1} %"));
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn bbr_keeps_rate_under_random_loss() {
    let mut cases = Vec::new();
    for (loss, least) in [("0%", 95.0), ("0.01%", 90.0), ("0.1%", 85.0)] {
        cases.extend([1, 2].map(|seed| Lossy {
            link: "rate=100M delay=20ms queue=340",
            mbit: 100.0,
            loss,
            seed,
            warm_up: Duration::from_secs(1),
            time: Duration::from_secs(5),
            least,
        }));
    }
    check(&cases);
}

#[test]
fn bbr_keeps_rate_under_random_loss_on_long_fat_path() {
    let rates = [
        ("0.001%", 90.0),
        ("0.01%", 90.0),
        ("0.1%", 85.0),
        ("1%", 75.0),
    ];
    check(&rates.map(|(loss, least)| Lossy {
        link: "rate=1G delay=50ms queue=8500",
        mbit: 1000.0,
        loss,
        seed: 1,
        warm_up: Duration::from_secs(2),
        time: Duration::from_secs(chosen("CLEARWAY_SECONDS", SECONDS)),
        least,
    }));
}
