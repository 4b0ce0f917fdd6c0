//! One direction of a link: queue, serialiser, delay, impairments.

use core::time::Duration;

use crate::impair::{Fate, Impairments};
use crate::queue::{Carried, Queue};
use crate::serialiser::Serialiser;
use crate::transit::Transit;
use crate::{Clock, Dice, EventHeap, LinkConfig, LinkStats, Packet, Rate, Time};

/// What became of a packet offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is on its way. It may still be lost at the receiver's end.
    Accepted,
    /// The queue was full.
    QueueFull,
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
    queue: Queue,
    serialiser: Serialiser,
    transit: Transit,
    flight: EventHeap<Carried>,
    impairments: Impairments,
    /// The second copy of a packet just delivered, with its arrival.
    twin: Option<(Time, Packet)>,
    in_transit_bytes: u64,
    newest_delivered: Option<u64>,
    /// No packet could ever overtake another.
    ordered: bool,
    stats: LinkStats,
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
        let transit = Transit::new(dice(), dice());
        let origin = match config.clock {
            Clock::Absolute => Some(Time::ZERO),
            Clock::FirstPacket | Clock::Explicit => None,
        };
        Self {
            ordered: config.keeps_order(),
            config,
            origin,
            queue: Queue::default(),
            serialiser: Serialiser::default(),
            transit,
            flight: EventHeap::new(),
            impairments: Impairments::new(dice),
            twin: None,
            in_transit_bytes: 0,
            newest_delivered: None,
            stats: LinkStats::default(),
        }
    }

    /// Offers a packet to the link at `now`.
    pub fn send(&mut self, now: Time, packet: Packet) -> Verdict {
        self.advance(now);
        if self.config.clock == Clock::FirstPacket && self.origin.is_none() {
            self.origin = Some(now);
        }
        let bytes = packet.data.len() as u64;
        let payload = u32::try_from(packet.data.len()).unwrap_or(u32::MAX);
        let carried = Carried {
            packet,
            index: self.stats.sent,
            size: payload.saturating_add(self.config.overhead.0),
            since: now,
        };
        self.stats.sent += 1;
        self.stats.sent_bytes += bytes;
        if self.is_free(now) {
            self.serve(now, carried, false);
        } else if self.queue.has_room(self.config.queue, carried.size) {
            self.wait(carried);
        } else {
            self.stats.dropped_queue += 1;
            return Verdict::QueueFull;
        }
        self.in_transit_bytes += bytes;
        Verdict::Accepted
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
        if let Some((at, packet)) = self.twin.take() {
            self.count_delivery(&packet);
            return Some((at, packet));
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
    /// arrival; [`LinkConfig::clock`] is not read again.
    pub fn reconfigure(&mut self, now: Time, change: impl FnOnce(&mut LinkConfig)) {
        self.advance(now);
        change(&mut self.config);
        self.ordered &= self.config.keeps_order();
    }

    /// What the link does.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What the link counted.
    #[must_use]
    pub const fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Packets accepted whose fate is open.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.queue.len() + self.flight.len() + usize::from(self.twin.is_some())
    }

    /// UDP payload of the packets whose fate is open, in bytes.
    #[must_use]
    pub const fn in_transit_bytes(&self) -> u64 {
        self.in_transit_bytes
    }

    /// Packets waiting for the serialiser, as of the last call.
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// `at` on the clock of windows and steps.
    fn elapsed(&self, at: Time) -> Option<Duration> {
        self.origin.and_then(|origin| at.checked_since(origin))
    }

    /// Serves all that comes out of the queue by `now`.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.next_service().filter(|&at| at <= now) {
            let Some((carried, marked)) = self.queue.pop(at, self.config.mark) else {
                return;
            };
            self.stats.ce_marked += u64::from(marked);
            let waited = at - carried.since;
            self.stats.queueing_total = self.stats.queueing_total.saturating_add(waited);
            self.stats.queueing_max = self.stats.queueing_max.max(waited);
            self.serve(at, carried, true);
        }
    }

    /// Can a packet start right away?
    fn is_free(&self, now: Time) -> bool {
        match self.config.rate.at(self.elapsed(now)) {
            Rate::Stopped => false,
            Rate::Unlimited | Rate::Bits(_) => {
                self.queue.is_empty() && self.serialiser.busy_until() <= now
            }
        }
    }

    /// When the head of the queue starts.
    fn next_service(&self) -> Option<Time> {
        let at = self.queue.head_since()?.max(self.serialiser.busy_until());
        match self.config.rate.at(self.elapsed(at)) {
            Rate::Unlimited | Rate::Bits(_) => Some(at),
            Rate::Stopped => {
                let origin = self.origin?;
                self.config
                    .rate
                    .steps_after(self.elapsed(at))
                    .find(|(_, rate)| *rate != Rate::Stopped)
                    .map(|(step, _)| origin + step)
            }
        }
    }

    fn wait(&mut self, carried: Carried) {
        let marked = self.queue.push(carried, self.config.mark);
        let stats = &mut self.stats;
        stats.ce_marked += u64::from(marked);
        stats.max_queue_packets = stats.max_queue_packets.max(self.queue.len() as u64);
        stats.max_queue_bytes = stats.max_queue_bytes.max(self.queue.bytes());
    }

    /// Serialises a packet. Service is never interrupted, so its departure and
    /// arrival are known at once.
    fn serve(&mut self, at: Time, carried: Carried, backlogged: bool) {
        let departed = match self.config.rate.at(self.elapsed(at)) {
            Rate::Bits(rate) => self.serialiser.start(at, carried.size, rate, backlogged),
            // Stopped never gets here: `is_free` and `next_service` wait.
            Rate::Unlimited | Rate::Stopped => at,
        };
        let elapsed = self.elapsed(departed);
        let arrival = self.transit.arrival(&self.config, departed, elapsed);
        self.flight.push(arrival, carried);
    }

    /// The receiver's end.
    fn receive(&mut self, at: Time, carried: Carried) -> Option<Packet> {
        let Carried {
            mut packet, index, ..
        } = carried;
        let elapsed = self.elapsed(at);
        let fate = self
            .impairments
            .meet(&self.config, elapsed, index + 1, &mut packet);
        let bytes = packet.data.len() as u64;
        match fate {
            Fate::Blackholed => self.stats.dropped_blackhole += 1,
            Fate::Listed => self.stats.dropped_list += 1,
            Fate::Lost => self.stats.dropped_loss += 1,
            Fate::Arrives {
                corrupted,
                duplicated,
            } => {
                self.stats.corrupted += u64::from(corrupted);
                if duplicated {
                    self.stats.duplicated += 1;
                    self.in_transit_bytes += bytes;
                    self.twin = Some((at, packet.clone()));
                }
                let overtaken = self.newest_delivered.is_some_and(|newest| newest > index);
                self.stats.reordered += u64::from(overtaken);
                self.newest_delivered = self.newest_delivered.max(Some(index));
                self.count_delivery(&packet);
                return Some(packet);
            }
        }
        self.in_transit_bytes -= bytes;
        None
    }

    fn count_delivery(&mut self, packet: &Packet) {
        let bytes = packet.data.len() as u64;
        self.in_transit_bytes -= bytes;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += bytes;
    }
}

#[cfg(test)]
mod tests;
