//! The bugs of timer, pacer and migration, each compared with the correct code.

use core::time::Duration;

use super::harness::{BYTES, Fixed, MS, PATH, at};
use crate::congestion::initial_window;
use crate::outcome::{LossCause, Outcome};
use crate::specimens::Specimen;
use crate::{Config, Gate, PathId, PtoContext, Recovery, SentInfo, Space};

const NEW: PathId = PathId(1);

struct Bench {
    recovery: Recovery<u64>,
    out: Outcome<u64>,
}

impl Bench {
    fn new(specimen: Option<Specimen>, confirmed: bool) -> Self {
        let config = Config {
            specimen,
            ..Config::default()
        };
        let mut recovery = Recovery::new(config, at(0));
        recovery.add_path(PATH, Box::new(Fixed::new(1 << 20)), BYTES, at(0));
        if confirmed {
            let context = PtoContext {
                handshake_confirmed: true,
                has_handshake_keys: true,
                peer_completed_address_validation: true,
                amplification_blocked: false,
            };
            recovery.set_handshake_state(context, at(0));
        }
        Self {
            recovery,
            out: Outcome::new(),
        }
    }

    fn send(&mut self, space: Space, path: PathId, millis: u64) {
        let number = self.recovery.next_number(space);
        let info = SentInfo {
            space,
            path,
            number,
            now: at(millis),
            size: BYTES as u16,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ect: false,
        };
        self.recovery.on_sent(info, number);
    }

    fn ack(&mut self, space: Space, range: core::ops::RangeInclusive<u64>, millis: u64) {
        self.out.clear();
        let ranges = core::iter::once(range);
        self.recovery
            .on_ack(space, ranges, Duration::ZERO, at(millis), &mut self.out)
            .unwrap();
    }

    /// 100 ms of round trip known, ten packets in flight, and the peer has
    /// moved to a path of 10 ms on which ten more are.
    fn migrated(specimen: Option<Specimen>) -> Self {
        let mut bench = Self::new(specimen, true);
        bench.send(Space::Data, PATH, 0);
        bench.ack(Space::Data, 0..=0, 100);
        for _ in 0..10 {
            bench.send(Space::Data, PATH, 1_000);
        }
        let controller = Box::new(Fixed::new(1 << 20));
        bench.recovery.add_path(NEW, controller, BYTES, at(1_001));
        bench.recovery.set_active_path(NEW, at(1_001));
        bench
    }
}

#[test]
fn bif_desync_leaves_packets_in_flight_without_a_timer() {
    let wrong = Bench::migrated(Some(Specimen::BifDesync));
    assert_eq!(wrong.recovery.unacked(Space::Data).count(), 10);
    assert_eq!(
        wrong.recovery.next_timeout(),
        None,
        "nothing will ever move it"
    );
    assert_eq!(wrong.recovery.path(PATH).unwrap().in_flight(), 0);
    let right = Bench::migrated(None);
    assert!(right.recovery.next_timeout().is_some());
    assert_eq!(right.recovery.path(PATH).unwrap().in_flight(), 10 * BYTES);
}

#[test]
fn pto_unarmed_sets_no_timer_while_the_server_is_blocked() {
    let after_initial_ack = |specimen| {
        let mut bench = Bench::new(specimen, false);
        bench.send(Space::Initial, PATH, 0);
        // All that was in flight is acknowledged; the server's flight is lost,
        // and its amplification credit used up.
        bench.ack(Space::Initial, 0..=0, 100);
        bench.recovery.next_timeout()
    };
    assert_eq!(after_initial_ack(Some(Specimen::PtoUnarmed)), None);
    assert!(after_initial_ack(None).is_some(), "RFC 9002 §6.2.2.1");
}

#[test]
fn pacer_spin_returns_deadlines_in_the_past() {
    // A sender that an ACK wakes between two trains.
    let deadline = |specimen| {
        let mut bench = Bench::new(specimen, true);
        bench.send(Space::Data, PATH, 0);
        bench.ack(Space::Data, 0..=0, 100);
        let mut bytes = 0;
        while let Gate::Open { bytes: train } = bench.recovery.gate(PATH, at(100)) {
            assert!(train >= BYTES && bytes < 1 << 20);
            bench.send(Space::Data, PATH, 100);
            bytes += BYTES;
        }
        let Gate::Pacing { until } = bench.recovery.gate(PATH, at(100)) else {
            panic!("the pacer is open");
        };
        let ask = at(100) + (until - at(100)) * 3 / 4;
        match bench.recovery.gate(PATH, ask) {
            Gate::Pacing { until } => (until, ask),
            other => panic!("{other:?}"),
        }
    };
    let (until, now) = deadline(Some(Specimen::PacerSpin));
    assert!(
        until <= now,
        "asked again at {until:?}, it is closed: a busy loop"
    );
    let (until, now) = deadline(None);
    assert!(until > now);
}

/// Ten packets, then one for each ACK of two packets.
#[test]
fn tokenbucket_startup_halves_the_flight_each_round() {
    let flights = |specimen| {
        let mut bench = Bench::new(specimen, true);
        let (mut acked, mut flights) = (0, Vec::new());
        for round in 0..5 {
            let now = round * 100;
            let next = bench.recovery.next_number(Space::Data);
            while let Gate::Open { .. } = bench.recovery.gate(PATH, at(now)) {
                if bench.recovery.path(PATH).unwrap().in_flight() >= initial_window(BYTES) {
                    break;
                }
                bench.send(Space::Data, PATH, now);
            }
            let end = bench.recovery.next_number(Space::Data);
            flights.push(end - next);
            while acked + 1 < end {
                bench.ack(Space::Data, acked..=acked + 1, now + 100);
                acked += 2;
            }
        }
        flights
    };
    let wrong = flights(Some(Specimen::TokenbucketStartup));
    assert_eq!(wrong[..3], [10, 5, 2], "{wrong:?}");
    let right = flights(None);
    assert!(right.iter().all(|&flight| flight == 10), "{right:?}");
}

#[test]
fn retransmit_all_declares_everything_in_flight_lost() {
    let mut bench = Bench::migrated(Some(Specimen::RetransmitAllOnMigration));
    assert!(bench.recovery.next_timeout().unwrap() <= at(1_001));
    bench.recovery.on_timeout(at(1_001), &mut bench.out);
    assert_eq!(bench.out.lost.len(), 10);
    assert!(
        bench
            .out
            .lost
            .iter()
            .all(|lost| lost.cause == LossCause::PathRemoved)
    );
    // They were not lost but still on their way.
    bench.ack(Space::Data, 1..=10, 1_100);
    assert_eq!(bench.out.acked.len(), 0);
    let mut right = Bench::migrated(None);
    right.ack(Space::Data, 1..=10, 1_100);
    assert_eq!((right.out.acked.len(), right.out.lost.len()), (10, 0));
}

/// The ACK of the faster new path arrives first, while the packets of the old path are on
/// their way. They count as lost by time only if the RTT of the old path is forgotten.
#[test]
fn migration_rtt_reset_declares_arriving_packets_lost_by_time() {
    let lost = |specimen| {
        let mut bench = Bench::migrated(specimen);
        bench.send(Space::Data, NEW, 1_001);
        bench.ack(Space::Data, 11..=11, 1_011);
        let lost = bench.out.lost.len();
        let by_time = bench
            .out
            .lost
            .iter()
            .all(|l| l.cause == LossCause::TimeThreshold);
        assert!(by_time);
        bench.ack(Space::Data, 1..=10, 1_100);
        (lost, bench.out.acked.len())
    };
    assert_eq!(lost(Some(Specimen::MigrationRttReset)), (10, 0));
    assert_eq!(lost(None), (0, 10));
    // Probes are sent long before an ACK can arrive.
    let due = |specimen| Bench::migrated(specimen).recovery.next_timeout().unwrap();
    assert!(due(Some(Specimen::MigrationRttReset)) < at(1_000) + MS * 50);
    assert!(due(None) > at(1_100));
}
