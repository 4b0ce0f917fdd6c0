//! The cost of an ACK in nanoseconds: for each controller alone, and through the whole of
//! loss recovery.
//!
//! `cargo bench -p clearway-recovery --bench controllers`
#![allow(missing_docs, reason = "a benchmark has no interface")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use clearway_recovery::congestion::{Algorithm, CongestionControl, NewPath, SlowStart};
use clearway_recovery::controller::{Ack, Congestion, CongestionCause, Controller, Sent};
use clearway_recovery::limit::Limit;
use clearway_recovery::rate::{Delivery, RateSample};
use clearway_recovery::time::Instant;
use clearway_recovery::{Config, Gate, Outcome, PathId, PtoContext, Recovery, SentInfo, Space};

const MDS: u64 = 1_452;
const RTT: Duration = Duration::from_millis(20);
/// ACKs measured, each of two packets.
const ACKS: u64 = if cfg!(debug_assertions) {
    20_000
} else {
    2_000_000
};
/// A loss after this number of ACKs, so that every state is visited.
const LOSS_EVERY: u64 = 5_000;

fn main() {
    // `cargo test --benches` runs it too, with fewer ACKs.
    println!("{ACKS} ACKs of two packets each, ns per ACK");
    println!("{:10} {:>10} {:>10}", "", "alone", "recovery");
    for algorithm in Algorithm::ALL {
        let path = NewPath {
            mds: MDS,
            slow_start: SlowStart::HyStart,
            seed: 0,
        };
        let build = || CongestionControl::from(*algorithm).build(&path);
        let (alone, whole) = (alone(build()), whole(build()));
        println!("{:10} {alone:>10} {whole:>10}", algorithm.to_string());
    }
}

fn per_ack(time: Duration) -> u128 {
    time.as_nanos() / u128::from(ACKS)
}

/// Measures the controller alone, with the events that loss detection would report.
fn alone(mut controller: Box<dyn Controller>) -> u128 {
    controller.on_limit(Limit::Congestion, Instant::ZERO);
    let begin = std::time::Instant::now();
    let mut now = Instant::ZERO;
    for ack in 0..ACKS {
        now += Duration::from_micros(100);
        let in_flight = controller.window();
        for packet in 0..2 {
            controller.on_sent(&Sent {
                now,
                bytes: MDS,
                index: 2 * ack + packet,
                in_flight_before: in_flight,
                app_limited: false,
            });
        }
        let next_index = 2 * ack + 2;
        if ack % LOSS_EVERY == LOSS_EVERY - 1 {
            controller.on_congestion(&loss(now, next_index, in_flight));
        }
        let total = 2 * MDS * (ack + 1);
        let rate = sample(total, in_flight);
        controller.on_ack(&Ack {
            now,
            bytes: 2 * MDS,
            packets: 2,
            largest_index: next_index - 1,
            largest_sent_time: now,
            next_index,
            in_flight_before: in_flight,
            in_flight_after: in_flight.saturating_sub(2 * MDS),
            lost_bytes: 0,
            window_used_bytes: 2 * MDS,
            mean_age: RTT,
            rtt_sample: Some(RTT),
            smoothed_rtt: RTT,
            min_rtt: RTT,
            rate: Some(&rate),
            delivery: Delivery {
                total,
                prior: rate.prior_delivered,
                delivered: rate.delivered,
                lost: 0,
                tx_in_flight: in_flight,
                app_limited: false,
            },
        });
        black_box(controller.window());
    }
    per_ack(begin.elapsed())
}

/// A path of two packets each 100 µs, seen over a round trip.
fn sample(total: u64, in_flight: u64) -> RateSample {
    let delivered = total.min(2 * MDS * 200);
    RateSample {
        delivery_rate: 2 * MDS * 10_000,
        delivered,
        lost: 0,
        prior_delivered: total - delivered,
        tx_in_flight: in_flight,
        interval: RTT,
        app_limited: false,
        newly_acked: 2 * MDS,
    }
}

fn loss(now: Instant, next_index: u64, in_flight: u64) -> Congestion {
    Congestion {
        now,
        cause: CongestionCause::Loss,
        largest_index: next_index - 1,
        next_index,
        lost_bytes: MDS,
        packets: 1,
        lost_ranges: 1,
        in_flight_before: in_flight,
        in_flight_after: in_flight.saturating_sub(MDS),
        acked_bytes: 2 * MDS,
        persistent: false,
        largest_tx_in_flight: in_flight,
    }
}

/// Gate, ledger, RTT, loss detection and controller together.
fn whole(controller: Box<dyn Controller>) -> u128 {
    let path = PathId(0);
    let mut recovery = Recovery::<u64>::new(Config::default(), Instant::ZERO);
    recovery.add_path(path, controller, MDS, Instant::ZERO);
    let context = PtoContext {
        handshake_confirmed: true,
        has_handshake_keys: true,
        peer_completed_address_validation: true,
        amplification_blocked: false,
    };
    recovery.set_handshake_state(context, Instant::ZERO);
    let mut out = Outcome::new();
    let mut pairs = VecDeque::new();
    let mut now = Instant::ZERO;
    let begin = std::time::Instant::now();
    for ack in 0..ACKS {
        fill(&mut recovery, path, now, &mut pairs);
        let Some((first, sent)) = pairs.pop_front() else {
            break;
        };
        now = now.max(sent + RTT);
        // The first packet of a pair is missing now and then.
        let from = first + u64::from(ack % LOSS_EVERY == LOSS_EVERY - 1);
        out.clear();
        let ranges = core::iter::once(from..=first + 1);
        let result = recovery.on_ack(Space::Data, ranges, Duration::ZERO, now, &mut out);
        assert!(result.is_ok(), "only what was sent is acknowledged");
        black_box(&out);
    }
    per_ack(begin.elapsed())
}

/// At most 64 pairs in flight, so that all see the same load.
fn fill(
    recovery: &mut Recovery<u64>,
    path: PathId,
    now: Instant,
    pairs: &mut VecDeque<(u64, Instant)>,
) {
    while pairs.len() < 64 {
        let open = matches!(recovery.gate(path, now), Gate::Open { bytes } if bytes >= 2 * MDS);
        if !open && !pairs.is_empty() {
            break;
        }
        let first = recovery.next_number(Space::Data);
        for number in [first, first + 1] {
            let info = SentInfo {
                space: Space::Data,
                path,
                number,
                now,
                size: MDS as u16,
                ack_eliciting: true,
                in_flight: true,
                mtu_probe: false,
                ect: false,
            };
            recovery.on_sent(info, number);
        }
        pairs.push_back((first, now));
    }
    recovery.set_limit(path, Limit::Congestion, now);
}
