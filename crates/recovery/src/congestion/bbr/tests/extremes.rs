//! Extremes: 64 kbit/s to 400 Gbit/s, 10 µs to 2 s, arbitrary events.

use core::time::Duration;

use proptest::prelude::*;

use super::super::Bbr;
use super::sim::{App, Link, MDS, Sim};
use crate::controller::{Ack, Congestion, CongestionCause, Controller, LostPacket, Sent, Spurious};
use crate::rate::{Delivery, RateSample};
use crate::time::Instant;

/// An event that is reported to a controller.
#[derive(Clone, Copy, Debug)]
enum Step {
    Sent {
        in_flight: u64,
    },
    Ack {
        rate: u64,
        bytes: u64,
        in_flight: u64,
        lost: u64,
        app_limited: bool,
        round: bool,
    },
    Lost {
        in_flight: u64,
        lost: u64,
        packets: u64,
        persistent: bool,
    },
    Marked,
    Spurious {
        back: u64,
    },
    Idle,
    Mds(u64),
}

fn steps() -> impl Strategy<Value = (u64, Step)> {
    // 100 GB are 400 Gbit/s for 2 s.
    let volume = || prop_oneof![0_u64..10_000, 0_u64..10_000_000, 0_u64..100_000_000_000];
    let rate = prop_oneof![0_u64..8_000, 0_u64..125_000_000, 0_u64..50_000_000_000];
    let step = prop_oneof![
        3 => volume().prop_map(|in_flight| Step::Sent { in_flight }),
        8 => (rate, volume(), volume(), volume(), any::<bool>(), any::<bool>()).prop_map(
            |(rate, bytes, in_flight, lost, app_limited, round)| Step::Ack {
                rate, bytes, in_flight, lost, app_limited, round,
            }
        ),
        3 => (volume(), volume(), 1_u64..100, prop::bool::weighted(0.1)).prop_map(
            |(in_flight, lost, packets, persistent)| Step::Lost {
                in_flight, lost, packets, persistent,
            }
        ),
        1 => Just(Step::Marked),
        1 => (0_u64..300).prop_map(|back| Step::Spurious { back }),
        1 => Just(Step::Idle),
        1 => (1_200_u64..65_000).prop_map(Step::Mds),
    ];
    (1_000_u64..3_000_000_000, step)
}

/// Reports all events to a controller. Returns its windows and rates.
fn tell(seed: u64, rtt: Duration, steps: &[(u64, Step)]) -> Vec<(u64, u64)> {
    let mut bbr = Bbr::new(MDS, seed);
    let mut now = Instant::from_nanos(1 << 50);
    let (mut index, mut total, mut prior) = (0_u64, 0_u64, 0_u64);
    let mut answers = Vec::new();
    for &(wait, step) in steps {
        now += Duration::from_nanos(wait);
        index += 10;
        match step {
            Step::Sent { in_flight } => bbr.on_sent(&Sent {
                now,
                bytes: MDS,
                index,
                in_flight_before: in_flight,
                app_limited: false,
            }),
            Step::Ack {
                rate,
                bytes,
                in_flight,
                lost,
                app_limited,
                round,
            } => {
                total += bytes;
                prior = if round { total - bytes } else { prior };
                let sample = RateSample {
                    delivery_rate: rate,
                    ..RateSample::default()
                };
                bbr.on_ack(&Ack {
                    now,
                    bytes,
                    packets: 1,
                    largest_index: index,
                    largest_sent_time: now,
                    next_index: index + 100,
                    in_flight_before: in_flight + bytes,
                    in_flight_after: in_flight,
                    lost_bytes: lost,
                    window_used_bytes: bytes,
                    mean_age: rtt,
                    rtt_sample: Some(rtt),
                    smoothed_rtt: rtt,
                    min_rtt: rtt,
                    rate: Some(&sample),
                    delivery: Delivery {
                        total,
                        prior,
                        delivered: total - prior,
                        lost,
                        tx_in_flight: in_flight,
                        app_limited,
                    },
                });
            }
            Step::Lost {
                in_flight,
                lost,
                packets,
                persistent,
            } => {
                for packet in 0..packets {
                    bbr.on_lost(&LostPacket {
                        now,
                        index: index + packet * 2,
                        bytes: MDS,
                        event: index + 300,
                        tx_in_flight: in_flight,
                        lost_since_sent: lost,
                        delivered: total,
                        app_limited: false,
                    });
                }
                bbr.on_congestion(&Congestion {
                    now,
                    cause: CongestionCause::Loss,
                    largest_index: index,
                    next_index: index + 300,
                    lost_bytes: packets * MDS,
                    packets,
                    lost_ranges: packets,
                    in_flight_before: in_flight,
                    in_flight_after: in_flight,
                    acked_bytes: 0,
                    persistent,
                    largest_tx_in_flight: in_flight,
                });
            }
            Step::Marked => bbr.on_congestion(&Congestion {
                now,
                cause: CongestionCause::EcnCe,
                largest_index: index,
                next_index: index + 100,
                lost_bytes: 0,
                packets: u64::MAX,
                lost_ranges: 0,
                in_flight_before: 0,
                in_flight_after: 0,
                acked_bytes: 0,
                persistent: false,
                largest_tx_in_flight: 0,
            }),
            Step::Spurious { back } => bbr.on_spurious(&Spurious {
                now,
                event: (index + 290).saturating_sub(back),
            }),
            Step::Idle => bbr.restart_from_idle(now),
            Step::Mds(mds) => bbr.on_mds(mds),
        }
        answers.push((bbr.window(), bbr.pacing_rate().unwrap()));
        assert!(bbr.window() >= bbr.min_window());
        assert!(bbr.pacing_rate > 0);
        // Far above any path, far below overflow.
        assert!(bbr.window() < 1 << 50, "{}", bbr.window());
        let _ = bbr.metrics();
    }
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_acks_and_losses_keep_window_and_rate_in_bounds(
        rtt in prop_oneof![10_u64..1_000, 1_000_u64..2_000_000],
        seed: u64,
        steps in prop::collection::vec(steps(), 1..300),
    ) {
        let rtt = Duration::from_micros(rtt);
        prop_assert_eq!(tell(seed, rtt, &steps), tell(seed, rtt, &steps));
    }

    #[test]
    fn every_link_is_filled_to_more_than_half(
        kbit in prop_oneof![64_u64..1_000, 1_000_u64..100_000],
        rtt in prop_oneof![1_u64..20, 20_u64..300],
        queue in 2_u64..50,
        loss in prop_oneof![Just(0_u64), 0_u64..10_000],
        seed: u64,
    ) {
        let mut link = Link::new(1, rtt, 0);
        link.rate = kbit * 125;
        link.queue = queue * MDS + link.bdp();
        link.loss = loss;
        let bbr = Bbr::new(MDS, seed);
        let mut sim = Sim::with(Box::new(bbr), link, App::Bulk, seed);
        // Time for a few hundred packets, then as much again.
        let unit = Duration::from_nanos(MDS * 1_000_000_000 / link.rate);
        let time = unit * 300 + link.rtt * 30;
        sim.run(time);
        let rate = sim.measure(time);
        prop_assert!(rate >= link.rate * 55 / 100, "{} of {}: {:?}", rate, link.rate, sim.bbr());
    }
}

#[test]
fn same_seed_gives_same_history_and_other_seeds_differ() {
    let history = |seed| {
        let bbr = Bbr::new(MDS, seed);
        let mut sim = Sim::with(Box::new(bbr), Link::new(20, 60, 200), App::Bulk, 1);
        sim.run(Duration::from_secs(12));
        sim.phases
    };
    assert_eq!(history(3), history(3));
    assert_ne!(history(3), history(4));
}
