//! BBR over modelled paths: goodput, random loss, and the death spiral.

mod common;

use std::time::Duration;

use clearway_links::{LinkConfig, Path};
use clearway_recovery::congestion::Algorithm;
use common::{Setup, World, download, path};

fn world(spec: &str, seed: u64) -> World {
    let mut setup = Setup::new();
    setup.server.controller = Algorithm::Bbr;
    setup.server.streams = setup.server.streams.clone();
    World::new(setup, path(spec, seed), seed)
}

/// Mbit/s of application data over the time from the first datagram on.
fn goodput(spec: &str, seed: u64, total: usize) -> f64 {
    let mut world = world(spec, seed);
    world.handshake();
    let begin = world.now;
    let trace = std::env::var("BBR_TRACE").is_ok();
    let done = if trace { traced(&mut world, total) } else { download(&mut world, total, Duration::from_secs(120)) };
    assert!(done, "{spec}: unfinished, {:?}", world.server.connection().stats(world.now));
    let seconds = (world.now - begin).as_secs_f64();
    let rate = total as f64 * 8.0 / seconds / 1e6;
    let stats = world.server.connection().stats(world.now);
    println!("{spec} seed {seed}: {rate:.2} Mbit/s, {} lost of {}, {} ptos", stats.counters.packets_lost, stats.counters.packets_sent, stats.counters.ptos);
    for (limit, time) in &stats.limits { if !time.is_zero() { println!("   {limit:?} {time:?}"); } }
    rate
}

#[derive(Debug)]
struct Obs(std::time::Duration);

fn traced(world: &mut World, total: usize) -> bool {
    let id = world.client.connection().open(clearway_quic::stream::Directionality::Bidirectional).unwrap();
    world.client.connection().write(id, b"go").unwrap();
    world.client.connection().finish(id).unwrap();
    let (mut written, mut read, mut accepted) = (0, 0, None);
    let mut last = None;
    world.run_until(Duration::from_secs(60), |world| {
        let now = world.now;
        let server = world.server.connection();
        accepted = accepted.or_else(|| server.accept(clearway_quic::stream::Directionality::Bidirectional));
        if let Some(id) = accepted {
            while written < total {
                let piece = vec![0; 65536.min(total - written)];
                match server.write(id, &piece) {
                    Ok(n) => written += n,
                    Err(_) => break,
                }
                if written == total { server.finish(id).unwrap(); }
            }
        }
        let s = server.stats(now);
        let m = s.metrics.model.unwrap_or_default();
        let key = (s.state, m.round_count, m.inflight_longterm, s.counters.packets_lost);
        if last != Some(key) {
            last = Some(key);
            println!("{:?} {:?} r{} cwnd {} fl {} pace {} max {} bw {} st {:?} lt {:?} ist {:?} ex {} min {:?} srtt {:?} lost {} sp {} lim {:?}", now, s.state, m.round_count, s.window, s.in_flight, s.pacing_rate, m.max_bw, m.bw, m.bw_shortterm, m.inflight_longterm, m.inflight_shortterm, m.extra_acked, m.min_rtt, s.smoothed_rtt, s.counters.packets_lost, s.counters.spurious_losses, s.limits.iter().filter(|x| !x.1.is_zero()).collect::<Vec<_>>());
        }
        let client = world.client.connection();
        loop {
            match client.read_chunk(id, usize::MAX) {
                Ok(Some(chunk)) => read += chunk.len(),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }) && read == total
}

#[test]
fn interop_path() {
    let rate = goodput("rate=10M delay=15ms queue=25", 1, 10_000_000);
    assert!(rate >= 9.43, "{rate}");
}


#[test]
fn random_loss() {
    let total = std::env::var("MB").ok().and_then(|x| x.parse::<usize>().ok()).unwrap_or(100) * 1_000_000;
    for (loss, share) in [("1%", 75.0), ("0.1%", 85.0), ("0.01%", 90.0), ("0%", 90.0)] {
        for seed in 1..4 {
        let rate = goodput(&format!("rate=100M delay=20ms queue=340 loss={loss}"), seed, total);
        println!("{loss} {rate} {share}");
        }
    }
}

#[test]
fn spiral() {
    let setup = Setup::new();
    for clock in ["explicit", "first-packet"] {
    let mut times = vec![];
    for seed in 0..std::env::var("SPIRALS").ok().and_then(|x| x.parse().ok()).unwrap_or(20) {
        let clean: LinkConfig = "rate=100M delay=5ms queue=250".parse().unwrap();
        let lossy: LinkConfig = format!("rate=100M delay=5ms queue=250 loss=30%@0s-2s clock={clock}").parse().unwrap();
        let mut setup = setup.clone();
        setup.server.controller = Algorithm::Bbr;
        let up = if clock == "explicit" { clean } else { lossy.clone() };
        let mut world = World::new(setup, Path::new(up, lossy, seed), seed);
        if clock == "explicit" {
            world.handshake();
            let at = clearway_links::Time(world.now.as_nanos());
            world.path.start_windows_at(at);
        } else {
            world.connect();
            assert!(world.run_until(Duration::from_secs(20), |world| world.client.connection().is_confirmed()));
        }
        let trace = std::env::var("BBR_TRACE").is_ok();
        let done = if trace { println!("seed {seed}"); traced(&mut world, 10_000_000) } else { download(&mut world, 10_000_000, Duration::from_secs(30)) };
        assert!(done, "seed {seed}");
        times.push((world.now - clearway_quic::Instant::ZERO, seed));
    }
    times.sort();
    println!("{clock} median {:?} slowest {:?}", times[times.len()/2], times[times.len()-1]);
    }
}
