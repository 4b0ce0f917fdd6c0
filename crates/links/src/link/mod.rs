//! One direction of a link: queue, serialiser, delay, impairments.

use core::time::Duration;

use crate::impair::{Fate, Impairments};
use crate::ledger::{Ledger, QueuedPacket};
use crate::policer::Bucket;
use crate::queue::Queue;
use crate::serialiser::Serialiser;
use crate::transit::Transit;
use crate::{
    Clock, Dice, DropCause, EventHeap, LinkConfig, LinkStats, MarkAt, Packet, QueueLimit, Tap, Time,
};

/// What happened to a packet offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The packet is on its way. It may still be dropped: by queue management when it is dequeued,
    /// by a full FQ-CoDel queue of which its flow is the longest, or at the receiver's end.
    Accepted,
    /// The queue was full.
    QueueFull,
    /// Queue management dropped it on arrival (PIE).
    DroppedEarly,
    /// The policer's bucket held too few tokens.
    Policed,
}

/// One direction of a link.
///
/// The caller passes the time to [`Link::send`] and [`Link::poll`]; it must never go back.
/// Decisions do not depend on how punctually the caller polls: events take effect at their nominal
/// times, so a relay that wakes late takes the same decisions as a simulation that wakes on time.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    /// When the clock of windows and steps started.
    origin: Option<Time>,
    bucket: Bucket,
    queue: Queue,
    /// Since when the head of the queue can have been waiting: when it was queued, or when the link
    /// last changed.
    backlog_since: Time,
    serialiser: Serialiser,
    transit: Transit,
    flight: EventHeap<QueuedPacket>,
    impairments: Impairments,
    /// The second copy of a packet just delivered, with its arrival.
    twin: Option<(Time, QueuedPacket)>,
    newest_delivered: Option<u64>,
    /// Whether no packet could ever have overtaken another.
    ordered: bool,
    ledger: Ledger,
}

impl Link {
    /// Creates a link that takes its random decisions from `seed`.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let mut stream = 0;
        let mut dice = || {
            stream += 1;
            Dice::new(seed, stream)
        };
        // New purposes are appended, so that the streams of the others stay the same.
        let (jitter, reorder) = (dice(), dice());
        let impairments = Impairments::new(&mut dice);
        let queue = Queue::new(config.aqm, dice());
        let transit = Transit::new(jitter, reorder, dice());
        let origin = match config.clock {
            Clock::Absolute => Some(Time::ZERO),
            Clock::FirstPacket | Clock::Explicit => None,
        };
        Self {
            ordered: config.keeps_order(),
            config,
            origin,
            bucket: Bucket::default(),
            queue,
            backlog_since: Time::ZERO,
            serialiser: Serialiser::default(),
            transit,
            flight: EventHeap::new(),
            impairments,
            twin: None,
            newest_delivered: None,
            ledger: Ledger::default(),
        }
    }

    /// Offers a packet to the link at `now`.
    pub fn send(&mut self, now: Time, packet: Packet) -> Verdict {
        self.advance(now);
        if self.config.clock == Clock::FirstPacket && self.origin.is_none() {
            self.origin = Some(now);
        }
        let payload = u32::try_from(packet.data.len()).unwrap_or(u32::MAX);
        let carried = QueuedPacket {
            packet,
            index: self.ledger.stats.sent,
            size: payload.saturating_add(self.config.overhead.0),
            since: now,
        };
        self.ledger.offered(now, &carried);
        if let Some(policer) = self.config.police
            && !self.bucket.admits(policer, now, carried.size)
        {
            self.ledger.dropped(now, &carried, DropCause::Policed);
            return Verdict::Policed;
        }
        self.enqueue(now, carried)
    }

    /// Enqueues a packet, and serialises it at once if the queue was empty.
    fn enqueue(&mut self, now: Time, mut carried: QueuedPacket) -> Verdict {
        let depth = self.queue.depth();
        if depth.packets == 0 {
            self.backlog_since = now;
        }
        let deep = match self.config.mark {
            None | Some(MarkAt::Sojourn(_)) => false,
            Some(MarkAt::Packets(packets)) => depth.packets >= packets as usize,
            Some(MarkAt::Bytes(bytes)) => depth.bytes >= bytes,
        };
        let free = depth.packets == 0 && self.start_from(now) == Some(now);
        // A packet that can start at once is not queued, so no limit applies.
        let limit = if free {
            QueueLimit::Unlimited
        } else {
            self.config.queue.at(self.elapsed(now))
        };
        if deep && depth.has_room(limit, carried.size) {
            self.ledger.mark(now, &mut carried);
        }
        let verdict = self.queue.push(now, carried, limit, &mut self.ledger);
        if free {
            self.serve(now);
        } else if verdict == Verdict::Accepted {
            self.ledger.waits(self.queue.depth());
        }
        verdict
    }

    /// The next packet that has arrived by `now`, in order of arrival.
    ///
    /// Call it until it returns `None`.
    pub fn poll(&mut self, now: Time) -> Option<Packet> {
        self.poll_timed(now).map(|(_, packet)| packet)
    }

    /// Like [`Link::poll`], with the time of arrival, which is before `now` if the caller is late.
    pub fn poll_timed(&mut self, now: Time) -> Option<(Time, Packet)> {
        if let Some((at, carried)) = self.twin.take() {
            self.ledger.delivered(at, &carried, false, true);
            return Some((at, carried.packet));
        }
        self.advance(now);
        while let Some((at, carried)) = self.flight.pop_due(now) {
            if let Some(packet) = self.receive(at, carried) {
                return Some((at, packet));
            }
        }
        None
    }

    /// When to call [`Link::poll`] next; `None`: not before another call of
    /// [`Link::send`], [`Link::reconfigure`] or [`Link::start_windows_at`].
    ///
    /// A poll at that time need not yield a packet: it may have been lost, or
    /// may only have come out of the queue.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        if let Some((at, _)) = &self.twin {
            return Some(*at);
        }
        match (self.flight.next_time(), self.next_service()) {
            // Packets still queued can only arrive after all packets in flight.
            (Some(arrival), _) if self.ordered => Some(arrival),
            (Some(arrival), Some(service)) => Some(arrival.min(service)),
            (arrival, service) => arrival.or(service),
        }
    }

    /// Starts the clock of windows and steps at `at`, whatever
    /// [`LinkConfig::clock`] says.
    pub fn start_windows_at(&mut self, at: Time) {
        self.origin = Some(at);
    }

    /// When the clock of windows and steps started; `None` if it has not.
    #[must_use]
    pub const fn windows_started(&self) -> Option<Time> {
        self.origin
    }

    /// Changes the link from `now` on. Packets already in flight keep their
    /// arrival, but meet the new impairments; so poll first for those that have
    /// arrived. [`LinkConfig::clock`] is not read again.
    pub fn reconfigure(&mut self, now: Time, change: impl FnOnce(&mut LinkConfig)) {
        self.advance(now);
        change(&mut self.config);
        self.ordered &= self.config.keeps_order();
        self.queue.manage(now, self.config.aqm, &mut self.ledger);
        // Packets that the change releases leave now, not in the past.
        self.backlog_since = self.backlog_since.max(now);
    }

    /// The current configuration.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> &LinkStats {
        &self.ledger.stats
    }

    /// Attaches `tap`, or detaches it with `None`; returns the previous one. Clones of the link
    /// have none.
    pub fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) -> Option<Box<dyn Tap>> {
        self.ledger.set_tap(tap)
    }

    /// Number of packets in transit: accepted, and neither delivered nor dropped.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.queue.depth().packets + self.flight.len() + usize::from(self.twin.is_some())
    }

    /// UDP payload of the packets in transit, in bytes.
    #[must_use]
    pub const fn in_transit_bytes(&self) -> u64 {
        self.ledger.in_transit_bytes
    }

    /// Packets waiting for the serialiser, as of the last call.
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.queue.depth().packets
    }

    /// Bytes waiting for the serialiser with headers, as of the last call.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        self.queue.depth().bytes
    }

    /// `at` on the clock of windows and steps.
    fn elapsed(&self, at: Time) -> Option<Duration> {
        self.origin.and_then(|origin| at.checked_since(origin))
    }

    /// Serialises all packets that leave the queue by `now`.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.next_service().filter(|&at| at <= now) {
            self.serve(at);
        }
    }

    /// When the next packet leaves the queue.
    fn next_service(&self) -> Option<Time> {
        if self.queue.is_empty() {
            return None;
        }
        self.start_from(self.backlog_since)
    }

    /// When a packet that has been waiting since `at` can start; `None`: not before the link is
    /// changed.
    fn start_from(&self, at: Time) -> Option<Time> {
        self.serialiser.next_start(&self.config, self.origin, at)
    }

    /// Dequeues the next packet at `at` and serialises it. Service is never interrupted, so its
    /// departure and arrival are known at once.
    fn serve(&mut self, at: Time) {
        let Some(mut carried) = self.queue.pop(at, &mut self.ledger) else {
            return;
        };
        if let Some(MarkAt::Sojourn(limit)) = self.config.mark
            && carried.waited(at) >= limit
        {
            self.ledger.mark(at, &mut carried);
        }
        self.ledger.departed(at, &carried, self.queue.depth());
        let departed = self
            .serialiser
            .start(&self.config, self.origin, at, &carried);
        let arrival = self.transit.arrival(&self.config, self.origin, departed);
        self.impairments
            .on_departure(&self.config, &carried, departed);
        self.flight.push(arrival, carried);
    }

    /// The receiver's end.
    fn receive(&mut self, at: Time, mut carried: QueuedPacket) -> Option<Packet> {
        let elapsed = self.elapsed(at);
        let fate = self
            .impairments
            .meet(&self.config, at, elapsed, &mut carried);
        match fate {
            Fate::Dropped(cause) => {
                self.ledger.dropped(at, &carried, cause);
                None
            }
            Fate::Arrives {
                corrupted,
                duplicated,
            } => {
                let stats = &mut self.ledger.stats;
                stats.corrupted += u64::from(corrupted);
                let newest = self.newest_delivered;
                let overtaken = newest.is_some_and(|newest| newest > carried.index);
                stats.reordered += u64::from(overtaken);
                self.newest_delivered = newest.max(Some(carried.index));
                self.ledger.delivered(at, &carried, corrupted, false);
                if duplicated {
                    self.ledger.duplicated(&carried);
                    self.twin = Some((at, carried.clone()));
                }
                Some(carried.packet)
            }
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
