use std::collections::{BTreeSet, HashSet, VecDeque};

use super::super::classic::Classic;
use super::super::newreno::NewReno;
use super::super::testing::{MDS, acked, at_ms, lost, marked};
use super::super::{SlowStart, initial_window};
use super::*;
use crate::controller::{Controller, Sent, State};
use crate::limit::Limit;

/// Sixty datagrams in 100 ms.
const SAVED: SavedPath = SavedPath {
    capacity: 60 * MDS,
    rtt: RTT,
};
const RTT: Duration = Duration::from_millis(100);
const JUMP: u64 = 30 * MDS;

fn window(packets: u64) -> Window {
    Window {
        bytes: packets * MDS,
        mds: MDS,
        initial: initial_window(MDS),
        is_limit: true,
    }
}

/// An ACK over a round trip of 100 ms.
fn ack(largest: SendIndex, packets: u64, in_flight: u64) -> Ack<'static> {
    Ack {
        smoothed_rtt: RTT,
        min_rtt: RTT,
        ..acked(largest, packets, in_flight)
    }
}

/// After the jump: 8 packets in flight, and 30 allowed. The next index is 18.
fn unvalidated() -> Resume {
    let mut resume = Resume::new(SAVED);
    assert_eq!(resume.on_ack(&ack(9, 10, 8), &window(20)), Step::Set(JUMP));
    assert!(matches!(resume, Resume::Unvalidated { first: 18, .. }));
    resume
}

/// After all of the jump was sent: 30 packets in flight up to index 39.
fn validating() -> Resume {
    let mut resume = unvalidated();
    assert_eq!(
        resume.on_sent(at_ms(50), 39, JUMP, &window(30)),
        Step::Set(JUMP)
    );
    assert_eq!(
        resume,
        Resume::Validating {
            pipe: 8 * MDS,
            end: 40
        }
    );
    resume
}

/// RFC 9959 §3.2: all initial data is acknowledged.
#[test]
fn jump_waits_until_the_initial_window_is_acknowledged() {
    let mut resume = Resume::new(SAVED);
    assert_eq!(resume.on_ack(&ack(4, 5, 8), &window(15)), Step::Ordinary);
    assert_eq!(resume.on_ack(&ack(8, 4, 8), &window(19)), Step::Ordinary);
    assert_eq!(resume.on_ack(&ack(9, 1, 8), &window(20)), Step::Set(JUMP));
    let Resume::Unvalidated {
        pipe, first, until, ..
    } = resume
    else {
        panic!("{resume:?}");
    };
    assert_eq!((pipe, first, until), (8 * MDS, 18, at_ms(100)));
}

/// §3.3: half of saved_cwnd, paced over the present round trip.
#[test]
fn jump_is_half_of_the_capacity_paced_over_a_round_trip() {
    let resume = unvalidated();
    assert_eq!(resume.rate(), Some(JUMP * 10));
    assert_eq!(validating().rate(), None);
}

/// §4.2: a rate-limited sender stays in Reconnaissance.
#[test]
fn jump_waits_until_the_window_is_the_limit() {
    let mut resume = Resume::new(SAVED);
    let idle = Window {
        is_limit: false,
        ..window(20)
    };
    assert_eq!(resume.on_ack(&ack(20, 20, 0), &idle), Step::Ordinary);
    assert!(matches!(resume, Resume::Reconnaissance { .. }));
    assert_eq!(
        resume.on_ack(&ack(21, 1, 9), &window(20)),
        Step::Set(JUMP),
        "later"
    );
}

/// §3.2, §4.2.1.
#[test]
fn path_with_another_round_trip_is_not_resumed() {
    for (ms, jumps) in [(50, false), (51, true), (1_000, true), (1_001, false)] {
        let mut resume = Resume::new(SAVED);
        let ack = Ack {
            min_rtt: Duration::from_millis(ms),
            ..ack(9, 10, 8)
        };
        let step = resume.on_ack(&ack, &window(20));
        assert_eq!(step == Step::Set(JUMP), jumps, "{ms} ms");
        assert_eq!(resume == Resume::Normal, !jumps, "{ms} ms");
    }
}

#[test]
fn window_that_is_already_as_large_does_not_jump() {
    let mut resume = Resume::new(SAVED);
    assert_eq!(resume.on_ack(&ack(9, 10, 8), &window(30)), Step::Ordinary);
    assert_eq!(resume, Resume::Normal);
}

#[test]
fn congestion_in_reconnaissance_ends_it() {
    for event in [lost(0..1, 10), marked(3, 10)] {
        let mut resume = Resume::new(SAVED);
        assert_eq!(resume.on_congestion(&event), Step::Ordinary);
        assert_eq!(resume, Resume::Normal);
    }
}

/// §3.3: flight_size equals CWND, or the rest is less than a datagram.
#[test]
fn validation_begins_when_the_jump_is_sent() {
    let mut resume = unvalidated();
    let partly = resume.on_sent(at_ms(40), 38, JUMP - MDS, &window(30));
    assert_eq!(partly, Step::Ordinary);
    let rest = resume.on_sent(at_ms(50), 39, JUMP - 1, &window(30));
    assert_eq!(rest, Step::Set(JUMP - 1));
    assert!(matches!(resume, Resume::Validating { end: 40, .. }));
}

#[test]
fn validation_begins_when_an_unvalidated_packet_is_acknowledged() {
    let mut resume = unvalidated();
    assert_eq!(resume.on_ack(&ack(17, 8, 15), &window(30)), Step::Hold);
    // The round trip is shorter than it seemed: packet 18 of those up to 37.
    let step = resume.on_ack(&ack(18, 1, 19), &window(30));
    assert_eq!(step, Step::Set(19 * MDS));
    assert_eq!(
        resume,
        Resume::Validating {
            pipe: 17 * MDS,
            end: 38
        }
    );
}

#[test]
fn validation_begins_after_a_round_trip() {
    let in_time = Ack {
        now: at_ms(100),
        ..ack(10, 1, 20)
    };
    let mut resume = unvalidated();
    assert_eq!(resume.on_ack(&in_time, &window(30)), Step::Hold);
    let late = Ack {
        now: at_ms(101),
        ..in_time
    };
    assert_eq!(resume.on_ack(&late, &window(30)), Step::Set(20 * MDS));
    let mut resume = unvalidated();
    let step = resume.on_sent(at_ms(101), 30, 20 * MDS, &window(30));
    assert_eq!(step, Step::Set(20 * MDS));
}

/// §3.3: flight_size is below IW, or not above PipeSize.
#[test]
fn unused_jump_is_taken_back() {
    for (in_flight, back) in [(9, true), (16, true), (17, false)] {
        let mut resume = unvalidated();
        let late = Ack {
            now: at_ms(101),
            ..ack(17, 8, in_flight)
        };
        let step = resume.on_ack(&late, &window(30));
        let expected = if back { 16 } else { in_flight };
        assert_eq!(step, Step::Set(expected * MDS), "{in_flight} in flight");
        assert_eq!(resume == Resume::Normal, back, "{in_flight} in flight");
    }
}

/// §3.3: without congestion the window is not reduced below IW.
#[test]
fn window_after_an_unused_jump_is_at_least_the_initial_one() {
    let mut resume = unvalidated();
    let step = resume.on_sent(at_ms(500), 18, MDS, &window(30));
    assert_eq!(step, Step::Set(10 * MDS));
}

/// §3.4.
#[test]
fn last_unvalidated_packet_ends_validation() {
    let mut resume = validating();
    assert_eq!(resume.on_ack(&ack(38, 29, 1), &window(30)), Step::Ordinary);
    assert!(matches!(resume, Resume::Validating { .. }));
    assert_eq!(resume.on_ack(&ack(39, 1, 0), &window(60)), Step::Ordinary);
    assert_eq!(resume, Resume::Normal);
}

/// §3.5, and the third example of appendix B: PipeSize is 8 + 20 when packet 38 is found lost.
#[test]
fn congestion_retreats_to_half_of_what_the_path_is_known_to_carry() {
    for event in [lost(38..39, 45), marked(38, 45)] {
        let mut resume = validating();
        resume.on_ack(&ack(37, 20, 10), &window(30));
        assert_eq!(resume.on_congestion(&event), Step::Retreat(14 * MDS));
        let end = Resume::SafeRetreat {
            pipe: 28 * MDS,
            end: 45,
        };
        assert_eq!(resume, end);
        let mut early = unvalidated();
        assert_eq!(early.on_congestion(&event), Step::Retreat(4 * MDS));
    }
}

#[test]
fn retreat_ends_when_the_path_is_drained() {
    let mut resume = validating();
    resume.on_congestion(&lost(20..21, 45));
    assert_eq!(resume.on_congestion(&lost(21..30, 45)), Step::Hold);
    assert_eq!(resume.on_ack(&ack(43, 10, 3), &window(4)), Step::Hold);
    let step = resume.on_ack(&ack(44, 2, 1), &window(4));
    assert_eq!(step, Step::Drained { pipe: 20 * MDS });
    assert_eq!(resume, Resume::Normal);
}

#[test]
fn loss_of_a_packet_sent_in_retreat_is_congestion_of_its_own() {
    let mut resume = validating();
    resume.on_congestion(&lost(20..21, 45));
    let step = resume.on_congestion(&lost(45..46, 50));
    assert_eq!(step, Step::Drained { pipe: 8 * MDS });
    assert_eq!(resume, Resume::Normal);
}

// Every sequence of a few events, on the production controller.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The application has more data than fits, or none.
    Limited(bool),
    SendOne,
    /// Sends what the window allows.
    SendAll,
    /// The oldest packet arrives, or a half of the flight, or all of it.
    AckOne,
    AckHalf,
    AckAll,
    /// The oldest packet is lost, which the newest shows.
    Lose,
    Mark,
    /// Half a round trip passes.
    Wait,
}

const EVENTS: [Event; 10] = [
    Event::Limited(true),
    Event::Limited(false),
    Event::SendOne,
    Event::SendAll,
    Event::AckOne,
    Event::AckHalf,
    Event::AckAll,
    Event::Lose,
    Event::Mark,
    Event::Wait,
];

#[derive(Clone, Debug)]
struct SmallWorld {
    flow: Classic<NewReno>,
    /// Half round trips.
    now: u64,
    next: SendIndex,
    flight: VecDeque<SendIndex>,
    /// Packets that arrived.
    arrived: u64,
    congested: bool,
    limited: bool,
}

impl SmallWorld {
    fn new() -> Self {
        let mut flow = Classic::new(NewReno::default(), SlowStart::Standard, MDS);
        flow.resume(&SAVED);
        Self {
            flow,
            now: 0,
            next: 0,
            flight: VecDeque::new(),
            arrived: 0,
            congested: false,
            limited: false,
        }
    }

    fn at(&self) -> Instant {
        at_ms(50 * self.now)
    }

    fn in_flight(&self) -> u64 {
        self.flight.len() as u64
    }

    fn send(&mut self) -> bool {
        if (self.in_flight() + 1) * MDS > self.flow.window() {
            return false;
        }
        let in_flight_before = self.in_flight() * MDS;
        self.flight.push_back(self.next);
        self.next += 1;
        self.flow.on_sent(&Sent {
            now: self.at(),
            bytes: MDS,
            index: self.next - 1,
            in_flight_before,
            app_limited: false,
        });
        true
    }

    fn arrive(&mut self, packets: usize) {
        let packets = packets.min(self.flight.len());
        let Some(largest) = self.flight.drain(..packets).next_back() else {
            return;
        };
        self.arrived += packets as u64;
        let used = if self.limited { packets as u64 } else { 0 };
        self.flow.on_ack(&Ack {
            now: self.at(),
            next_index: self.next,
            window_used_bytes: used * MDS,
            ..ack(largest, packets as u64, self.in_flight())
        });
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Limited(limited) => {
                self.limited = limited;
                let limit = match limited {
                    true => Limit::Congestion,
                    false => Limit::Application,
                };
                self.flow.on_limit(limit, self.at());
            }
            Event::SendOne => {
                self.send();
            }
            Event::SendAll => while self.send() {},
            Event::AckOne => self.arrive(1),
            Event::AckHalf => self.arrive(self.flight.len().div_ceil(2)),
            Event::AckAll => self.arrive(self.flight.len()),
            Event::Lose => {
                let Some(index) = self.flight.pop_front() else {
                    return;
                };
                self.congested = true;
                let in_flight = self.in_flight() * MDS;
                self.flow.on_congestion(&Congestion {
                    now: self.at(),
                    in_flight_before: in_flight + MDS,
                    in_flight_after: in_flight,
                    ..lost(index..index + 1, self.next)
                });
            }
            Event::Mark => {
                if let Some(&index) = self.flight.front() {
                    self.congested = true;
                    self.flow.on_congestion(&Congestion {
                        now: self.at(),
                        ..marked(index, self.next)
                    });
                }
            }
            Event::Wait => self.now += 1,
        }
    }

    /// What must hold after `event`, given the world before it.
    fn check(&self, before: &Self, event: Event) {
        let (was, is) = (before.flow.resumed(), self.flow.resumed());
        let (old, new) = (before.flow.window(), self.flow.window());
        let legal = match (was, is) {
            (_, Resume::Normal) => true,
            (Resume::Reconnaissance { .. }, Resume::Reconnaissance { .. }) => true,
            (Resume::Reconnaissance { .. }, Resume::Unvalidated { .. }) => {
                assert!(self.arrived >= 10 && !self.congested && self.limited);
                true
            }
            (Resume::Unvalidated { first, .. }, Resume::Unvalidated { first: same, .. }) => {
                first == same
            }
            (Resume::Unvalidated { .. }, Resume::Validating { .. }) => true,
            (Resume::Validating { end, .. }, Resume::Validating { end: same, .. }) => end == same,
            (
                Resume::Unvalidated { pipe, .. } | Resume::Validating { pipe, .. },
                Resume::SafeRetreat { .. },
            ) => {
                assert!(new <= (pipe / 2).max(self.flow.min_window()));
                true
            }
            (Resume::SafeRetreat { end, .. }, Resume::SafeRetreat { end: same, .. }) => {
                assert!(new <= old, "grew from {old} to {new} in retreat");
                end == same
            }
            _ => false,
        };
        assert!(legal, "{was:?} to {is:?}");
        assert!(new >= self.flow.min_window());
        if matches!(is, Resume::Unvalidated { .. }) {
            assert!(new == JUMP && is.rate() == Some(JUMP * 10));
        }
        if let Some(pipe) = is.pipe() {
            assert!(pipe <= (self.arrived + self.in_flight().max(before.in_flight())) * MDS);
        }
        // No window is larger than slow start from what has arrived, or than the jump.
        let carried = initial_window(MDS) + self.arrived * MDS;
        assert!(new <= carried.max(JUMP + self.arrived * MDS), "{new}");
        if event == Event::Wait {
            assert_eq!(old, new);
        }
        let retreats = matches!(is, Resume::SafeRetreat { .. });
        assert!(!retreats || self.flow.state() == State::Recovery);
    }
}

/// Walks every sequence of events after the first flight, and of those after a jump.
fn walk(begin: &[Event], depth: usize) -> BTreeSet<u64> {
    let mut world = SmallWorld::new();
    for event in begin {
        world.apply(*event);
    }
    let mut seen = HashSet::new();
    let mut phases = BTreeSet::new();
    let mut level = vec![world];
    for _ in 0..depth {
        let mut next = Vec::new();
        for before in &level {
            for event in EVENTS {
                let mut world = before.clone();
                world.apply(event);
                world.check(before, event);
                phases.insert(world.flow.resumed().number());
                if seen.insert(format!("{world:?}")) {
                    next.push(world);
                }
            }
        }
        level = next;
    }
    phases
}

#[test]
fn every_sequence_of_events_keeps_to_the_phases_and_their_bounds() {
    let start = [Event::Limited(true), Event::SendAll];
    assert_eq!(walk(&start, 5), (0..=4).collect());
    let jump = [
        Event::Limited(true),
        Event::SendAll,
        Event::AckHalf,
        Event::SendAll,
        Event::AckHalf,
    ];
    assert_eq!(walk(&jump, 5), [0, 2, 3, 4].into());
}
