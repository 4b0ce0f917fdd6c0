//! Arbitrary events at any scale: no overflow, never below the minimum window, and
//! deterministic.

use proptest::prelude::*;

use super::super::super::{Algorithm, build_with};
use super::*;

/// An event that a connection may report. Sizes are in bytes. They range from a window of
/// 64 kbit/s over 10 µs to one of 400 Gbit/s over 2 s, and beyond.
#[derive(Clone, Debug)]
enum Fact {
    Send {
        packets: u64,
        in_flight: u64,
    },
    Ack {
        bytes: u64,
        used: u64,
        rtt_ns: u64,
        behind: u64,
    },
    Congestion {
        bytes: u64,
        behind: u64,
        kind: Kind,
    },
    Spurious,
    Limit(Limit),
    Restart,
    Mds(u64),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Loss,
    Mark,
    Persistent,
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0_u64..1_000_000,
        4 => 0_u64..100_000_000_000,
        1 => Just(u64::MAX),
    ]
}

fn fact() -> impl Strategy<Value = Fact> {
    let rtt = prop_oneof![
        10_000_u64..100_000,
        1_000_000_u64..2_000_000_000,
        Just(u64::MAX)
    ];
    let kind = prop_oneof![
        4 => Just(Kind::Loss),
        2 => Just(Kind::Mark),
        1 => Just(Kind::Persistent),
    ];
    let limit = prop_oneof![
        Just(Limit::Congestion),
        Just(Limit::Pacing),
        Just(Limit::Application)
    ];
    prop_oneof![
        4 => (1_u64..50, bytes())
            .prop_map(|(packets, in_flight)| Fact::Send { packets, in_flight }),
        8 => (bytes(), bytes(), rtt, 0_u64..60)
            .prop_map(|(bytes, used, rtt_ns, behind)| Fact::Ack { bytes, used, rtt_ns, behind }),
        2 => (bytes(), 0_u64..60, kind)
            .prop_map(|(bytes, behind, kind)| Fact::Congestion { bytes, behind, kind }),
        1 => Just(Fact::Spurious),
        2 => limit.prop_map(Fact::Limit),
        1 => Just(Fact::Restart),
        1 => (1_200_u64..65_527).prop_map(Fact::Mds),
    ]
}

/// A connection that reports arbitrary events to a controller.
struct Driver {
    controller: Box<dyn Controller>,
    now: Instant,
    next: SendIndex,
    event: SendIndex,
    mds: u64,
}

impl Driver {
    fn tell(&mut self, fact: &Fact) {
        match *fact {
            Fact::Send { packets, in_flight } => {
                for _ in 0..packets {
                    self.controller.on_sent(&Sent {
                        bytes: self.mds,
                        ..sent(self.next, in_flight)
                    });
                    self.next += 1;
                }
            }
            Fact::Ack {
                bytes,
                used,
                rtt_ns,
                behind,
            } => self.acknowledge(bytes, used, Duration::from_nanos(rtt_ns), behind),
            Fact::Congestion {
                bytes,
                behind,
                kind,
            } => self.congest(bytes, behind, kind),
            Fact::Spurious => self.controller.on_spurious(&spurious(self.event)),
            Fact::Limit(limit) => self.controller.on_limit(limit, self.now),
            Fact::Restart => self.controller.restart_from_idle(self.now),
            Fact::Mds(mds) => {
                self.mds = mds;
                self.controller.on_mds(mds);
            }
        }
    }

    fn acknowledge(&mut self, bytes: u64, used: u64, rtt: Duration, behind: u64) {
        self.controller.on_ack(&Ack {
            now: self.now,
            bytes,
            window_used_bytes: used.min(bytes),
            in_flight_after: used,
            next_index: self.next,
            rtt_sample: Some(rtt),
            smoothed_rtt: rtt,
            ..acked(self.next.saturating_sub(behind), 1, 0)
        });
    }

    fn congest(&mut self, bytes: u64, behind: u64, kind: Kind) {
        self.event = self.next;
        let largest_index = self.next.saturating_sub(behind);
        self.controller.on_congestion(&Congestion {
            now: self.now,
            cause: match kind {
                Kind::Mark => CongestionCause::EcnCe,
                Kind::Loss | Kind::Persistent => CongestionCause::Loss,
            },
            largest_index,
            next_index: self.next,
            lost_bytes: bytes,
            in_flight_before: bytes,
            in_flight_after: bytes / 3,
            acked_bytes: bytes / 7,
            persistent: matches!(kind, Kind::Persistent),
            ..lost(largest_index..largest_index + 1, largest_index + 2)
        });
    }
}

/// Returns the window after each event; the number is the wait before it.
fn windows(algorithm: Algorithm, facts: &[(Fact, u64)]) -> Vec<u64> {
    let mut teller = Driver {
        controller: build_with(algorithm, SlowStart::HyStart, MDS),
        now: Instant::ZERO,
        next: 0,
        event: 0,
        mds: MDS,
    };
    let mut windows = Vec::with_capacity(facts.len());
    for (fact, wait) in facts {
        teller.now += Duration::from_nanos(*wait);
        teller.tell(fact);
        let window = teller.controller.window();
        assert!(
            window >= teller.controller.min_window(),
            "{window} after {fact:?}"
        );
        assert_eq!(teller.controller.min_window(), 2 * teller.mds);
        windows.push(window);
    }
    windows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_events_keep_the_window_above_the_minimum(
        facts in prop::collection::vec(
            (fact(), prop_oneof![9 => 0_u64..1_000_000_000, 1 => Just(u64::MAX / 4)]),
            1..80,
        ),
    ) {
        for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Prague] {
            prop_assert_eq!(windows(algorithm, &facts), windows(algorithm, &facts));
        }
    }

    /// From 64 kbit/s to 400 Gbit/s and from 10 µs to 2 s: a window that is fully used and
    /// acknowledged never shrinks, grows by at most half (or a datagram, if that is more)
    /// per round, and has grown after 40 rounds, by no more than its algorithm allows.
    #[test]
    fn fully_used_window_grows_at_every_scale(
        rate in prop_oneof![8_000_u64..10_000_000, 10_000_000_u64..50_000_000_000],
        rtt_ns in prop_oneof![10_000_u64..1_000_000, 1_000_000_u64..2_000_000_000],
    ) {
        let bdp = u128::from(rate) * u128::from(rtt_ns) / 1_000_000_000;
        let window = u64::try_from(bdp).unwrap().max(2 * MDS);
        let rtt = Duration::from_nanos(rtt_ns);
        for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Prague] {
            let windows = forty_rounds(algorithm, window, rtt);
            for (round, pair) in windows.windows(2).enumerate() {
                prop_assert!(pair[1] >= pair[0], "{algorithm}, round {round}");
                let most = (pair[0] / 2).max(MDS);
                prop_assert!(pair[1] <= pair[0] + most, "{algorithm}, round {round}");
            }
            let gained = windows[40] - windows[0];
            prop_assert!(gained > 0, "{algorithm}");
            // Additive: a datagram a round, less what rounds the ACKs off.
            if algorithm == Algorithm::NewReno {
                prop_assert!((38 * MDS..=40 * MDS).contains(&gained), "{algorithm}: {gained}");
            }
        }
    }
}

/// Returns the windows of forty rounds in avoidance, each fully used, after slow start up
/// to a window and one loss.
fn forty_rounds(algorithm: Algorithm, window: u64, rtt: Duration) -> Vec<u64> {
    let mut controller = build_with(algorithm, SlowStart::Standard, MDS);
    controller.on_limit(Limit::Congestion, at_ms(0));
    let (mut now, mut index) = (at_ms(0), 0);
    let mut round = |controller: &mut Box<dyn Controller>| {
        let bytes = controller.window();
        controller.on_sent(&Sent {
            bytes,
            ..sent(index, 0)
        });
        now += rtt;
        controller.on_ack(&Ack {
            now,
            bytes,
            window_used_bytes: bytes,
            smoothed_rtt: rtt,
            ..acked(index, 1, 0)
        });
        index += 1;
        controller.window()
    };
    while round(&mut controller) < window {}
    controller.on_congestion(&lost(0..1, 1));
    // The first ends recovery.
    round(&mut controller);
    let mut windows = vec![controller.window()];
    windows.extend((0..40).map(|_| round(&mut controller)));
    windows
}
