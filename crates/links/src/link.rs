//! One direction of a link: queue, serialiser, delay, impairments.

use core::time::Duration;

use crate::impair::{Fate, Impairments};
use crate::ledger::{Carried, Ledger};
use crate::policer::Bucket;
use crate::queue::Queue;
use crate::serialiser::Serialiser;
use crate::transit::Transit;
use crate::{
    Clock, Dice, DropCause, EventHeap, LinkConfig, LinkStats, MarkAt, Packet, QueueLimit, Tap, Time,
};

/// What became of a packet offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is on its way. It may still be dropped: by queue management when its
    /// turn comes, by a full FQ-CoDel queue that finds its flow the fattest,
    /// or at the receiver's end.
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
/// The caller passes the time to [`Link::send`] and [`Link::poll`], which must
/// never go back. Nothing depends on how punctually the caller polls: what
/// happens inside happens at the times it should, so a relay that wakes late
/// takes the same decisions as a simulation that wakes on time.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    /// When the clock of windows and steps started.
    origin: Option<Time>,
    bucket: Bucket,
    queue: Queue,
    /// When what waits began to wait, or the link was changed since.
    backlog_since: Time,
    serialiser: Serialiser,
    transit: Transit,
    flight: EventHeap<Carried>,
    impairments: Impairments,
    /// The second copy of a packet just delivered, with its arrival.
    twin: Option<(Time, Carried)>,
    newest_delivered: Option<u64>,
    /// No packet could ever overtake another.
    ordered: bool,
    ledger: Ledger,
}

impl Link {
    /// A link that takes its random decisions from `seed`.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let mut stream = 0;
        let mut dice = || {
            stream += 1;
            Dice::new(seed, stream)
        };
        // New purposes go last: the streams of the others stay what they were.
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
        let carried = Carried {
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

    /// Puts a packet in line, and serves it at once if nothing is before it.
    fn enqueue(&mut self, now: Time, mut carried: Carried) -> Verdict {
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
        // What can start right away does not wait, so no limit applies.
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

    /// As [`Link::poll`], with the time of arrival, which is before `now` if
    /// the caller is late.
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
            // What still waits can only arrive after all that flies.
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

    /// When the clock of windows and steps started; `None`: not yet.
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
        // What the change lets go goes now, not in the past.
        self.backlog_since = self.backlog_since.max(now);
    }

    /// What the link does.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What the link counted.
    #[must_use]
    pub const fn stats(&self) -> &LinkStats {
        &self.ledger.stats
    }

    /// Has `tap` see what happens from now on, or nobody; returns the tap that
    /// did until now. Copies of the link have none.
    pub fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) -> Option<Box<dyn Tap>> {
        self.ledger.set_tap(tap)
    }

    /// Packets accepted whose fate is open.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.queue.depth().packets + self.flight.len() + usize::from(self.twin.is_some())
    }

    /// UDP payload of the packets whose fate is open, in bytes.
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

    /// Serves all that comes out of the queue by `now`.
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

    /// When a packet can start that waits at `at`; `None`: not before the link
    /// is changed.
    fn start_from(&self, at: Time) -> Option<Time> {
        self.serialiser.next_start(&self.config, self.origin, at)
    }

    /// Takes the next packet out of the queue at `at` and serialises it.
    /// Service is never interrupted, so its departure and arrival are known
    /// at once.
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
        self.flight.push(arrival, carried);
    }

    /// The receiver's end.
    fn receive(&mut self, at: Time, mut carried: Carried) -> Option<Packet> {
        let elapsed = self.elapsed(at);
        let number = carried.index + 1;
        let fate = self
            .impairments
            .meet(&self.config, elapsed, number, &mut carried.packet);
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
