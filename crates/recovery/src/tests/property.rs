//! Random sequences of operations: the counts stay right, and no packet waits without a
//! timer.

use core::time::Duration;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::harness::{BYTES, Fixed, MS};
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::time::Instant;
use crate::{Config, Gate, PathId, PathRecovery, PtoContext, Recovery, SentInfo, Space};

#[derive(Clone, Debug)]
enum Step {
    Send {
        space: u8,
        path: u8,
        kind: u8,
        size: u16,
    },
    Skip(u8),
    /// Acknowledges what `pick` keeps of the newest `reach` numbers.
    Ack {
        space: u8,
        reach: u64,
        pick: u64,
        delay: u16,
    },
    /// Lets the timer fire when due.
    Fire,
    /// Calls the timer at any time.
    Poke,
    Wait(u32),
    Gate(u8),
    Limit(u8, u8),
    Ecn,
    Discard(bool),
    Confirm,
    Blocked(bool),
    Retry,
    Reject,
    AddPath,
    Switch,
    RemovePath,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0_u8..6, 0_u8..4, 0_u8..16, 40_u16..1500)
            .prop_map(|(space, path, kind, size)| Step::Send { space, path, kind, size }),
        1 => (0_u8..6).prop_map(Step::Skip),
        12 => (0_u8..6, 1_u64..40, any::<u64>(), 0_u16..200)
            .prop_map(|(space, reach, pick, delay)| Step::Ack { space, reach, pick, delay }),
        6 => Just(Step::Fire),
        2 => Just(Step::Poke),
        10 => (0_u32..400_000_000).prop_map(Step::Wait),
        3 => (0_u8..4).prop_map(Step::Gate),
        3 => (0_u8..4, 0_u8..9).prop_map(|(path, limit)| Step::Limit(path, limit)),
        1 => Just(Step::Ecn),
        1 => any::<bool>().prop_map(Step::Discard),
        2 => Just(Step::Confirm),
        1 => any::<bool>().prop_map(Step::Blocked),
        1 => Just(Step::Retry),
        1 => Just(Step::Reject),
        1 => Just(Step::AddPath),
        1 => Just(Step::Switch),
        1 => Just(Step::RemovePath),
    ]
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Open,
    Acked,
    Lost,
    Dropped,
}

struct World {
    recovery: Recovery<(Space, u64)>,
    out: Outcome<(Space, u64)>,
    now: Instant,
    context: PtoContext,
    fates: BTreeMap<(Space, u64), Fate>,
    discarded: [bool; 3],
    paths: Vec<PathId>,
    next_path: u32,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            recovery: Recovery::new(Config::default(), Instant::ZERO),
            out: Outcome::new(),
            now: Instant::ZERO,
            context: PtoContext::default(),
            fates: BTreeMap::new(),
            discarded: [false; 3],
            paths: Vec::new(),
            next_path: 0,
        };
        world.add_path();
        world
    }

    fn add_path(&mut self) {
        let id = PathId(self.next_path);
        self.next_path += 1;
        self.paths.push(id);
        let controller = Box::new(Fixed::new(20 * BYTES));
        self.recovery.add_path(id, controller, BYTES, self.now);
    }

    fn space(&self, choice: u8) -> Option<Space> {
        let space = Space::ALL[usize::from(choice).min(2)];
        (!self.discarded[space as usize]).then_some(space)
    }

    fn path(&self, choice: u8) -> PathId {
        self.paths[usize::from(choice) % self.paths.len()]
    }

    fn send(&mut self, space: Space, path: PathId, kind: u8, size: u16) {
        let number = self.recovery.next_number(space);
        let info = SentInfo {
            space,
            path,
            number,
            now: self.now,
            size,
            ack_eliciting: kind > 2,
            in_flight: kind > 1,
            mtu_probe: kind == 15,
            ect: kind.is_multiple_of(2),
        };
        self.recovery.on_sent(info, (space, number));
        if info.in_flight {
            self.fates.insert((space, number), Fate::Open);
        }
    }

    fn ack(&mut self, space: Space, reach: u64, pick: u64, delay: u16) {
        let next = self.recovery.next_number(space);
        let low = next.saturating_sub(reach);
        // Only numbers that were sent; skipped ones are not in `sent`.
        let ranges: Vec<_> = (low..next)
            .rev()
            .filter(|number| pick >> (number % 64) & 1 == 1)
            .filter(|number| self.fates.contains_key(&(space, *number)))
            .map(|number| number..=number)
            .collect();
        let delay = MS * u32::from(delay);
        self.recovery
            .on_ack(space, ranges.into_iter(), delay, self.now, &mut self.out)
            .unwrap();
        if self.out.persistent_congestion.is_empty() {
            // Otherwise the RTT has changed since.
            self.recovery.check_losses(space, self.now);
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Send {
                space,
                path,
                kind,
                size,
            } => {
                let path = self.path(path);
                if let Some(space) = self.space(space) {
                    self.send(space, path, kind, size);
                }
            }
            Step::Skip(space) => {
                if let Some(space) = self.space(space) {
                    self.recovery.skip_number(space);
                }
            }
            Step::Ack {
                space,
                reach,
                pick,
                delay,
            } => {
                if let Some(space) = self.space(space) {
                    self.ack(space, reach, pick, delay);
                }
            }
            Step::Fire => self.fire(),
            Step::Poke => self.recovery.on_timeout(self.now, &mut self.out),
            Step::Wait(nanos) => self.now += Duration::from_nanos(nanos.into()),
            Step::Gate(path) => self.gate(self.path(path)),
            Step::Limit(path, limit) => {
                let path = self.path(path);
                let limit = Limit::ALL[usize::from(limit)];
                self.recovery.set_limit(path, limit, self.now);
            }
            Step::Ecn => self.ecn(),
            Step::Discard(initial) => self.discard(initial),
            Step::Confirm => {
                self.context.handshake_confirmed = true;
                self.context.has_handshake_keys = true;
                self.context.peer_completed_address_validation = true;
                self.recovery.set_handshake_state(self.context, self.now);
            }
            Step::Blocked(blocked) => {
                self.context.amplification_blocked = blocked;
                self.recovery.set_handshake_state(self.context, self.now);
            }
            Step::Retry => self.recovery.on_retry(self.now, &mut self.out),
            Step::Reject => self.recovery.on_zero_rtt_rejected(self.now, &mut self.out),
            Step::AddPath if self.paths.len() < 3 => self.add_path(),
            Step::AddPath => {}
            Step::Switch => {
                let last = self.paths[self.paths.len() - 1];
                self.recovery.set_active_path(last, self.now);
            }
            Step::RemovePath => self.remove_path(),
        }
    }

    /// Lets the timer fire when due. Checks that the next one is in the future.
    fn fire(&mut self) {
        let Some(due) = self.recovery.next_timeout() else {
            return;
        };
        self.now = self.now.max(due);
        self.recovery.on_timeout(self.now, &mut self.out);
        let idle = self.out.lost.is_empty() && self.out.pto.is_none();
        let next = self.recovery.next_timeout();
        assert!(
            !idle || next.is_none_or(|next| next > self.now),
            "a wake-up that did nothing and is due again"
        );
    }

    fn gate(&mut self, path: PathId) {
        match self.recovery.gate(path, self.now) {
            Gate::Open { bytes } => {
                let path = self.recovery.path(path).unwrap();
                assert!(bytes >= path.mds());
                assert!(path.in_flight() + bytes <= path.window());
            }
            Gate::Congestion => {}
            Gate::Pacing { until } => {
                assert!(until > self.now);
                assert!(matches!(self.recovery.gate(path, until), Gate::Open { .. }));
                self.now = until;
            }
        }
    }

    fn ecn(&mut self) {
        let path = self.recovery.active_path();
        let newest = self.recovery.path(path).unwrap().next_index();
        if newest > 0 {
            self.recovery.on_ecn_ce(path, newest - 1, 1, self.now);
        }
    }

    fn discard(&mut self, initial: bool) {
        let space = if initial {
            Space::Initial
        } else {
            Space::Handshake
        };
        self.recovery.discard_space(space, self.now);
        self.discarded[space as usize] = true;
        for ((of, _), fate) in &mut self.fates {
            if *of == space && *fate == Fate::Open {
                *fate = Fate::Dropped;
            }
        }
    }

    fn remove_path(&mut self) {
        if self.paths.len() > 1 {
            let gone = self.paths.remove(0);
            self.recovery.remove_path(gone, &mut self.out);
            self.recovery.set_active_path(self.paths[0], self.now);
        }
    }

    /// Checks that each packet is reported once, as acknowledged or as lost.
    fn settle(&mut self) {
        let acked = self.out.acked.drain(..).map(|p| (p.content, Fate::Acked));
        let lost = self.out.lost.drain(..).map(|p| (p.content, Fate::Lost));
        for (packet, fate) in acked.chain(lost) {
            if let Some(known) = self.fates.get_mut(&packet) {
                assert_eq!(*known, Fate::Open, "{packet:?} is told {fate:?} again");
                *known = fate;
            }
        }
        self.out.clear();
        let open = self.fates.values().filter(|fate| **fate == Fate::Open);
        let in_flight: u64 = self
            .recovery
            .paths()
            .map(PathRecovery::packets_in_flight)
            .sum();
        assert_eq!(
            open.count() as u64,
            in_flight,
            "a packet in flight was reported, or one not in flight was not"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_operations_keep_the_invariants(steps in prop::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
            world.recovery.check_invariants();
            world.settle();
        }
        // A confirmed connection that only probes always has a timer: a probe and its ACK
        // settle everything in flight.
        world.apply(&Step::Blocked(false));
        world.apply(&Step::Confirm);
        world.discard(true);
        world.discard(false);
        for _ in 0..1000 {
            if !world.recovery.has_unacked(Space::Data) {
                break;
            }
            world.fire();
            if world.out.pto.is_some() {
                let path = world.recovery.active_path();
                world.send(Space::Data, path, 3, 1200);
                world.now += MS * 20;
                world.ack(Space::Data, 1, u64::MAX, 0);
            }
            world.recovery.check_invariants();
            world.settle();
        }
        prop_assert!(!world.recovery.has_unacked(Space::Data), "stuck");
    }
}
