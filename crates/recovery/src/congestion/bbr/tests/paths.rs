//! The test cases of the appendix for difficult paths.

use core::time::Duration;

use super::super::INFINITE;
use super::super::phase::Phase;
use super::sim::{App, Link, MBIT, MDS, MS, Sim};

const SECONDS: Duration = Duration::from_secs(1);

/// "Achieving Expected STARTUP Bandwidth on a Link With Aggregation"
#[test]
fn startup_finds_the_bandwidth_with_aggregated_acks() {
    let mut link = Link::new(50, 40, 200);
    link.ack_slot = Some(20 * MS);
    let mut sim = Sim::new(link, App::Bulk);
    let mut most = (0, 0);
    sim.until(10 * SECONDS, |sim| {
        let bbr = sim.bbr();
        most.0 = most.0.max(bbr.extra_acked());
        most.1 = most.1.max(bbr.cwnd);
        bbr.phase != Phase::Startup
    });
    let (extra, cwnd) = most;
    assert!(extra >= link.rate / 50 / 2, "{extra}");
    assert!(cwnd > 2 * link.bdp(), "{cwnd} of {}", link.bdp());
    let max_bw = sim.bbr().max_bw.get();
    assert!(
        max_bw >= link.rate * 90 / 100 && max_bw <= link.rate * 110 / 100,
        "{max_bw}"
    );
}

/// "Achieving Expected Cruise Bandwidth on a Link With Aggregation"
#[test]
fn cruise_keeps_sending_between_aggregated_acks() {
    let mut sim = Sim::new(Link::new(50, 40, 200), App::Bulk);
    sim.until_phase(Phase::Cruise);
    sim.link.ack_slot = Some(25 * MS);
    sim.run(SECONDS);
    let round = sim.bbr().rounds.count;
    let (extra, cwnd) = (sim.bbr().extra_acked(), sim.bbr().cwnd);
    assert!(round > 12, "{round}");
    assert!(extra >= sim.link.rate / 40 * 80 / 100, "{extra}");
    assert!(cwnd >= 2 * sim.link.bdp() + extra - MDS, "{cwnd}");
    let rate = sim.measure(5 * SECONDS);
    assert!(rate >= sim.link.rate * 95 / 100, "{rate}");
    let bw = sim.bbr().max_bw.get();
    assert!(bw <= sim.link.rate * 110 / 100, "{bw}");
}

/// "Correctly Managing Sub-Packet BDPs"
#[test]
fn link_with_bdp_below_one_packet_is_filled() {
    for (kbit, rtt) in [(1000, 2), (256, 20), (64, 100)] {
        let mut link = Link::new(1, rtt, 0);
        link.rate = kbit * MBIT / 1000;
        link.queue = 20 * MDS;
        assert!(link.bdp() < MDS);
        let mut sim = Sim::new(link, App::Bulk);
        sim.until_phase(Phase::Cruise);
        assert!(sim.bbr().cwnd >= 4 * MDS);
        let rate = sim.measure(60 * SECONDS);
        assert!(rate >= link.rate * 95 / 100, "{rate} of {}", link.rate);
        assert!(sim.bbr().cwnd >= 4 * MDS);
        let paced = sim.bbr().bw;
        let margin = link.rate / 10;
        assert!(
            paced.abs_diff(link.rate) <= margin,
            "{paced} of {}",
            link.rate
        );
    }
}

/// In a queue that was sized for the old rate the round trip becomes longer than the wait
/// between two probes, so the next probe begins before the last ACKs of the one before. The
/// estimate from before the fall must expire nevertheless: it is what keeps the queue full.
#[test]
fn fall_of_the_bandwidth_is_noticed_beside_a_round_trip_of_seconds() {
    for (before, after, packets) in [(50 * MBIT, MBIT, 400), (20 * MBIT, MBIT / 2, 200)] {
        let mut link = Link::new(1, 40, 0);
        link.rate = before;
        link.queue = packets * MDS;
        let mut sim = Sim::new(link, App::Bulk);
        sim.run(10 * SECONDS);
        assert!(sim.bbr().max_bw.get() > before * 9 / 10);
        sim.link.rate = after;
        sim.run(60 * SECONDS);
        let max_bw = sim.bbr().max_bw.get();
        assert!(max_bw < after * 3 / 2, "{max_bw} of {after}");
        let (sent, dropped) = (sim.packets_sent, sim.packets_dropped);
        sim.run(60 * SECONDS);
        let (sent, dropped) = (sim.packets_sent - sent, sim.packets_dropped - dropped);
        assert!(dropped * 10 < sent, "{dropped} of {sent}");
    }
}

/// "Handling Token Bucket Policers"
#[test]
fn rate_conforms_to_a_policer() {
    let mut link = Link::new(100, 40, 100);
    let token_rate = 10 * MBIT;
    link.policer = Some((token_rate, 100_000));
    let mut sim = Sim::new(link, App::Bulk);
    let mut adapted = false;
    sim.until(10 * SECONDS, |sim| {
        let bbr = sim.bbr();
        adapted |= bbr.bw_shortterm < INFINITE && bbr.inflight_shortterm < INFINITE;
        adapted && bbr.phase.is_probe_bw()
    });
    sim.run(10 * SECONDS);
    let (sent, dropped) = (sim.packets_sent, sim.packets_dropped);
    let rate = sim.measure(50 * SECONDS);
    let lost = (sim.packets_dropped - dropped) * 1000 / (sim.packets_sent - sent);
    assert!(rate >= token_rate * 85 / 100, "{rate} of {token_rate}");
    assert!(lost <= 50, "{lost} per mille lost");
}

/// The two fastest links carry most of the packets, so they are measured for fifty round
/// trips, and for longer if `CLEARWAY_LONG_RUNS` is set.
#[test]
fn links_from_64_kbit_to_10_gbit_are_filled() {
    let long_runs = std::env::var_os("CLEARWAY_LONG_RUNS").is_some();
    let fast = if long_runs { 500 } else { 50 };
    for (rate, rtt, measured_ms) in [
        (8_000_u64, 200, 60_000),
        (125_000, 30, 15_000),
        (12_500_000, 20, 2_500),
        (125_000_000, 1, fast),
        (1_250_000_000, 1, fast),
    ] {
        let mut link = Link::new(1, rtt, 0);
        link.rate = rate;
        link.queue = (2 * link.bdp()).max(20 * MDS);
        let mut sim = Sim::new(link, App::Bulk);
        sim.until(Duration::from_secs(60), |sim| sim.phase().is_probe_bw());
        let measured = sim.measure(Duration::from_millis(measured_ms));
        assert!(measured >= rate * 93 / 100, "{measured} of {rate}");
    }
}

#[test]
fn shallow_queue_of_the_interop_path_loses_at_most_one_percent() {
    let mut link = Link::new(10, 30, 0);
    link.queue = 25 * MDS;
    let mut sim = Sim::new(link, App::Bulk);
    sim.run(8 * SECONDS);
    let rate = sim.delivered() / 8;
    assert!(rate >= link.rate * 95 / 100, "{rate}");
    assert!(
        sim.packets_dropped * 100 <= sim.packets_sent,
        "{}",
        sim.packets_dropped
    );
}
