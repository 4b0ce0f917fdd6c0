//! Formulas and rules one by one, on a controller that is told single events.

use core::time::Duration;

use super::super::INFINITE;
use super::super::gains::{LOSS_THRESHOLD, Percent};
use super::super::phase::Phase;
use super::driver::Driver;
use super::sim::{App, Link, MBIT, MDS, MS, Sim};
use crate::controller::{Congestion, CongestionCause, Controller, LostPacket, Spurious};
use crate::limit::Limit;
use crate::time::nanos;

const SECONDS: Duration = Duration::from_secs(1);

#[test]
fn first_pacing_rate_is_initial_window_over_rtt() {
    let mut driver = Driver::new();
    assert_eq!(
        driver.bbr.pacing_rate,
        12_000 * 1000 * 277 / 100,
        "a millisecond"
    );
    driver.bbr.on_mds(1_452);
    assert_eq!(driver.bbr.cwnd, 14_520);
    driver.bbr.on_mds(MDS);
    driver.ack(1, MDS, 0);
    assert_eq!(driver.bbr.pacing_rate, 12_000 * 10 * 277 / 100, "100 ms");
}

#[test]
fn initial_rtt_is_not_used_as_min_rtt() {
    let driver = Driver::new();
    assert_eq!(driver.bbr.min_rtt(), None);
    assert_eq!(driver.bbr.bdp_multiple(1_000_000, Percent(200)), 12_000);
}

#[test]
fn pacing_rate_only_rises_in_startup() {
    let mut driver = Driver::new();
    driver.ack(100_000, 10 * MDS, 0);
    let rate = driver.bbr.pacing_rate;
    driver.ack(10_000, MDS, 0);
    assert!(driver.bbr.pacing_rate >= rate);
    driver.ack(1_000_000, MDS, 0);
    assert_eq!(
        driver.bbr.pacing_rate,
        2_770_000 * 99 / 100,
        "with the margin of 1 %"
    );
}

#[test]
fn send_quantum_is_a_millisecond_of_rate_from_two_packets_to_64_kib() {
    let mut driver = Driver::new();
    for (rate, quantum) in [
        (1_000, 2 * MDS),
        (10_000_000, 10_000),
        (1_000_000_000, 65_536),
    ] {
        driver.bbr.pacing_rate = rate;
        assert_eq!(driver.bbr.send_quantum(), quantum);
    }
}

#[test]
fn quantization_budget_is_at_least_a_quantum_and_four_packets_with_two_more_in_up() {
    let mut driver = Driver::cruising();
    driver.bbr.pacing_rate = 20_000_000;
    assert_eq!(driver.bbr.quantization_budget(100_000), 100_000);
    assert_eq!(driver.bbr.quantization_budget(10_000), 20_000);
    driver.bbr.pacing_rate = 1_000;
    assert_eq!(driver.bbr.quantization_budget(10), 4 * MDS);
    driver.bbr.phase = Phase::Up;
    assert_eq!(driver.bbr.quantization_budget(100_000), 100_000 + 2 * MDS);
}

#[test]
fn max_inflight_is_two_bdp_plus_extra_acked() {
    let driver = Driver::cruising();
    let extra = driver.bbr.extra_acked();
    assert!(extra > 0);
    assert_eq!(driver.bbr.max_inflight(), 200_000 + extra);
}

#[test]
fn headroom_is_fifteen_percent_or_one_packet_above_min_pipe_cwnd() {
    let mut driver = Driver::cruising();
    for (bound, with_headroom) in [
        (INFINITE, INFINITE),
        (100_000, 85_000),
        (7_000, 5_800),
        (5_000, 4_800),
    ] {
        driver.bbr.inflight_longterm = bound;
        assert_eq!(driver.bbr.inflight_with_headroom(), with_headroom);
    }
}

#[test]
fn application_limited_samples_only_raise_max_bw() {
    let mut driver = Driver::cruising();
    driver.bbr.on_limit(Limit::Application, driver.now);
    driver.ack_at(2_000_000, MDS, 100_000, true);
    assert_eq!(driver.bbr.max_bw.get(), 2_000_000);
    driver.bbr.max_bw.advance();
    driver.ack_at(1_500_000, MDS, 100_000, true);
    driver.bbr.max_bw.advance();
    assert_eq!(
        driver.bbr.max_bw.get(),
        2_000_000,
        "no sample, no new cycle"
    );
}

/// In a queue of seconds, ProbeRTT after ProbeRTT marks all samples.
#[test]
fn samples_limited_by_probe_rtt_count_in_max_bw() {
    let mut driver = Driver::cruising();
    for _ in 0..3 {
        driver.ack_at(400_000, MDS, 100_000, true);
    }
    driver.bbr.max_bw.advance();
    driver.ack_at(400_000, MDS, 100_000, true);
    driver.bbr.max_bw.advance();
    assert_eq!(driver.bbr.max_bw.get(), 400_000);
}

#[test]
fn beta_applies_once_per_round_with_loss() {
    let mut driver = Driver::cruising();
    let cwnd = driver.bbr.cwnd;
    driver.lose();
    driver.lose();
    assert_eq!(driver.bbr.bw_shortterm, INFINITE, "at the end of the round");
    // The latest round still counts: a bad sample now cuts by Beta at most.
    driver.ack(100_000, MDS, 50_000);
    assert_eq!(
        driver.bbr.bw_shortterm, 1_000_000,
        "the rate of the last round"
    );
    driver.lose();
    driver.ack(100_000, MDS, 50_000);
    assert_eq!(driver.bbr.bw_shortterm, 700_000);
    assert_eq!(driver.bbr.bw, 700_000);
    driver.ack(100_000, MDS, 50_000);
    assert_eq!(driver.bbr.bw_shortterm, 700_000, "a round without loss");
    driver.lose();
    driver.ack(600_000, MDS, 50_000);
    assert_eq!(
        driver.bbr.bw_shortterm, 600_000,
        "the delivered rate is the floor"
    );
    assert!(driver.bbr.inflight_shortterm < cwnd);
    assert_eq!(
        driver.bbr.cwnd,
        driver.bbr.inflight_shortterm.min(driver.bbr.cwnd)
    );
}

#[test]
fn loss_while_probing_leaves_the_short_term_model_unset() {
    for phase in [Phase::Refill, Phase::Up, Phase::Startup] {
        let mut driver = Driver::cruising();
        driver.bbr.phase = phase;
        driver.lose();
        driver.ack(100_000, MDS, 50_000);
        assert_eq!(driver.bbr.bw_shortterm, INFINITE, "{phase:?}");
    }
}

#[test]
fn inflight_at_loss_is_where_the_threshold_was_crossed() {
    let mut driver = Driver::probing();
    // 150,000 in flight tolerate 3,000 lost bytes: the third packet is too much.
    // Before it 148,800 were in flight and 2,400 lost: (0.02·148,800 − 2,400) /
    // 0.98 = 587 bytes of it still fit.
    driver.bbr.on_lost(&driver.lost_packet(150_000, 2 * MDS));
    assert_eq!(driver.bbr.inflight_longterm, 200_000);
    driver.bbr.on_lost(&driver.lost_packet(150_000, 3 * MDS));
    assert_eq!(driver.bbr.inflight_longterm, 148_800 + 587);
    assert_eq!(driver.bbr.phase, Phase::Down);
    assert!(driver.bbr.probe.too_high && !driver.bbr.probe.is_sample);
    // The threshold was crossed long before. But a probe has only one result.
    driver.bbr.on_lost(&driver.lost_packet(120_000, 40 * MDS));
    assert_eq!(driver.bbr.inflight_longterm, 148_800 + 587);
}

#[test]
fn inflight_longterm_is_at_least_beta_times_the_bdp() {
    let mut driver = Driver::probing();
    driver.bbr.on_lost(&driver.lost_packet(10 * MDS, 10 * MDS));
    assert_eq!(driver.bbr.inflight_longterm, 70_000);
}

#[test]
fn loss_of_app_limited_packet_keeps_inflight_longterm() {
    let mut driver = Driver::probing();
    let lost = LostPacket {
        app_limited: true,
        ..driver.lost_packet(100_000, 10 * MDS)
    };
    driver.bbr.on_lost(&lost);
    assert_eq!(driver.bbr.inflight_longterm, 200_000);
    assert_eq!(driver.bbr.phase, Phase::Down);
}

#[test]
fn exactly_two_percent_loss_is_tolerated() {
    assert_eq!(LOSS_THRESHOLD.of(100_000), 2_000);
    let mut driver = Driver::probing();
    driver.bbr.on_lost(&driver.lost_packet(60_000, MDS));
    assert_eq!(driver.bbr.phase, Phase::Up, "exactly 2 % is tolerated");
    driver.bbr.on_lost(&driver.lost_packet(59_999, MDS));
    assert_eq!(driver.bbr.phase, Phase::Down);
}

#[test]
fn internals_show_the_model() {
    let driver = Driver::cruising();
    let mut shown = Vec::new();
    driver
        .bbr
        .internals(driver.now, &mut |name, value| shown.push((name, value)));
    for (name, value) in [
        ("max_bw", driver.bbr.max_bw.get()),
        ("round_count", driver.bbr.rounds.count),
        ("probe_wait", nanos(driver.bbr.probe.wait)),
    ] {
        assert!(shown.contains(&(name, value)), "{name}: {shown:?}");
    }
    assert!(shown.iter().all(|&(_, value)| value != INFINITE));
}

#[test]
fn persistent_congestion_reduces_the_window_to_four_packets_and_keeps_the_model() {
    let mut driver = Driver::cruising();
    let cwnd = driver.bbr.cwnd;
    driver.lose();
    let event = Congestion {
        persistent: true,
        ..driver.congestion(CongestionCause::Loss)
    };
    driver.bbr.on_congestion(&event);
    assert_eq!(driver.bbr.cwnd, 4 * MDS);
    assert_eq!(driver.bbr.max_bw.get(), 1_000_000);
    assert_eq!(driver.bbr.metrics.persistent_events, 1);
    // The ACK that proved it does not end recovery. An ACK of a packet sent since restores
    // the window as far as the short-term model allows.
    driver.ack_at(1_000_000, MDS, 0, false);
    assert_eq!(driver.bbr.cwnd, 5 * MDS);
    driver.ack(1_000_000, MDS, 0);
    assert_eq!(
        driver.bbr.cwnd,
        driver.bbr.inflight_shortterm.min(cwnd + MDS)
    );
    assert!(driver.bbr.cwnd >= cwnd * 70 / 100);
}

#[test]
fn rate_recovers_within_rounds_after_an_outage() {
    let mut sim = Sim::new(Link::new(20, 40, 100), App::Bulk);
    sim.until_phase(Phase::Cruise);
    sim.run(SECONDS / 2);
    sim.link.blackhole = true;
    sim.run(3 * SECONDS);
    sim.link.blackhole = false;
    sim.until(5 * SECONDS, |sim| sim.bbr().metrics.persistent_events > 0);
    assert!(sim.bbr().max_bw.get() >= sim.link.rate * 95 / 100);
    sim.run(3 * sim.link.rtt);
    let rate = sim.measure(2 * SECONDS);
    assert!(rate >= sim.link.rate * 95 / 100, "{rate}");
}

#[test]
fn undo_restores_the_state_of_its_event_only() {
    let mut driver = Driver::probing();
    let event = driver.next_index + 100;
    driver.bbr.on_lost(&driver.lost_packet(60_000, 5 * MDS));
    assert_eq!(driver.bbr.phase, Phase::Down);
    let now = driver.now;
    driver.bbr.on_spurious(&Spurious {
        now,
        event: event + 1,
    });
    assert_eq!(driver.bbr.phase, Phase::Down);
    driver.bbr.on_spurious(&Spurious { now, event });
    assert_eq!(driver.bbr.phase, Phase::Refill);
    assert_eq!(driver.bbr.inflight_longterm, 200_000);
    driver.bbr.on_spurious(&Spurious { now, event });
    assert_eq!(driver.bbr.metrics.spurious_events, 1, "once");
}

#[test]
fn adjacent_losses_are_one_range() {
    let mut driver = Driver::new();
    for index in [5, 6, 7, 9, 10, 20] {
        let lost = LostPacket {
            index,
            ..driver.lost_packet(100_000, MDS)
        };
        driver.bbr.on_lost(&lost);
    }
    assert_eq!(driver.bbr.loss_round.take_tally().ranges, 3);
}

#[test]
fn ack_without_rate_sample_does_not_count_towards_full_pipe() {
    let mut driver = Driver::new();
    driver.ack(1_000_000, MDS, 0);
    for _ in 0..10 {
        driver.ack(0, MDS, 0);
    }
    assert_eq!(driver.bbr.full_pipe.count, 0);
    for count in 1..=3 {
        driver.ack(1_240_000, MDS, 0);
        assert_eq!(driver.bbr.full_pipe.count, count);
    }
    assert!(driver.bbr.full_pipe.reached);
}

#[test]
fn minimum_window_follows_the_datagram_size() {
    let mut driver = Driver::new();
    driver.ack(1_000, MDS, 0);
    driver.bbr.full_pipe.reached = true;
    driver.ack(1_000, MDS, 0);
    assert_eq!(driver.bbr.window(), 4 * MDS);
    driver.bbr.on_mds(9_000);
    assert_eq!(
        (driver.bbr.window(), driver.bbr.min_window()),
        (36_000, 36_000)
    );
}

#[test]
fn metrics_include_the_model() {
    let driver = Driver::cruising();
    let model = driver.bbr.metrics().model.unwrap();
    assert_eq!((model.max_bw, model.bw), (1_000_000, 1_000_000));
    assert_eq!(model.min_rtt, Some(100 * MS));
    assert_eq!(model.bw_shortterm, None);
    assert_eq!(model.inflight_longterm, None);
    assert_eq!(driver.bbr.state(), crate::controller::State::ProbeBwCruise);
}

#[test]
fn rate_samples_exclude_the_wait_in_the_pacer() {
    // A flow that is paced at a tenth of the link: samples show a tenth, not
    // less, and the probe finds the rest.
    let mut sim = Sim::new(Link::new(10, 40, 100), App::mbit(1));
    sim.run(2 * SECONDS);
    let sample = sim.path().delivery_rate().unwrap().delivery_rate;
    assert!(sample >= MBIT * 90 / 100, "{sample}");
    sim.set_app(App::Bulk);
    sim.run(2 * SECONDS);
    assert!(sim.bbr().max_bw.get() >= 9 * MBIT);
}
