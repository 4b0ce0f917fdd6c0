//! One bulk sender over one bottleneck in virtual time: just enough of a transport to
//! report consistent events to a controller.

use std::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use crate::controller::{Ack, Congestion, CongestionCause, Controller, SendIndex, Sent};
use crate::limit::Limit;
use crate::loss::{PACKET_THRESHOLD, TIME_THRESHOLD_EIGHTHS};
use crate::rate::Delivery;
use crate::time::{Instant, nanos};

use super::testing::MDS;

/// Which packets the network drops.
#[derive(Clone, Copy, Debug)]
pub(super) enum Drops {
    /// Every n-th packet.
    Every(u64),
    /// This percentage at random until an instant, none after it.
    PercentUntil(u64, Instant),
    /// Packets that arrive at a full queue.
    Overflow,
}

/// The path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Time there and back without a queue.
    pub(super) rtt: Duration,
    /// Time the bottleneck needs for one packet.
    pub(super) per_packet: Duration,
    /// Packets the bottleneck holds.
    pub(super) queue: u64,
    pub(super) drops: Drops,
    /// The receiver acknowledges every n-th packet, or after 1 ms.
    pub(super) ack_every: u64,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    sent: Instant,
}

/// The sender, the path and the receiver.
pub(super) struct Sim {
    pub(super) controller: Box<dyn Controller>,
    pub(super) now: Instant,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    link: Link,
    ledger: BTreeMap<SendIndex, InFlight>,
    next_index: SendIndex,
    largest_acked: Option<SendIndex>,
    /// Packets on their way, in order of arrival.
    wire: VecDeque<(Instant, SendIndex)>,
    /// The bottleneck is busy until then.
    busy: Instant,
    /// Arrived, not yet acknowledged.
    held: Vec<SendIndex>,
    ack_due: Option<Instant>,
    pto_count: u32,
    last_sent: Instant,
    /// State of the loss generator.
    rng: u64,
    /// Arrival of each ACK that acknowledged something.
    acks: Vec<Instant>,
}

impl Sim {
    pub(super) fn new(controller: Box<dyn Controller>, link: Link, seed: u64) -> Self {
        Self {
            controller,
            now: Instant::ZERO,
            delivered: 0,
            lost: 0,
            link,
            ledger: BTreeMap::new(),
            next_index: 0,
            largest_acked: None,
            wire: VecDeque::new(),
            busy: Instant::ZERO,
            held: Vec::new(),
            ack_due: None,
            pto_count: 0,
            last_sent: Instant::ZERO,
            rng: seed,
            acks: Vec::new(),
        }
    }

    /// From `start` to the next ACK.
    pub(super) fn silence_after(&self, start: Instant) -> Duration {
        let next = self.acks.iter().find(|&&ack| ack >= start);
        next.map_or(Duration::MAX, |&ack| ack - start)
    }

    fn in_flight(&self) -> u64 {
        self.ledger.len() as u64 * MDS
    }

    /// Runs until `end`; `observe` is called after every step.
    pub(super) fn run_until(&mut self, end: Instant, mut observe: impl FnMut(&Self)) {
        self.fill_window();
        while let Some(next) = self.next_event().filter(|&next| next <= end) {
            self.now = next;
            self.step();
            assert!(self.controller.window() >= self.controller.min_window());
            observe(self);
        }
        self.now = end;
    }

    fn next_event(&self) -> Option<Instant> {
        let arrival = self.wire.front().map(|&(time, _)| time);
        [arrival, self.ack_due, self.loss_time(), self.pto()]
            .into_iter()
            .flatten()
            .min()
    }

    fn loss_time(&self) -> Option<Instant> {
        let largest = self.largest_acked?;
        let (_, first) = self.ledger.range(..largest).next()?;
        Some(first.sent + self.loss_delay())
    }

    fn loss_delay(&self) -> Duration {
        self.longest_rtt() * TIME_THRESHOLD_EIGHTHS / 8
    }

    /// Returns an upper bound of the RTT, in the place of an estimator.
    fn longest_rtt(&self) -> Duration {
        let queue = self.link.per_packet * u32::try_from(self.link.queue).unwrap();
        self.link.rtt + Duration::from_millis(1) + queue
    }

    fn pto(&self) -> Option<Instant> {
        let wait = self.longest_rtt() * 2 * (1 << self.pto_count.min(16));
        (!self.ledger.is_empty()).then(|| self.last_sent + wait)
    }

    /// Exactly one thing happens.
    fn step(&mut self) {
        if self.wire.front().is_some_and(|&(time, _)| time <= self.now) {
            self.arrive();
        } else if self.ack_due.is_some_and(|due| due <= self.now) {
            self.acknowledge();
        } else if self.loss_time().is_some_and(|due| due <= self.now) {
            self.declare_lost(0);
        } else {
            self.pto_count += 1;
            self.send();
        }
        self.fill_window();
    }

    fn fill_window(&mut self) {
        while self.in_flight() + MDS <= self.controller.window() {
            self.send();
        }
        self.controller.on_limit(Limit::Congestion, self.now);
    }

    fn send(&mut self) {
        let index = self.next_index;
        self.next_index += 1;
        self.controller.on_sent(&Sent {
            now: self.now,
            bytes: MDS,
            index,
            in_flight_before: self.in_flight(),
            app_limited: false,
        });
        self.ledger.insert(index, InFlight { sent: self.now });
        self.last_sent = self.now;
        if !self.dropped(index) {
            self.busy = self.busy.max(self.now) + self.link.per_packet;
            // The whole delay lies on the way there; ACKs come back at once.
            self.wire.push_back((self.busy + self.link.rtt, index));
        }
    }

    fn dropped(&mut self, index: SendIndex) -> bool {
        match self.link.drops {
            Drops::Every(n) => index % n == n - 1,
            Drops::PercentUntil(percent, until) => {
                // Marsaglia's xorshift64.
                self.rng ^= self.rng << 13;
                self.rng ^= self.rng >> 7;
                self.rng ^= self.rng << 17;
                self.now < until && self.rng % 100 < percent
            }
            Drops::Overflow => {
                let backlog = nanos(self.busy - self.now);
                backlog >= self.link.queue * nanos(self.link.per_packet)
            }
        }
    }

    fn arrive(&mut self) {
        let Some((_, index)) = self.wire.pop_front() else {
            return;
        };
        self.held.push(index);
        if self.held.len() as u64 >= self.link.ack_every {
            self.acknowledge();
        } else if self.ack_due.is_none() {
            self.ack_due = Some(self.now + Duration::from_millis(1));
        }
    }

    fn acknowledge(&mut self) {
        self.ack_due = None;
        let in_flight_before = self.in_flight();
        let held = std::mem::take(&mut self.held);
        let newly: Vec<(SendIndex, InFlight)> = held
            .into_iter()
            .filter_map(|index| Some((index, self.ledger.remove(&index)?)))
            .collect();
        let Some(&(largest, newest)) = newly.last() else {
            return;
        };
        self.pto_count = 0;
        self.acks.push(self.now);
        self.largest_acked = self.largest_acked.max(Some(largest));
        let bytes = newly.len() as u64 * MDS;
        self.delivered += bytes;
        let lost_bytes = self.declare_lost(bytes);
        let rtt = self.now - newest.sent;
        self.controller.on_ack(&Ack {
            now: self.now,
            bytes,
            packets: newly.len() as u64,
            largest_index: largest,
            largest_sent_time: newest.sent,
            next_index: self.next_index,
            in_flight_before,
            in_flight_after: self.in_flight(),
            lost_bytes,
            window_used_bytes: bytes,
            mean_age: rtt,
            rtt_sample: Some(rtt),
            smoothed_rtt: rtt,
            min_rtt: self.link.rtt,
            rate: None,
            delivery: Delivery::default(),
        });
    }

    /// Removes the packets that are lost by now and tells the controller. Returns their
    /// bytes.
    fn declare_lost(&mut self, acked_bytes: u64) -> u64 {
        let Some(largest) = self.largest_acked else {
            return 0;
        };
        let in_flight_before = self.in_flight() + acked_bytes;
        let (now, delay) = (self.now, self.loss_delay());
        let gone = |index: SendIndex, packet: &InFlight| {
            index + PACKET_THRESHOLD <= largest || packet.sent + delay <= now
        };
        let lost: Vec<(SendIndex, InFlight)> = self
            .ledger
            .range(..largest)
            .filter(|&(&index, packet)| gone(index, packet))
            .map(|(&index, &packet)| (index, packet))
            .collect();
        let (Some(&(_, oldest)), Some(&(newest_index, newest))) = (lost.first(), lost.last())
        else {
            return 0;
        };
        for (index, _) in &lost {
            self.ledger.remove(index);
        }
        let packets = lost.len() as u64;
        self.lost += packets * MDS;
        let contiguous = newest_index - lost[0].0 + 1 == packets;
        self.controller.on_congestion(&Congestion {
            now: self.now,
            cause: CongestionCause::Loss,
            largest_index: newest_index,
            next_index: self.next_index,
            lost_bytes: packets * MDS,
            packets,
            lost_ranges: 1,
            in_flight_before,
            in_flight_after: self.in_flight(),
            acked_bytes,
            persistent: contiguous && newest.sent - oldest.sent > self.longest_rtt() * 6,
            largest_tx_in_flight: 0,
        });
        packets * MDS
    }
}
