//! Careful Resume on whole controllers (RFC 9959).

use super::super::super::sim::{Drops, Link, Sim};
use super::super::super::testing::acked as acked_over_10_ms;
use super::super::super::{Algorithm, build};
use super::*;
use crate::controller::SavedPath;

const RTT: Duration = Duration::from_millis(100);
/// 12 Mbit/s over 100 ms: 125 packets in a round trip.
const SAVED: SavedPath = SavedPath {
    capacity: 125 * MDS,
    rtt: RTT,
};
const RESUMING: [Algorithm; 3] = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Prague];

fn acked(largest: SendIndex, packets: u64, in_flight: u64) -> Ack<'static> {
    Ack {
        smoothed_rtt: RTT,
        min_rtt: RTT,
        ..acked_over_10_ms(largest, packets, in_flight)
    }
}

/// A flow over a link on which a packet takes this long, with a queue of a round trip of 12 Mbit/s.
fn sim(algorithm: Algorithm, per_packet: Duration, saved: Option<&SavedPath>) -> Sim {
    let link = Link {
        rtt: RTT,
        per_packet,
        queue: 125,
        drops: Drops::Overflow,
        ack_every: 2,
    };
    let mut controller = build(algorithm, MDS);
    if let Some(saved) = saved {
        controller.resume(saved);
    }
    Sim::new(controller, link, 1)
}

/// NewReno after the jump from 20 packets: 8 in flight up to index 17, and 62 allowed.
fn jumped() -> Classic<NewReno> {
    let mut reno = newreno();
    reno.resume(&SAVED);
    reno.on_limit(Limit::Congestion, at_ms(0));
    send(&mut reno, 0..10, 0);
    send(&mut reno, 10..18, 0);
    reno.on_ack(&acked(9, 10, 8));
    assert_eq!(reno.window(), SAVED.capacity / 2);
    assert_eq!(reno.pacing_rate(), Some(SAVED.capacity / 2 * 10));
    assert_eq!(reno.state(), State::SlowStart);
    reno
}

/// After the jump was sent, up to index 71.
fn sent_jump() -> Classic<NewReno> {
    let mut reno = jumped();
    send(&mut reno, 18..72, 8);
    assert_eq!(reno.window(), 62 * MDS);
    assert_eq!(reno.pacing_rate(), None);
    reno
}

#[test]
fn resumed_flow_delivers_more_in_its_first_second() {
    for algorithm in RESUMING {
        let first_second = |saved| {
            let mut sim = sim(algorithm, Duration::from_micros(800), saved);
            sim.run_until(at_ms(1_000), |_| {});
            sim.delivered / MDS
        };
        let resumed = first_second(Some(&SAVED));
        let fresh = first_second(None);
        assert!(resumed > fresh + 125, "{algorithm}: {resumed}, {fresh}");
    }
}

/// A tenth of the rate, and a queue that holds less than the jump.
#[test]
fn failed_jump_recovers_and_fills_the_path() {
    for algorithm in RESUMING {
        let mut sim = sim(algorithm, Duration::from_millis(8), Some(&SAVED));
        let mut least = u64::MAX;
        sim.run_until(at_ms(20_000), |sim| {
            least = least.min(sim.controller.window());
        });
        let before = sim.delivered;
        sim.run_until(at_ms(40_000), |_| {});
        let share = (sim.delivered - before) * 100 / (2_500 * MDS);
        assert!(share >= 95, "{algorithm}: {share} % of the link");
        assert!(least >= sim.controller.min_window(), "{algorithm}");
    }
}

#[test]
fn acknowledged_jump_goes_on_in_slow_start() {
    let mut reno = sent_jump();
    reno.on_ack(&acked(17, 8, 54));
    assert_eq!(reno.window(), 70 * MDS, "growth as in slow start");
    reno.on_ack(&acked(71, 54, 0));
    assert_eq!(reno.state(), State::SlowStart);
    assert_eq!(reno.metrics().ssthresh, None);
    assert_eq!(reno.metrics().congestion_events, 0);
}

#[test]
fn retreat_halves_what_arrived_and_ends_with_ssthresh_of_what_was_carried() {
    let mut reno = sent_jump();
    reno.on_ack(&acked(29, 20, 42));
    reno.on_congestion(&lost(30..31, 80));
    // PipeSize is 8 packets in flight at the jump, and 20 acknowledged.
    assert_eq!(reno.window(), 14 * MDS);
    assert_eq!(reno.state(), State::Recovery);
    assert_eq!(reno.metrics().congestion_events, 1);
    for (largest, packets) in [(50, 18), (60, 8)] {
        reno.on_congestion(&lost(largest - 2..largest - 1, 80));
        reno.on_ack(&acked(largest, packets, 10));
        assert_eq!(reno.window(), 14 * MDS, "neither more nor less");
    }
    reno.on_ack(&acked(79, 10, 4));
    assert_eq!(reno.window(), 14 * MDS);
    // 8 + 20 + 18 + 8 + 10 packets, of which NewReno takes half.
    assert_eq!(reno.metrics().ssthresh, Some(half(64 * MDS)));
    assert_eq!(reno.state(), State::SlowStart);
    assert_eq!(reno.metrics().congestion_events, 1);
}

#[test]
fn loss_after_a_retreat_is_an_event_of_its_own() {
    let mut reno = sent_jump();
    reno.on_congestion(&lost(30..31, 80));
    send(&mut reno, 80..84, 0);
    reno.on_congestion(&lost(80..81, 84));
    assert_eq!(reno.metrics().congestion_events, 2);
    assert_eq!(reno.state(), State::Recovery);
}

#[test]
fn retreat_is_not_undone() {
    let mut reno = sent_jump();
    reno.on_congestion(&lost(30..31, 80));
    let window = reno.window();
    reno.on_spurious(&spurious(80));
    assert_eq!(reno.window(), window);
    assert_eq!(reno.metrics().spurious_events, 0);
}

#[test]
fn persistent_congestion_ends_a_jump_at_the_minimum_window() {
    let mut reno = sent_jump();
    reno.on_congestion(&persistent(18..60, 80));
    assert_eq!(reno.window(), reno.min_window());
    assert_eq!(reno.resumed(), Resume::Normal);
}

#[test]
fn path_that_continues_a_jump_has_the_window_that_arrived() {
    let mut reno = sent_jump();
    reno.on_ack(&acked(29, 20, 42));
    let next = reno.continued();
    assert_eq!(next.window(), 28 * MDS);
    assert_eq!(next.resumed(), Resume::Normal);
    let fresh = newreno();
    assert_eq!(fresh.continued().window(), fresh.window());
}

#[test]
fn marks_of_a_jump_make_prague_retreat() {
    let mut prague = build(Algorithm::Prague, MDS);
    prague.resume(&SAVED);
    prague.on_limit(Limit::Congestion, at_ms(0));
    let send = |prague: &mut Box<dyn Controller>, range: core::ops::Range<u64>| {
        for index in range {
            prague.on_sent(&sent(index, 0));
        }
    };
    send(&mut prague, 0..18);
    prague.on_ack(&acked(9, 10, 8));
    assert_eq!(prague.window(), SAVED.capacity / 2);
    send(&mut prague, 18..40);
    prague.on_congestion(&marked(20, 40));
    assert_eq!(prague.window(), 4 * MDS, "half of eight packets");
    assert_eq!(prague.state(), State::Recovery);
}

#[test]
fn nothing_is_resumed_once_there_was_feedback() {
    let mut reno = newreno();
    reno.on_limit(Limit::Congestion, at_ms(0));
    send(&mut reno, 0..20, 0);
    reno.on_ack(&acked(4, 5, 15));
    reno.resume(&SAVED);
    reno.on_ack(&acked(19, 15, 0));
    assert_eq!(reno.window(), 30 * MDS);
}
