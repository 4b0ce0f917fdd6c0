//! A sender over one bottleneck in virtual time: the real ledger, pacer and rate estimator,
//! a controller that can be inspected, and a path that can change.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::BTreeMap;

use super::super::Bbr;
use super::super::phase::Phase;
use super::super::rng::Rng;
use crate::controller::Controller;
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::time::{Instant, nanos};
use crate::{Config, Gate, PathId, PtoContext, Recovery, SentInfo, Space};

use super::shared::{AsBbr, BbrRef, SharedController};

pub(super) const MDS: u64 = 1200;
pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const MBIT: u64 = 125_000;
const PATH: PathId = PathId(0);

/// The path, as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Bytes per second of the bottleneck.
    pub(super) rate: u64,
    /// Round-trip time without a queue.
    pub(super) rtt: Duration,
    /// Bytes that the bottleneck holds.
    pub(super) queue: u64,
    /// Packets lost at random, in a million.
    pub(super) loss: u64,
    /// Whether all packets are lost.
    pub(super) blackhole: bool,
    /// ACKs arrive only at multiples of this time.
    pub(super) ack_slot: Option<Duration>,
    /// Bytes per second and burst of a token bucket without a queue.
    pub(super) policer: Option<(u64, u64)>,
    /// Additional delay of packets that are sent now.
    pub(super) detour: Duration,
    /// Every n-th packet is marked CE; 0 = none.
    pub(super) mark_every: u64,
}

impl Link {
    /// Mbit/s, milliseconds, and a queue in hundredths of their product.
    pub(super) fn new(mbit: u64, rtt: u64, queue_percent: u64) -> Self {
        let rate = mbit * MBIT;
        Self {
            rate,
            rtt: MS * u32::try_from(rtt).unwrap(),
            queue: rate * rtt / 1000 * queue_percent / 100,
            loss: 0,
            blackhole: false,
            ack_slot: None,
            policer: None,
            detour: Duration::ZERO,
            mark_every: 0,
        }
    }

    pub(super) fn bdp(&self) -> u64 {
        self.rate * nanos(self.rtt) / 1_000_000_000
    }
}

/// What the application has to send.
#[derive(Clone, Copy, Debug)]
pub(super) enum App {
    /// Always more.
    Bulk,
    /// This number of packets in each interval.
    Chunks { packets: u64, every: Duration },
    /// Nothing.
    Silent,
}

impl App {
    /// Returns single packets at this rate in Mbit/s.
    pub(super) fn mbit(mbit: u64) -> Self {
        Self::Chunks {
            packets: 1,
            every: Duration::from_nanos(MDS * 1_000_000_000 / (mbit * MBIT)),
        }
    }
}

/// The sender, the path and the receiver.
pub(super) struct Sim {
    recovery: Recovery<()>,
    controller: SharedController,
    out: Outcome<()>,
    pub(super) now: Instant,
    pub(super) link: Link,
    app: App,
    /// Packets the application has ready, and when it brings more.
    ready: u64,
    next_chunk: Instant,
    limit: Limit,
    pacing: Option<Instant>,
    /// Arrivals at the receiver, by time and number.
    wire: BTreeMap<(Instant, u64), ()>,
    acks: BTreeMap<(Instant, u64), Vec<RangeInclusive<u64>>>,
    busy: Instant,
    tokens: u64,
    tokens_at: Instant,
    held: Vec<u64>,
    ack_due: Option<Instant>,
    rng: Rng,
    pub(super) packets_sent: u64,
    pub(super) packets_dropped: u64,
    /// Phases in the order they were seen in.
    pub(super) phases: Vec<(Instant, Phase)>,
}

impl Sim {
    pub(super) fn new(link: Link, app: App) -> Self {
        Self::with(Box::new(Bbr::new(MDS, 1)), link, app, 1)
    }

    pub(super) fn with(bbr: Box<dyn AsBbr>, link: Link, app: App, seed: u64) -> Self {
        let controller = SharedController::new(bbr);
        let start = Instant::from_nanos(3_600_000_000_000);
        let mut recovery = Recovery::new(Config::default(), start);
        recovery.add_path(PATH, Box::new(controller.clone()), MDS, start);
        let context = PtoContext {
            handshake_confirmed: true,
            has_handshake_keys: true,
            peer_completed_address_validation: true,
            amplification_blocked: false,
        };
        recovery.set_handshake_state(context, start);
        Self {
            recovery,
            controller,
            out: Outcome::new(),
            now: start,
            link,
            app,
            ready: 0,
            next_chunk: start,
            limit: Limit::Handshake,
            pacing: None,
            wire: BTreeMap::new(),
            acks: BTreeMap::new(),
            busy: start,
            tokens: link.policer.map_or(0, |(_, burst)| burst),
            tokens_at: start,
            held: Vec::new(),
            ack_due: None,
            rng: Rng::new(seed),
            packets_sent: 0,
            packets_dropped: 0,
            phases: Vec::new(),
        }
    }

    /// Returns a reference to the controller.
    pub(super) fn bbr(&self) -> BbrRef<'_> {
        self.controller.get()
    }

    pub(super) fn phase(&self) -> Phase {
        self.bbr().phase
    }

    /// Returns the phases so far, including those that ended with the ACK that began them.
    pub(super) fn trail(&self) -> Vec<Phase> {
        self.controller.1.read().unwrap().clone()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.path().in_flight()
    }

    pub(super) fn delivered(&self) -> u64 {
        self.path().delivered()
    }

    pub(super) fn lost(&self) -> u64 {
        self.path().lost()
    }

    pub(super) fn path(&self) -> &crate::PathRecovery {
        self.recovery.path(PATH).unwrap()
    }

    pub(super) fn set_app(&mut self, app: App) {
        self.app = app;
        self.ready = 0;
        self.next_chunk = self.now;
    }

    /// Runs until `done` returns true after a step. Panics after `limit`.
    pub(super) fn until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "not after {limit:?}: {:?}", self.bbr());
            self.step(end);
        }
    }

    /// Runs until the flow is in this phase.
    pub(super) fn until_phase(&mut self, phase: Phase) {
        self.until(Duration::from_secs(60), |sim| sim.phase() == phase);
    }

    /// Runs for a time.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step(end);
        }
    }

    /// Runs for `time` and returns the bytes per second delivered.
    pub(super) fn measure(&mut self, time: Duration) -> u64 {
        let before = self.delivered();
        self.run(time);
        let delivered = self.delivered() - before;
        delivered * 1_000_000_000 / nanos(time)
    }

    /// Sends what may be sent, moves to the next event and handles it.
    pub(super) fn step(&mut self, end: Instant) {
        self.transmit();
        let arrival = self.wire.first_key_value().map(|(&(time, _), ())| time);
        let ack = self.acks.first_key_value().map(|(&(time, _), _)| time);
        let app = matches!(self.app, App::Chunks { .. }).then_some(self.next_chunk);
        let timer = self.recovery.next_timeout();
        let next = [arrival, ack, app, timer, self.pacing, self.ack_due]
            .into_iter()
            .flatten()
            .min();
        self.now = next.unwrap_or(end).min(end).max(self.now);
        self.happen();
        self.recovery.check_invariants();
        let phase = self.phase();
        if self.phases.last().is_none_or(|&(_, last)| last != phase) {
            self.phases.push((self.now, phase));
        }
        let bbr = self.bbr();
        assert!(bbr.window() >= bbr.min_window());
        assert!(bbr.pacing_rate > 0);
    }

    fn happen(&mut self) {
        if let App::Chunks { packets, every } = self.app
            && self.next_chunk <= self.now
        {
            self.ready += packets;
            self.next_chunk = self.now + every;
        }
        if let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let ((_, number), ()) = entry.remove_entry();
            self.receive(number);
        }
        if self.ack_due.is_some_and(|due| due <= self.now) {
            self.acknowledge();
        }
        if let Some(entry) = self.acks.first_entry()
            && entry.key().0 <= self.now
        {
            let (_, ranges) = entry.remove_entry();
            self.on_ack(ranges);
        }
        if self
            .recovery
            .next_timeout()
            .is_some_and(|due| due <= self.now)
        {
            self.out.clear();
            self.recovery.on_timeout(self.now, &mut self.out);
            if self.out.pto.is_some() {
                self.send();
            }
            self.requeue();
        }
    }

    fn requeue(&mut self) {
        if !matches!(self.app, App::Bulk) {
            self.ready += self.out.lost.len() as u64;
        }
    }

    fn on_ack(&mut self, ranges: Vec<RangeInclusive<u64>>) {
        self.out.clear();
        let marked = self.link.mark_every;
        let newly: u64 = ranges
            .iter()
            .map(|range| range.end() - range.start() + 1)
            .sum();
        self.recovery
            .on_ack(
                Space::Data,
                ranges.into_iter(),
                Duration::ZERO,
                self.now,
                &mut self.out,
            )
            .unwrap();
        if marked > 0
            && let Some(largest) = self.out.newly_acked.largest
            && largest.number % marked < newly
        {
            self.recovery.on_ecn_ce(PATH, largest.index, 1, self.now);
        }
        self.requeue();
    }

    fn transmit(&mut self) {
        self.pacing = None;
        loop {
            let has_data = matches!(self.app, App::Bulk) || self.ready > 0;
            if !has_data {
                return self.set_limit(Limit::Application);
            }
            if self.limit == Limit::Application && self.in_flight() == 0 {
                self.recovery.restart_from_idle(PATH, self.now);
            }
            match self.recovery.gate(PATH, self.now) {
                Gate::Open { bytes } => {
                    for _ in 0..bytes / MDS {
                        if self.ready > 0 || matches!(self.app, App::Bulk) {
                            self.ready = self.ready.saturating_sub(1);
                            self.send();
                        }
                    }
                    self.limit = Limit::Pacing;
                }
                Gate::Congestion => return self.set_limit(Limit::Congestion),
                Gate::Pacing { until } => {
                    self.pacing = Some(until);
                    return self.set_limit(Limit::Pacing);
                }
            }
        }
    }

    fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
        self.recovery.set_limit(PATH, limit, self.now);
    }

    fn send(&mut self) {
        let number = self.recovery.next_number(Space::Data);
        let info = SentInfo {
            space: Space::Data,
            path: PATH,
            number,
            now: self.now,
            size: u16::try_from(MDS).unwrap(),
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ect: true,
        };
        self.recovery.on_sent(info, ());
        self.packets_sent += 1;
        if self.is_dropped() {
            self.packets_dropped += 1;
            return;
        }
        let time = MDS * 1_000_000_000 / self.link.rate;
        self.busy = self.busy.max(self.now) + Duration::from_nanos(time);
        let arrival = self.busy + self.link.rtt / 2 + self.link.detour;
        self.wire.insert((arrival, number), ());
    }

    fn is_dropped(&mut self) -> bool {
        if self.link.blackhole || self.rng.below(1_000_000) < self.link.loss {
            return true;
        }
        if let Some((rate, burst)) = self.link.policer {
            let earned = rate * nanos(self.now - self.tokens_at) / 1_000_000_000;
            self.tokens = (self.tokens + earned).min(burst);
            self.tokens_at = self.now;
            if self.tokens < MDS {
                return true;
            }
            self.tokens -= MDS;
        }
        let waiting = nanos(self.busy - self.now) * self.link.rate / 1_000_000_000;
        waiting + MDS > self.link.queue.max(2 * MDS)
    }

    /// Every second packet is acknowledged, a lone one after a millisecond.
    fn receive(&mut self, number: u64) {
        self.held.push(number);
        if self.held.len() >= 2 {
            self.acknowledge();
        } else {
            self.ack_due = Some(self.now + MS);
        }
    }

    fn acknowledge(&mut self) {
        self.ack_due = None;
        self.held.sort_unstable();
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for number in self.held.drain(..) {
            match ranges.last_mut() {
                Some(last) if last.end() + 1 == number => *last = *last.start()..=number,
                Some(_) | None => ranges.push(number..=number),
            }
        }
        ranges.reverse();
        let mut at = self.now + self.link.rtt / 2;
        if let Some(slot) = self.link.ack_slot {
            let slot = nanos(slot);
            at = Instant::from_nanos(at.as_nanos().div_ceil(slot) * slot);
        }
        self.merge(at, ranges);
    }

    /// ACKs of one instant arrive as one.
    fn merge(&mut self, at: Instant, ranges: Vec<RangeInclusive<u64>>) {
        let waiting = self.acks.entry((at, 0)).or_default();
        waiting.extend(ranges);
        waiting.sort_unstable_by_key(|range| core::cmp::Reverse(*range.start()));
        let mut merged: Vec<RangeInclusive<u64>> = Vec::new();
        for range in waiting.drain(..) {
            match merged.last_mut() {
                Some(last) if range.end() + 1 == *last.start() => {
                    *last = *range.start()..=*last.end();
                }
                Some(_) | None => merged.push(range),
            }
        }
        *waiting = merged;
    }
}
