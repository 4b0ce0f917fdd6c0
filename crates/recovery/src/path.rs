//! The state of one path: round-trip time, packets in flight, congestion controller.

use core::time::Duration;

use crate::capacity::Capacity;
use crate::congestion::initial_window;
use crate::controller::{
    AcksNeeded, Congestion, CongestionCause, Controller, Ect, LostPacket, SavedPath, SendIndex,
    Sent, Spurious, State,
};
use crate::detection::{AckTally, LossTally};
use crate::limit::{Limit, LimitClock};
use crate::loss::Thresholds;
use crate::outcome::Outcome;
use crate::own_marks::OwnMarks;
use crate::pacer::{Pacer, Pacing};
use crate::packet::{Packet, SentInfo};
use crate::persistent::PersistentCongestion;
use crate::pto::backed_off;
use crate::rate::{self, RateSample};
use crate::recovery::Config;
use crate::rtt::Rtt;
use crate::space::Space;
use crate::spurious::{CongestionEvents, LostRecord};
use crate::time::Instant;
use crate::window_used::WindowUsed;

/// A path of a connection, numbered by the connection and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// Whether packets that count in flight may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Yes, at least one full packet.
    Open {
        /// Bytes in flight that this train may have at most.
        bytes: u64,
    },
    /// No, the window has no room for a full packet.
    Congestion,
    /// No, the pacer has not earned a train yet.
    Pacing {
        /// When to ask again, always in the future.
        until: Instant,
    },
}

/// What a path has in flight in one packet number space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathSpace {
    /// Ack-eliciting packets in flight.
    pub(crate) ack_eliciting: u64,
    /// When the PTO period began: the last ack-eliciting packet sent or
    /// acknowledged, keys discarded, or the last expiry.
    pub(crate) pto_since: Instant,
    pub(crate) largest_acked: Option<u64>,
}

/// A path: its round-trip time, its packets in flight, its congestion controller.
#[derive(Debug)]
pub struct PathRecovery {
    pub(crate) id: PathId,
    /// 1-RTT packets with lower numbers were sent before this path was added.
    pub(crate) first_number: u64,
    /// 1-RTT packets with lower numbers are not in flight on this path.
    pub(crate) oldest: u64,
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) mds: u64,
    pub(crate) rtt: Rtt,
    pub(crate) in_flight: u64,
    pub(crate) packets_in_flight: u64,
    /// Bytes of path MTU probes among them.
    pub(crate) mtu_probes_in_flight: u64,
    pub(crate) spaces: [PathSpace; 3],
    pub(crate) next_index: SendIndex,
    pub(crate) pto_count: u32,
    pub(crate) thresholds: Thresholds,
    pub(crate) events: CongestionEvents,
    pub(crate) persistent: PersistentCongestion,
    pub(crate) rate: rate::Estimator,
    pub(crate) limits: LimitClock,
    pub(crate) ack: AckTally,
    pub(crate) loss: LossTally,
    pub(crate) capacity: Capacity,
    window_used: WindowUsed,
    pacer: Pacer,
    /// The first packet sent under a window larger than the initial one. Once it or a later
    /// packet is acknowledged, the path has shown that it carries more, and bursts may be
    /// longer (RFC 9002 §7.7). The bytes in flight would not show it: on a short path ACKs
    /// arrive before timers fire.
    grown: Option<SendIndex>,
    /// Whether that has happened.
    trusted: bool,
    own_marks: OwnMarks,
}

impl PathRecovery {
    pub(crate) fn new(
        id: PathId,
        controller: Box<dyn Controller>,
        mds: u64,
        limit: Limit,
        config: &Config,
        now: Instant,
    ) -> Self {
        Self {
            id,
            first_number: 0,
            oldest: 0,
            controller,
            mds,
            rtt: Rtt::new(config.initial_rtt),
            in_flight: 0,
            packets_in_flight: 0,
            mtu_probes_in_flight: 0,
            spaces: [PathSpace::default(); 3],
            next_index: 0,
            pto_count: 0,
            thresholds: Thresholds::new(config.packet_threshold, config.time_threshold_eighths),
            events: CongestionEvents::default(),
            persistent: PersistentCongestion::default(),
            rate: rate::Estimator::new(),
            limits: LimitClock::new(limit, now),
            ack: AckTally::default(),
            loss: LossTally::default(),
            capacity: Capacity::default(),
            window_used: WindowUsed::default(),
            pacer: Pacer::new(mds, now),
            grown: None,
            trusted: false,
            own_marks: OwnMarks::default(),
        }
    }

    /// Returns the state of the path `new`, on which nothing was sent, as a continuation of
    /// this one: with its window and RTT, and nothing in flight. `None` if the controller
    /// cannot be copied.
    pub(crate) fn continued_as(&self, new: &Self) -> Option<Self> {
        let mut next = Self {
            id: new.id,
            first_number: new.first_number,
            oldest: new.oldest,
            controller: self.controller.duplicate()?,
            mds: self.mds,
            rtt: self.rtt,
            in_flight: 0,
            packets_in_flight: 0,
            mtu_probes_in_flight: 0,
            spaces: [PathSpace::default(); 3],
            next_index: self.next_index,
            pto_count: 0,
            thresholds: self.thresholds.clone(),
            events: self.events.continued(),
            persistent: PersistentCongestion::default(),
            rate: self.rate.clone(),
            limits: new.limits.clone(),
            ack: AckTally::default(),
            loss: LossTally::default(),
            capacity: self.capacity,
            window_used: self.window_used.clone(),
            pacer: self.pacer.clone(),
            grown: self.grown,
            trusted: self.trusted,
            own_marks: self.own_marks,
        };
        if new.mds != self.mds {
            next.set_mds(new.mds);
        }
        Some(next)
    }

    /// Returns the number of the path.
    #[must_use]
    pub const fn id(&self) -> PathId {
        self.id
    }

    /// Returns the estimate of the path's round-trip time.
    #[must_use]
    pub const fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Returns the congestion window in bytes.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.controller.window()
    }

    /// See [`Controller::acks_needed`].
    #[must_use]
    pub fn acks_needed(&self) -> AcksNeeded {
        self.controller.acks_needed()
    }

    /// Returns the bytes in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the bytes in flight without path MTU probes: 0 if the connection is idle, because
    /// a probe carries no data (RFC 9000 §14.4) and may be sent although there is none.
    #[must_use]
    pub const fn data_in_flight(&self) -> u64 {
        self.in_flight - self.mtu_probes_in_flight
    }

    /// Returns the number of packets in flight.
    #[must_use]
    pub const fn packets_in_flight(&self) -> u64 {
        self.packets_in_flight
    }

    /// Returns the number of probe timeouts in a row.
    #[must_use]
    pub const fn pto_count(&self) -> u32 {
        self.pto_count
    }

    /// Returns the maximum datagram size in bytes of UDP payload.
    #[must_use]
    pub const fn mds(&self) -> u64 {
        self.mds
    }

    /// Returns the path's congestion controller.
    #[must_use]
    pub fn controller(&self) -> &dyn Controller {
        self.controller.as_ref()
    }

    /// Returns the index that the next packet on this path gets.
    #[must_use]
    pub const fn next_index(&self) -> SendIndex {
        self.next_index
    }

    /// Returns the last valid delivery-rate sample.
    #[must_use]
    pub const fn delivery_rate(&self) -> Option<&RateSample> {
        self.rate.latest()
    }

    /// Returns the bytes delivered on this path so far.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.rate.delivered()
    }

    /// Returns the bytes lost on this path so far, spurious losses included.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.rate.lost()
    }

    /// Returns what the path carries, for a later connection over it, if it is enough to be of use
    /// (RFC 9959 §3.1).
    #[must_use]
    pub fn to_save(&self) -> Option<SavedPath> {
        self.capacity.to_save(&self.rtt, self.mds)
    }

    /// Returns why the path was not sending, and for how long.
    #[must_use]
    pub const fn limits(&self) -> &LimitClock {
        &self.limits
    }

    /// Returns the packet threshold, adapted to this path's reordering.
    #[must_use]
    pub const fn packet_threshold(&self) -> u64 {
        self.thresholds.packets()
    }

    /// Returns the time threshold, adapted to this path's reordering, in eighths of an
    /// RTT.
    #[must_use]
    pub const fn time_threshold_eighths(&self) -> u32 {
        self.thresholds.eighths()
    }

    /// Returns the pacing rate in bytes per second: the controller's, or the window over
    /// the round trip times 5/4, or times 2 while it doubles each round (RFC 9002 §7.7:
    /// small, but large enough that the pacer does not slow the growth). Where ACKs come in bunches,
    /// a window takes longer than the RTT, which is of each ACK's newest packet.
    #[must_use]
    pub fn pacing_rate(&self) -> u64 {
        if let Some(rate) = self.controller.pacing_rate().filter(|rate| *rate > 0) {
            return rate;
        }
        let quarters = match self.controller.state() {
            State::SlowStart | State::Startup => 8,
            State::ConservativeSlowStart
            | State::CongestionAvoidance
            | State::Recovery
            | State::Drain
            | State::ProbeBwDown
            | State::ProbeBwCruise
            | State::ProbeBwRefill
            | State::ProbeBwUp
            | State::ProbeRtt => 5,
        };
        let window = self.controller.window().saturating_mul(quarters);
        let time = self.rtt.in_flight_time().max(Duration::from_nanos(1));
        rate::bytes_per_second(window, time.saturating_mul(4)).max(1)
    }

    /// Returns the current PTO with backoff (RFC 9002 §6.2.1). The peer delays only ACKs
    /// of 1-RTT packets.
    #[must_use]
    pub fn pto(&self, space: Space, max_ack_delay: Duration) -> Duration {
        let delay = match space {
            Space::Initial | Space::Handshake => Duration::ZERO,
            Space::Data => max_ack_delay,
        };
        backed_off(self.rtt.pto().saturating_add(delay), self.pto_count)
    }

    /// Returns the age at which a packet is lost once a later one is acknowledged.
    pub(crate) fn loss_delay(&self, config: &Config) -> Duration {
        self.thresholds.delay(&self.rtt, config.max_ack_delay)
    }

    /// Restarts the PTO period of every space.
    pub(crate) fn restart_pto(&mut self, now: Instant) {
        for space in &mut self.spaces {
            space.pto_since = now;
        }
    }

    /// Records a packet that is sent. Returns its place in the send order and the delivery
    /// state to keep with it.
    pub(crate) fn on_sent(&mut self, info: &SentInfo) -> (SendIndex, rate::PacketState) {
        let index = self.next_index;
        self.next_index += 1;
        if !info.in_flight {
            return (index, rate::PacketState::default());
        }
        let bytes = u64::from(info.size);
        let state = self.rate.on_sent(info.now, bytes, self.in_flight);
        self.controller.on_sent(&Sent {
            now: info.now,
            bytes,
            index,
            in_flight_before: self.in_flight,
            app_limited: self.rate.is_app_limited(),
        });
        self.pacer.charge(bytes);
        if self.grown.is_none() && self.window() > initial_window(self.mds) {
            self.grown = Some(index);
        }
        self.in_flight += bytes;
        self.packets_in_flight += 1;
        if info.mtu_probe {
            self.mtu_probes_in_flight += bytes;
        }
        if info.ack_eliciting {
            let space = &mut self.spaces[info.space.index()];
            space.ack_eliciting += 1;
            space.pto_since = info.now;
        }
        (index, state)
    }

    /// Removes a packet from the counts of what is in flight.
    pub(crate) fn leave_flight<F>(&mut self, space: Space, packet: &Packet<F>) {
        if !packet.in_flight {
            return;
        }
        self.in_flight -= packet.bytes();
        self.packets_in_flight -= 1;
        if packet.mtu_probe {
            self.mtu_probes_in_flight -= packet.bytes();
        }
        if packet.ack_eliciting {
            self.spaces[space.index()].ack_eliciting -= 1;
        }
    }

    /// Records a newly acknowledged packet.
    pub(crate) fn on_acked<F>(
        &mut self,
        space: Space,
        number: u64,
        packet: &Packet<F>,
        now: Instant,
    ) {
        self.leave_flight(space, packet);
        self.persistent.on_acked(packet.index);
        let part = &mut self.spaces[space.index()];
        part.largest_acked = part.largest_acked.max(Some(number));
        if packet.ack_eliciting {
            part.pto_since = now;
        }
        self.ack.touched = true;
        if !packet.in_flight {
            return;
        }
        let bytes = packet.bytes();
        let open = self.limits.current().uses_window();
        let used = self.window_used.is_used(packet.index, open);
        self.ack.add(packet, used, now);
        self.trusted |= self.grown.is_some_and(|grown| packet.index >= grown);
        self.rate
            .on_acked(&packet.rate, bytes, packet.index, packet.time, now);
    }

    /// Records the late acknowledgment of a packet that had been declared lost.
    pub(crate) fn on_late<F>(
        &mut self,
        packet: &LostRecord,
        config: &Config,
        now: Instant,
        out: &mut Outcome<F>,
    ) {
        out.spurious += 1;
        self.rate.on_late(u64::from(packet.size), now);
        self.persistent.on_acked(packet.index);
        let extent = self.ack.largest_before.unwrap_or(0);
        self.thresholds
            .on_spurious(extent.saturating_sub(packet.number));
        self.ack.late |= now - packet.sent > self.loss_delay(config);
        if self.events.on_acked(packet.event) {
            out.undone += 1;
            self.controller.on_spurious(&Spurious {
                now,
                event: packet.event,
            });
        }
    }

    /// Records that a packet in flight is declared lost. Returns the congestion event that
    /// it is part of, or `None` for a path MTU probe (RFC 9000 §14.4).
    pub(crate) fn on_lost<F>(
        &mut self,
        space: Space,
        number: u64,
        packet: &Packet<F>,
        config: &Config,
        now: Instant,
    ) -> Option<SendIndex> {
        self.leave_flight(space, packet);
        if packet.mtu_probe {
            return None;
        }
        self.rate.on_lost(packet.bytes());
        self.loss.add(number, packet);
        let sampled = self.rtt.first_sample();
        if packet.ack_eliciting && sampled.is_some_and(|first| packet.time > first) {
            let duration = self.persistent_duration(config);
            self.loss.persistent |= self.persistent.on_lost(packet.index, packet.time, duration);
        }
        let new = packet.index >= self.events.boundary();
        self.loss.new_event |= new;
        let event = self.events.on_lost(packet.index, self.next_index);
        let delivery = self.rate.delivery_since(&packet.rate);
        self.controller.on_lost(&LostPacket {
            now,
            index: packet.index,
            bytes: packet.bytes(),
            event,
            tx_in_flight: delivery.tx_in_flight,
            lost_since_sent: delivery.lost,
            delivered: delivery.total,
            app_limited: delivery.app_limited,
        });
        Some(event)
    }

    /// Returns the PTO with max_ack_delay, as for 1-RTT packets, and without backoff.
    fn longest_pto(&self, config: &Config) -> Duration {
        self.rtt.pto().saturating_add(config.max_ack_delay)
    }

    /// Returns the time that losses have to span to be persistent congestion (RFC 9002
    /// §7.6.1).
    fn persistent_duration(&self, config: &Config) -> Duration {
        self.longest_pto(config)
            .saturating_mul(config.persistent_congestion_threshold)
    }

    /// Returns how long a lost packet is remembered: three PTOs.
    pub(crate) fn lost_record_lifetime(&self, config: &Config) -> Duration {
        self.longest_pto(config).saturating_mul(3)
    }

    /// Records ECN-CE marks that the peer reports on packets up to `largest_index`.
    pub(crate) fn on_ecn_ce(&mut self, largest_index: SendIndex, increase: u64, now: Instant) {
        let floor = self.controller.min_window();
        self.own_marks
            .on_marks(&self.rtt, self.window(), floor, self.mds);
        self.events.on_marked(largest_index, self.next_index);
        self.controller.on_congestion(&Congestion {
            now,
            cause: CongestionCause::EcnCe,
            largest_index,
            next_index: self.next_index,
            lost_bytes: 0,
            packets: increase,
            lost_ranges: 0,
            in_flight_before: self.in_flight,
            in_flight_after: self.in_flight,
            acked_bytes: self.ack.bytes,
            persistent: false,
            largest_tx_in_flight: self.ack.largest_tx_in_flight,
        });
    }

    /// Marks what is in flight as application-limited if the controller itself holds the
    /// flow back. Called after it was told of an ACK.
    pub(crate) fn mark_app_limited_by_controller(&mut self) {
        if self.controller.marks_app_limited() {
            self.rate.mark_app_limited(self.in_flight);
        }
    }

    /// Sets the reason why the send path stopped, or that it resumed.
    pub(crate) fn set_limit(&mut self, limit: Limit, now: Instant) {
        self.window_used.mark(self.next_index, limit.uses_window());
        // If the window is full, more data could not have been sent either, so the flow is
        // not application-limited (draft-ietf-ccwg-bbr §4.1.2.4).
        if limit.is_application() && self.in_flight < self.window() {
            self.rate.mark_app_limited(self.in_flight);
        }
        if self.limits.set(limit, now) {
            self.controller.on_limit(limit, now);
        }
    }

    /// Returns whether packets that count in flight may be sent now.
    pub(crate) fn gate(&mut self, now: Instant) -> Gate {
        let room = self.window().saturating_sub(self.in_flight);
        if room < self.mds {
            return Gate::Congestion;
        }
        // A window has no room for a part of a datagram (RFC 9002 §7), but that of a scalable
        // controller is often two or three, and what it takes off for a mark is less than one.
        let room = match self.controller.ecn() {
            Ect::Ect0 => room - room % self.mds,
            Ect::Ect1 => room.next_multiple_of(self.mds),
        };
        let measured = self.rtt.has_sample();
        let trains = self.controller.trains_per_second();
        let rate = self.pacing_rate();
        let mut pacing = Pacing::new(trains, rate, self.mds, self.trusted, measured);
        if self.own_marks.shorten_trains() {
            pacing = pacing.for_marking_queue(self.mds);
        }
        match self.pacer.request(pacing, self.mds, room, now) {
            // The pacer lends what is missing of a datagram, and has it back before the next
            // train.
            Ok(bytes) => Gate::Open {
                bytes: bytes.next_multiple_of(self.mds).min(room),
            },
            Err(until) => Gate::Pacing { until },
        }
    }

    /// Sets the maximum datagram size in bytes of UDP payload.
    pub(crate) fn set_mds(&mut self, mds: u64) {
        self.mds = mds;
        self.controller.on_mds(mds);
    }
}
