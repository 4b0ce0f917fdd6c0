//! The same seed gives the same datagrams at the same times.

use std::time::Duration;

use clearway_quic::stream::Directionality;
use clearway_testing::{Setup, World, path};

/// Handshake and an upload under loss; what the wire saw.
fn digest(setup: &Setup, seed: u64) -> u64 {
    let link = path("rate=20M delay=10ms queue=50 loss=3% jitter=2ms", seed);
    let mut world = World::new(setup.clone(), link, seed);
    world.handshake();
    let client = world.client.connection();
    let id = client
        .open(Directionality::Unidirectional)
        .expect("a stream");
    client.write(id, &[5; 200_000]).expect("writes");
    client.finish(id).expect("finishes");
    world.run_for(Duration::from_secs(3));
    world.digest
}

/// TLS randomness (keys, tickets) is not seeded, so each run has other secrets:
/// sizes and times must not depend on them.
fn fresh() -> Setup {
    Setup::new()
}

#[test]
fn same_seed_sends_same_datagrams() {
    for seed in 0..8 {
        assert_eq!(
            digest(&fresh(), seed),
            digest(&fresh(), seed),
            "seed {seed}"
        );
    }
}

#[test]
fn different_seed_sends_different_datagrams() {
    assert_ne!(digest(&fresh(), 1), digest(&fresh(), 2));
}

#[test]
fn digest_is_same_on_one_thread_and_two() {
    let run = |seeds: Vec<u64>| {
        let digests = seeds.into_iter().map(|seed| (seed, digest(&fresh(), seed)));
        digests.collect::<Vec<_>>()
    };
    let sequential = run((0..12).collect());
    let threads: Vec<_> = (0..2)
        .map(|odd| std::thread::spawn(move || run((0..12).filter(|n| n % 2 == odd).collect())))
        .collect();
    let mut parallel: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().expect("runs"))
        .collect();
    parallel.sort_unstable();
    assert_eq!(sequential, parallel);
}
