//! What an ideal sender could do in a network.

use super::envelope::{Envelope, Growth, Response};
use super::genome::{AckPolicy, Application, BurstLoss, Genome, PACKET, Permille, QueueManagement};

/// Payload of a full datagram's bytes on the wire, with room for frames and acknowledgements.
const PAYLOAD: f64 = 0.92;

/// Data per acknowledgement, both in bytes on the wire: two full datagrams for 74 bytes.
const DATA_PER_ACK: u64 = 40;

/// Bytes of a handshake towards the client and back, with one of three packets sent again.
const HANDSHAKE: (u64, u64) = (8_000, 4_000);

/// Round trips through a full queue after the rate has fallen. Feedback is that late, and BBR
/// replaces its bandwidth in two cycles of three round trips.
const LOADED_ROUNDS: u64 = 6;

/// Milliseconds of queue that queue management leaves: PIE's target is 15 (RFC 8033 §4.2).
const MANAGED_QUEUE: u64 = 20;

/// The window of a model in bandwidth-delay products (draft-ietf-ccwg-bbr §2.6).
const MODEL_WINDOW: u64 = 2;

/// Milliseconds for which a model keeps the least round trip that it has met
/// (MinRTTFilterLen of draft-ietf-ccwg-bbr).
const MIN_RTT_FILTER: u64 = 10_000;

/// Round trips, besides its own, after which a packet that is late counts as lost: loss recovery
/// waits for four at most.
const LATEST_ROUNDS: u64 = 3;

/// Packets for which a peer that acknowledges every tenth waits, and the microseconds after which
/// it acknowledges fewer (RFC 9000 §13.2.1, `max_ack_delay`).
const EVERY_TENTH: (u64, u64) = (10, 25_000);

/// The largest window of a sawtooth, as a multiple of its mean.
const PEAK: f64 = 4.0 / 3.0;

/// A network as a sender with this envelope could use it at best.
pub(super) struct Ideal<'a> {
    pub(super) genome: &'a Genome,
    envelope: &'a Envelope,
    /// Milliseconds for which nothing is asked after a change.
    settle: u64,
}

impl<'a> Ideal<'a> {
    pub(super) fn new(genome: &'a Genome, envelope: &'a Envelope) -> Self {
        let mut this = Self {
            genome,
            envelope,
            settle: 0,
        };
        this.settle = this.settling_time();
        this
    }

    pub(super) const fn settle(&self) -> u64 {
        self.settle
    }

    fn settling_time(&self) -> u64 {
        let own = &self.envelope.settle;
        let rtt = self.longest_of(0, 1_000);
        let packets = self.packets_at_most();
        let growth = match self.envelope.growth {
            Growth::Multiplicative => 0,
            // Twice the time to the plateau from nothing: W = C t³ with C = 0.4.
            Growth::Cubic => (2_000.0 * (packets as f64 / 0.4).cbrt()) as u64,
            Growth::Additive => packets / 2 * self.loaded_rtt() / 1_000,
        };
        own.time.0 + own.rtts * rtt / 1_000 + growth + self.handshakes() + self.fall()
    }

    /// Milliseconds that the handshakes of all flows take.
    fn handshakes(&self) -> u64 {
        let (down, up) = HANDSHAKE;
        let slowest = (0..100).map(|part| self.genome.rate_at(part * 10)).min();
        let down = down * 8 / slowest.unwrap_or(1).max(1);
        let up = up * 8 / self.uplink();
        self.genome.flows() * down.max(up)
    }

    /// Milliseconds that the feedback of a fall of the rate waits for in the queue.
    fn fall(&self) -> u64 {
        let mut rate = 1_000;
        let falls = self.genome.rate_steps.iter().any(|step| {
            let before = core::mem::replace(&mut rate, step.to);
            step.to < before
        });
        let queue = self.genome.queue_bytes() * 8 / self.slowest();
        if falls { LOADED_ROUNDS * queue } else { 0 }
    }

    /// The rate towards the server in kbit/s, which follows no step.
    fn uplink(&self) -> u64 {
        (self.genome.rate * u64::from(self.genome.uplink) / 1_000).max(1)
    }

    /// Packets of one flow in a full path at its fastest.
    fn packets_at_most(&self) -> u64 {
        let fastest = (0..100).map(|part| self.genome.rate_at(part * 10)).max();
        let bdp = fastest.unwrap_or(0) * self.longest_of(0, 1_000) / 8_000;
        (bdp + self.genome.queue_bytes()) / PACKET / self.genome.flows()
    }

    /// Packets of one flow in a full path at its slowest.
    pub(super) fn packets_of_a_flow(&self) -> u64 {
        let bdp = self.slowest() * u64::from(self.genome.rtt) / 8_000;
        (bdp + self.usable_queue()) / PACKET / self.genome.flows()
    }

    /// Whether the minimum windows of all flows, of two packets or a model's four, fit into the full
    /// path. Where they do not, most packets are lost, those of handshakes among them, which probe
    /// timeouts then keep from beginning.
    pub(super) fn holds_minimum_windows(&self) -> bool {
        let least = match self.envelope.growth {
            Growth::Cubic | Growth::Additive => 2,
            Growth::Multiplicative => 4,
        };
        self.packets_of_a_flow() >= least
    }

    /// Whether a cubic's way to its plateau, K = ∛(0.3 W / C) seconds (RFC 9438 §4.2), is long beside
    /// a round trip through a full queue. Where it is not, the curve passes the plateau before it
    /// hears of a loss, again and again: 6 to 11 % of 24 packets over two seconds.
    pub(super) fn has_plateau(&self) -> bool {
        const ROUNDS: u64 = 2;
        let packets = self.packets_of_a_flow() as f64;
        let millis = 1_000.0 * (0.3 * packets / 0.4).cbrt();
        let is_cubic = self.envelope.growth == Growth::Cubic;
        !is_cubic || millis >= (ROUNDS * self.loaded_rtt() / 1_000) as f64
    }

    /// Bytes that may wait for long without a loss.
    fn usable_queue(&self) -> u64 {
        // A policer has no queue: what is beyond its rate is lost before the bottleneck's.
        if self.genome.policer.is_some_and(|it| it.rate < 1_000) {
            return 0;
        }
        let all = self.genome.queue_bytes();
        match self.genome.management {
            QueueManagement::DropTail | QueueManagement::StepMarking(_) => all,
            QueueManagement::Codel
            | QueueManagement::FqCodel
            | QueueManagement::Pie
            | QueueManagement::DualQ => all.min(self.slowest() * MANAGED_QUEUE / 8),
        }
    }

    /// The rate in kbit/s at which the window of a model holds the sender: it is computed from
    /// the shortest round trip, and where delays vary much, feedback takes longer than that.
    fn window_at(&self, at: Permille) -> u64 {
        match self.envelope.growth {
            Growth::Cubic | Growth::Additive => u64::MAX,
            Growth::Multiplicative => {
                let rtt = self.genome.rtt_at(at);
                let mean = rtt + self.extra_delay() / 2;
                self.genome.rate_at(at) * MODEL_WINDOW * rtt / mean.max(1)
            }
        }
    }

    /// The rate in kbit/s at which slots that are longer than the path hold a window. They release
    /// all of it at once, and the pacer spreads it over four fifths of the smoothed round trip,
    /// which is half a slot shorter than the time to the next release. The queue has to hold the
    /// rest.
    fn slots_at(&self, at: Permille) -> u64 {
        let slot = u64::from(self.genome.slots.max(self.genome.ack_slots));
        let rtt = self.genome.rtt_at(at);
        if slot <= rtt || self.envelope.growth == Growth::Multiplicative {
            return u64::MAX;
        }
        let rate = self.genome.rate_at(at);
        let paced = rate * (rtt + slot / 2) * 4 / 5;
        let queued = self.answered_queue(rate) * 8_000;
        (paced + queued) / (rtt + slot)
    }

    /// Bytes that may wait at this rate in kbit/s before the window is reduced: what waits longer
    /// than a queue that marks allows is answered as a loss is.
    fn answered_queue(&self, rate: u64) -> u64 {
        match self.genome.management {
            QueueManagement::StepMarking(millis) if self.genome.ecn => rate * u64::from(millis) / 8,
            _ => self.usable_queue(),
        }
    }

    /// The rate in kbit/s at which a peer holds windows that waits for more packets than they have:
    /// each of their rounds is longer by its delay. The windows go, in equal steps, from what a
    /// reduction leaves to what path and queue hold, or random loss allows.
    fn ack_delay_at(&self, at: Permille) -> u64 {
        let remains = match self.envelope.growth {
            Growth::Multiplicative => return u64::MAX,
            Growth::Cubic => 0.7,
            Growth::Additive => 0.5,
        };
        if self.genome.acks != AckPolicy::EveryTenth {
            return u64::MAX;
        }
        let (packets, delay) = EVERY_TENTH;
        let rate = self.limit_at(at).max(1);
        let rtt = self.genome.rtt_at(at) + self.extra_delay();
        let flows = self.genome.flows();
        let path = (rate * rtt / 8_000 + self.answered_queue(rate)) / PACKET / flows;
        let held = self.response_window(rtt as f64 / 1e6);
        let most = held
            .map_or(path, |mean| path.min((mean * PEAK) as u64))
            .max(2);
        let least = ((most as f64 * remains) as u64).max(2);
        if least >= packets {
            return u64::MAX;
        }
        let of_flows = |window: u64| flows * window * PACKET * 8_000;
        let round = |window: u64| {
            let delayed = if window < packets { delay } else { 0 };
            (of_flows(window) / rate).max(rtt + delayed)
        };
        let time: u64 = (least..=most).map(round).sum();
        (least..=most).map(of_flows).sum::<u64>() / time.max(1)
    }

    /// Milliseconds for which a packet may wait before a step marks it.
    pub(super) fn unmarked_wait(&self) -> u64 {
        match self.genome.management {
            QueueManagement::StepMarking(millis) => millis.into(),
            _ => 0,
        }
    }

    /// The longest round trip in microseconds, without queueing, between two moments.
    fn longest_of(&self, from: Permille, to: Permille) -> u64 {
        let longest = (from / 10..=to / 10).map(|part| self.genome.rtt_at(part * 10));
        longest.max().unwrap_or(0) + self.extra_delay()
    }

    /// Delay in microseconds that is neither propagation nor queue.
    fn extra_delay(&self) -> u64 {
        let jitter = self.genome.jitter.map_or(0, |jitter| jitter.max);
        u64::from(self.genome.slots) + u64::from(self.genome.ack_slots) + u64::from(jitter)
    }

    /// The longest round trip in microseconds, without queueing.
    pub(super) fn longest_rtt(&self) -> u64 {
        self.longest_of(0, 1_000)
    }

    /// The longest round trip in microseconds with a full queue.
    pub(super) fn loaded_rtt(&self) -> u64 {
        let queue = self.genome.queue_bytes() * 8_000 / self.slowest().max(1);
        self.longest_rtt() + queue
    }

    /// The slowest rate in kbit/s.
    pub(super) fn slowest(&self) -> u64 {
        let slowest = (0..100).map(|part| self.limit_at(part * 10)).min();
        slowest.unwrap_or(1).max(1)
    }

    pub(super) fn longest_outage(&self) -> u64 {
        let longest = self.genome.outages.iter().map(|outage| outage.millis);
        longest.max().unwrap_or(0).into()
    }

    /// Share of packets that the path loses, or delivers so late that they count as lost.
    pub(super) fn loss(&self) -> f64 {
        let bursts = self.genome.bursts.map_or(0, BurstLoss::ppm);
        (u64::from(self.genome.loss) + bursts + self.lost_by_delay()) as f64 / 1e6
    }

    /// Parts per million of the packets that arrive so late in the half that is judged that they
    /// count as lost.
    fn lost_by_delay(&self) -> u64 {
        let latest = LATEST_ROUNDS * self.longest_of(500, 1_000);
        let late = self.genome.late.filter(|late| u64::from(late.by) > latest);
        late.map_or(0, |late| u64::from(late.ppm))
    }

    /// Whether the first flights of servers that begin at the same moment fit into the queue. They come
    /// from handshakes, are not paced, and those that are lost are sent again all at once, too: a
    /// handshake may be lost four times, and its probe timeouts are of 1, 2, 4 and 8 seconds.
    pub(super) fn holds_first_flights(&self) -> bool {
        const FIRST_FLIGHT: u64 = 3;
        let groups = self.genome.neighbours.iter();
        let most = groups.map(|each| u64::from(each.count)).max().unwrap_or(0);
        most * FIRST_FLIGHT * PACKET <= self.genome.queue_bytes()
    }

    pub(super) const fn marks(&self) -> bool {
        self.genome.ecn && !matches!(self.genome.management, QueueManagement::DropTail)
    }

    pub(super) const fn is_bulk(&self) -> bool {
        matches!(self.genome.application, Application::Bulk)
    }

    /// The rate of link and policer, and that for which the uplink carries acknowledgements, in
    /// kbit/s.
    fn limit_at(&self, at: Permille) -> u64 {
        let policed = self.genome.policer.map_or(u64::MAX, |policer| {
            self.genome.rate * u64::from(policer.rate) / 1_000
        });
        let acknowledged = self.uplink() * DATA_PER_ACK;
        self.genome.rate_at(at).min(policed).min(acknowledged)
    }

    /// When something changes: from, until, in milliseconds.
    fn changes(&self) -> Vec<(u64, u64)> {
        let genome = self.genome;
        let steps = genome.rate_steps.iter();
        let steps = steps.map(|step| (genome.millis(step.at), genome.millis(step.at)));
        let mut before = 1_000;
        let rtt_steps = genome.rtt_steps.iter().map(move |step| {
            let rises = core::mem::replace(&mut before, step.to) < step.to;
            let at = genome.millis(step.at);
            // Until then the window of a model is that of the shorter path.
            match self.envelope.growth {
                Growth::Multiplicative if rises => (at, at + MIN_RTT_FILTER),
                Growth::Multiplicative | Growth::Cubic | Growth::Additive => (at, at),
            }
        });
        let steps = steps.chain(rtt_steps);
        let outages = genome.outages.iter().map(|outage| {
            let from = genome.millis(outage.at);
            // Probe timeouts double: the first after it may be as late again.
            (from, from + 2 * u64::from(outage.millis))
        });
        steps.chain(outages).collect()
    }

    /// Whether nothing changes in the second half, and everything before it has settled.
    pub(super) fn is_quiet(&self) -> bool {
        let half = self.genome.millis(500);
        let bursts_late = match self.genome.application {
            Application::Bulk => false,
            Application::OnOff { .. } => true,
            Application::Paced { burst, .. } => burst < 1_000,
        };
        let neighbours = self.genome.neighbours.iter();
        let mut starts = neighbours.map(|each| self.genome.millis(each.start));
        let settled = |at: u64| at + self.settle <= half;
        !bursts_late
            && settled(0)
            && starts.all(settled)
            && self.changes().iter().all(|&(_, until)| settled(until))
    }

    /// The rate in kbit/s that can be asked for at a moment: the least of what there was since
    /// `settle` before it, and nothing after a start, an outage or a change of the path.
    fn usable_at(&self, at: Permille) -> u64 {
        let genome = self.genome;
        let now = genome.millis(at);
        let Some(since) = now.checked_sub(self.settle) else {
            return 0;
        };
        let outages = self.changes();
        let recent = |&(from, until): &(u64, u64)| from <= now && until >= since;
        let rate_steps = genome.rate_steps.len();
        // Rate steps come first: they are covered by the least rate.
        if outages.iter().skip(rate_steps).any(recent) {
            return 0;
        }
        let first = (since / u64::from(genome.seconds).max(1)) as Permille;
        let least = (first / 10..=at / 10)
            .map(|part| self.limit_at(part * 10))
            .min();
        let least = least.unwrap_or(0).min(self.limit_at(at));
        let held = self.held_at(at);
        least.min(self.supply_at(now)).min(held)
    }

    /// The rate in kbit/s at which the algorithm holds itself.
    fn held_at(&self, at: Permille) -> u64 {
        let window = self.window_at(at).min(self.slots_at(at));
        self.response_at(at).min(window).min(self.ack_delay_at(at))
    }

    /// What the applications write, in kbit/s.
    fn supply_at(&self, now: u64) -> u64 {
        match self.genome.application {
            Application::Bulk => u64::MAX,
            Application::OnOff { .. } => 0,
            Application::Paced { .. } if !self.genome.neighbours.is_empty() => u64::MAX,
            Application::Paced { rate, burst } => {
                let begun = self.genome.millis(burst) + self.settle;
                match burst < 1_000 && now >= begun {
                    true => u64::MAX,
                    false => self.genome.rate * u64::from(rate) / 1_000,
                }
            }
        }
    }

    /// The rate in kbit/s at which random loss holds it.
    fn response_at(&self, at: Permille) -> u64 {
        let rtt = (self.genome.rtt_at(at) + self.extra_delay()) as f64 / 1e6;
        let Some(packets) = self.response_window(rtt) else {
            return u64::MAX;
        };
        let flows = self.genome.flows() as f64;
        (flows * packets * PACKET as f64 * 8.0 / rtt / 1e3) as u64
    }

    /// Packets in flight at which random loss and bursts of losses hold it, over a round trip of `rtt`
    /// seconds; `None` if they do not.
    fn response_window(&self, rtt: f64) -> Option<f64> {
        if self.envelope.response == Response::None {
            return None;
        }
        let held = [self.random_loss_window(rtt), self.bursts_window(rtt)];
        let sum: f64 = held.iter().flatten().map(|packets| 1.0 / packets).sum();
        // Both together hold it lower than each alone; this is a little lower still.
        (sum > 0.0).then(|| 1.0 / sum)
    }

    /// Packets in flight at which random loss holds it, over a round trip of `rtt` seconds. A packet
    /// so late that it counts as lost is one: the proof that it was not comes too late to undo.
    fn random_loss_window(&self, rtt: f64) -> Option<f64> {
        let p = (u64::from(self.genome.loss) + self.lost_by_delay()) as f64 / 1e6;
        let reno = (1.5 / p).sqrt();
        let packets = match self.envelope.response {
            Response::None => return None,
            Response::Reno => reno,
            Response::Cubic => reno.max(1.054 * (rtt / p).powf(0.75)),
        };
        (p > 0.0).then_some(packets)
    }

    /// The same for bursts, each of which is one event: both formulas solved for events in
    /// so many seconds instead of packets.
    fn bursts_window(&self, rtt: f64) -> Option<f64> {
        let bursts = self.genome.bursts?;
        let every = f64::from(bursts.every) / 1e3;
        let reno = 1.5 * every / rtt;
        match self.envelope.response {
            Response::None => None,
            Response::Reno => Some(reno),
            Response::Cubic => Some(reno.max(1.054_f64.powi(4) * every.powi(3))),
        }
    }

    /// The share of the link's capacity in the second half that can be asked for; `None` if there
    /// is none.
    pub(super) fn share(&self) -> Option<f64> {
        let half = || (500..1_000).step_by(10);
        let capacity: u64 = half().map(|at| self.genome.rate_at(at)).sum();
        let usable: u64 = half().map(|at| self.usable_at(at)).sum();
        let arrives = PAYLOAD * (1.0 - self.loss());
        (usable > 0).then(|| usable as f64 / capacity.max(1) as f64 * arrives)
    }

    /// When the last change is over, in milliseconds, and the rate in kbit/s of which 80 % have
    /// to be reached: so that half of what can be asked for is.
    pub(super) fn recovery(&self) -> Option<(u64, u64)> {
        let alone = self.genome.neighbours.is_empty() && self.is_bulk();
        let outages = self.genome.outages.iter();
        let ends = outages.map(|it| self.genome.millis(it.at) + u64::from(it.millis));
        let steps = self.genome.rate_steps.iter().chain(&self.genome.rtt_steps);
        let last = ends
            .chain(steps.map(|step| self.genome.millis(step.at)))
            .max()?;
        let rate = self.limit_at(999).min(self.held_at(999)) as f64;
        let asked = 0.5 / 0.8 * rate * PAYLOAD * (1.0 - self.loss());
        (alone && self.loss() < 0.015).then_some((last, (asked as u64).max(1)))
    }

    /// Seconds that a transfer after a pause takes from a slow start on, if nothing else disturbs.
    pub(super) fn transfer(&self) -> Option<f64> {
        const INITIAL_KILOBYTES: u32 = 10;
        let Application::OnOff { kilobytes, .. } = self.genome.application else {
            return None;
        };
        let genome = self.genome;
        let undisturbed = self.loss() == 0.0
            && genome.ack_loss == 0
            && genome.late.is_none()
            && genome.jitter.is_none()
            && genome.policer.is_none()
            && genome.neighbours.is_empty()
            && self.changes().is_empty();
        let doublings = (kilobytes / INITIAL_KILOBYTES).max(1).ilog2() + 3;
        let rtt = self.longest_rtt() as f64 / 1e6;
        let rate = genome.rate.min(self.ack_delay_at(0));
        let carried = f64::from(kilobytes) * 8.0 / (rate as f64 * PAYLOAD);
        let time = carried + f64::from(doublings) * rtt;
        undisturbed.then_some(time)
    }
}
