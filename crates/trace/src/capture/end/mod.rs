//! What one end did, derived from the packets that it sent and received.
//!
//! ```text
//! sent     packets in flight; which were acknowledged, and which were lost
//! rtt      round-trip times
//! credit   flow control
//! limit    why it stopped sending
//! queue    observations in the order in which this end saw them
//! ```

mod credit;
mod limit;
mod queue;
mod rtt;
mod sent;

use std::collections::VecDeque;
use std::net::SocketAddr;

use clearway_quic::Role;
use clearway_recovery::controller::WindowPolicy;
use clearway_recovery::limit::Limit;

use self::credit::Credit;
use self::limit::{LimitTracker, Stop};
use self::queue::{Queue, Queued};
use self::rtt::Rtt;
use self::sent::SentPackets;
use super::connection::{Observation, Observed};
use crate::event::{
    self, Closed, Event, EventData, Frame, Initiator, Metrics, Name, Packet, PacketType,
    RecoveryParameters, Space, Started, TimerChange, TimerKind,
};
use crate::recorder::parameters;

/// Maximum number of events that wait for what made the sender continue.
const MAX_HELD: usize = 1 << 14;
/// The minimum window, in datagrams (RFC 9002 §7.2).
const MIN_WINDOW: u64 = 2;
const INITIAL_DATAGRAM: u64 = 1200;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    role: Role,
    /// The round trip between this end and the place of the capture.
    delay: u64,
    queue: Queue,
    out: VecDeque<Event>,
    /// Events since the last time this end stopped sending, until it is known why.
    held: Vec<Event>,
    started: Option<Box<Started>>,
    now: u64,
    sent: SentPackets,
    rtt: Rtt,
    credit: Credit,
    limit: LimitTracker,
    /// Largest datagram sent, other than MTU probes.
    datagram: u64,
    sent_handshake: bool,
    complete: bool,
    confirmed: bool,
    closed: bool,
}

impl End {
    /// The end `role` with its own and its peer's address. `delay` is the round trip to the place
    /// of the capture.
    pub(super) fn new(
        role: Role,
        delay: u64,
        (local, remote): (SocketAddr, SocketAddr),
        dcid: &str,
    ) -> Self {
        let started = Started {
            role: Some(role.into()),
            local: Some(local),
            remote: Some(remote),
            original_dcid: Some(dcid.to_owned()),
            local_cid: None,
        };
        Self::start(role, delay, started, false)
    }

    /// The client whose own log this is, which also says what it declared lost.
    pub(super) fn of_log(dcid: &str) -> Self {
        let started = Started {
            role: Some(event::Role::Client),
            original_dcid: Some(dcid.to_owned()),
            ..Started::default()
        };
        Self::start(Role::Client, 0, started, true)
    }

    fn start(role: Role, delay: u64, started: Started, records_losses: bool) -> Self {
        Self {
            role,
            delay,
            queue: Queue::default(),
            out: VecDeque::new(),
            held: Vec::new(),
            started: Some(Box::new(started)),
            now: 0,
            sent: SentPackets::new(records_losses),
            rtt: Rtt::default(),
            credit: Credit::new(role),
            limit: LimitTracker::default(),
            datagram: INITIAL_DATAGRAM,
            sent_handshake: false,
            complete: false,
            confirmed: false,
            closed: false,
        }
    }

    /// Processes an observation. What this end receives, it receives half of the delay after the
    /// capture saw it, and what it sends was sent half of it before: all times are moved by that
    /// half, so that none is negative.
    pub(super) fn observe(&mut self, observation: &Observation) {
        let sent = observation.from == self.role;
        let time = if sent {
            observation.time
        } else {
            observation.time.saturating_add(self.delay)
        };
        self.queue.push(time, sent, observation.data.clone());
        // What is observed later was sent at its time, or received later.
        self.process_until(observation.time);
    }

    fn process_until(&mut self, time: u64) {
        while let Some(next) = self.queue.pop_until(time) {
            self.process(next);
        }
    }

    /// Processes what is left, at the end of the capture.
    pub(super) fn finish(&mut self) {
        self.process_until(u64::MAX);
        if let Some(stop) = self.limit.finish(self.sent.in_flight()) {
            self.resolve(stop);
        }
        self.release();
    }

    /// The events so far.
    pub(super) fn take_events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.out.drain(..)
    }

    fn process(&mut self, queued: Queued) {
        // Packets that had to wait for their keys are late.
        self.now = self.now.max(queued.time);
        if let Some(started) = self.started.take() {
            self.begin(started);
        }
        self.lose_by_time();
        self.limit_by_silence();
        let initiator = if queued.sent {
            Initiator::Local
        } else {
            Initiator::Remote
        };
        match queued.data {
            Observed::Packet(packet) if queued.sent => self.on_sent(packet),
            Observed::Packet(packet) => self.on_received(packet),
            Observed::Parameters(it) => {
                if !queued.sent {
                    self.credit.on_parameters(&it);
                }
                let set = parameters(initiator, &it);
                self.tell(EventData::ParametersSet(Box::new(set)));
            }
            Observed::Protocol(name) => self.tell(EventData::AlpnInformation {
                chosen: Name::Owned(name),
            }),
            Observed::KeyUpdate(phase) => self.tell(EventData::KeyUpdated {
                kind: PacketType::OneRtt,
                phase: Some(phase),
                trigger: Some(Name::Borrowed(match initiator {
                    Initiator::Local => "local_update",
                    Initiator::Remote => "remote_update",
                })),
            }),
            Observed::Lost(number) => {
                if let Some(kind) = self.sent.lose(number).filter(|_| queued.sent) {
                    self.lost(kind, number, "recorded");
                }
            }
            Observed::Closed { code, reason } => {
                let trigger = "unspecified";
                self.close(initiator, trigger, code, false, &reason);
            }
        }
        if self.held.len() > MAX_HELD {
            self.limit.give_up();
        }
        if !self.limit.is_open() {
            self.release();
        }
    }

    fn begin(&mut self, started: Box<Started>) {
        self.tell(EventData::ConnectionStarted(started));
        // Which controller decides is not on the wire; how it behaves must not be judged as if it
        // were known.
        self.tell(EventData::RecoveryParametersSet(Box::new(
            RecoveryParameters {
                window_policy: Some(WindowPolicy::Model),
                minimum_congestion_window: Some(MIN_WINDOW.saturating_mul(INITIAL_DATAGRAM)),
                max_datagram_size: Some(INITIAL_DATAGRAM),
                ..RecoveryParameters::default()
            },
        )));
        self.tell(EventData::DataBlockedUpdated {
            reason: Some(Limit::Handshake),
        });
    }

    fn tell(&mut self, data: EventData) {
        let event = Event {
            time: self.now,
            data,
        };
        if self.limit.is_open() {
            self.held.push(event);
        } else {
            self.out.push_back(event);
        }
    }

    fn release(&mut self) {
        self.out.extend(self.held.drain(..));
    }

    /// Why this end had stopped sending is known now.
    fn resolve(&mut self, stop: Stop) {
        let time = stop.time;
        if let Some(window) = stop.window {
            let metrics = Metrics {
                congestion_window: Some(window),
                bytes_in_flight: Some(window),
                ..Metrics::default()
            };
            let data = EventData::RecoveryMetricsUpdated(Box::new(metrics));
            self.out.push_back(Event { time, data });
        }
        if let Some(limit) = stop.changed {
            let reason = Some(limit);
            let data = EventData::DataBlockedUpdated { reason };
            self.out.push_back(Event { time, data });
        }
        self.release();
    }

    fn limit_by_silence(&mut self) {
        let flight = self.sent.in_flight();
        if let Some(stop) = self.limit.on_silence(self.now, flight, self.rtt.smoothed()) {
            self.resolve(stop);
        }
    }

    fn on_sent(&mut self, mut packet: Packet) {
        let moves_data = moves_data(&packet);
        if packet.kind == PacketType::Handshake {
            self.discard(Role::Client, Space::Initial);
            self.sent_handshake = true;
        }
        let size = packet.size.unwrap_or(0);
        let facts = (
            self.credit.is_repeated(&packet),
            moves_data && self.is_full(size),
        );
        let probe = self.sent.is_probe(self.now, &packet, &self.rtt, facts);
        if probe {
            self.tell(EventData::TimerUpdated {
                kind: Some(TimerKind::Pto),
                change: TimerChange::Expired,
            });
        }
        if moves_data && !probe {
            let rtt = self.rtt.smoothed();
            if let Some(stop) = self.limit.on_sent(self.now, rtt) {
                self.resolve(stop);
            }
        }
        packet.mtu_probe = size > self.datagram && probes_mtu(&packet);
        if moves_data {
            self.datagram = self.datagram.max(size);
        }
        self.sent.on_sent(self.now, &packet);
        self.credit.on_sent(&packet);
        let frames = packet.frames.clone().unwrap_or_default();
        // Held events follow the stop that they wait for.
        self.tell(EventData::PacketSent(packet));
        if moves_data && self.complete {
            self.release();
            let short = !self.is_full(size);
            let blocked = self.credit.blocked();
            let flight = self.sent.in_flight();
            if let Some(stop) = self.limit.stop(self.now, flight, blocked, short) {
                self.resolve(stop);
            }
        }
        for frame in &frames {
            self.on_frame(frame, Initiator::Local);
        }
    }

    /// Whether a packet of `size` bytes had no room for more data worth sending.
    fn is_full(&self, size: u64) -> bool {
        size >= self.datagram.saturating_sub(INITIAL_DATAGRAM / 12)
    }

    fn on_received(&mut self, packet: Packet) {
        let frames = packet.frames.clone().unwrap_or_default();
        let kind = packet.kind;
        self.tell(EventData::PacketReceived(packet));
        if kind == PacketType::Handshake {
            self.discard(Role::Server, Space::Initial);
            // The client's Finished.
            if self.role == Role::Server
                && frames.iter().any(|it| matches!(it, Frame::Crypto { .. }))
            {
                self.handshake_complete();
            }
        }
        let mut freed = false;
        for frame in &frames {
            if let (Frame::Ack { .. }, Some(space)) = (frame, kind.space()) {
                freed |= self.on_ack(kind, space, frame);
            }
            self.credit.on_received(frame);
            self.on_frame(frame, Initiator::Remote);
        }
        let request = self.credit.take_request();
        let data = frames.iter().any(|it| matches!(it, Frame::Stream { .. }));
        self.limit.on_received(self.now, freed, data, request);
    }

    /// Processes an ACK frame; returns whether it made room in the window.
    fn on_ack(&mut self, kind: PacketType, space: Space, frame: &Frame) -> bool {
        let acked = self.sent.on_ack(space, frame);
        if let Some(sent_at) = acked.sample {
            let delay = match frame {
                Frame::Ack { delay, .. } if space == Space::Data => delay.unwrap_or(0),
                _ => 0,
            };
            let sample = self.now.saturating_sub(sent_at);
            self.rtt.on_sample(sample, delay);
        }
        for number in self.sent.lost_behind(space, self.now, &self.rtt) {
            self.lost(kind, number, "reordering_threshold");
        }
        if acked.packets > 0 {
            let mut metrics = self.rtt.metrics(acked.sample.is_some());
            metrics.bytes_in_flight = Some(self.sent.in_flight());
            metrics.packets_in_flight = Some(self.sent.packets_in_flight());
            self.tell(EventData::RecoveryMetricsUpdated(Box::new(metrics)));
        }
        acked.packets > 0
    }

    fn lose_by_time(&mut self) {
        for (kind, number) in self.sent.lost_by_time(self.now, &self.rtt) {
            self.lost(kind, number, "time_threshold");
        }
    }

    fn lost(&mut self, kind: PacketType, number: u64, trigger: &'static str) {
        self.tell(EventData::PacketLost {
            kind,
            number,
            size: None,
            mtu_probe: false,
            trigger: Some(Name::Borrowed(trigger)),
        });
    }

    fn on_frame(&mut self, frame: &Frame, by: Initiator) {
        match frame {
            Frame::HandshakeDone => self.handshake_confirmed(),
            // The client's Finished.
            Frame::Crypto { .. }
                if by == Initiator::Local && self.sent_handshake && self.role == Role::Client =>
            {
                self.handshake_complete();
            }
            Frame::ConnectionClose {
                application,
                code,
                reason,
            } => {
                let trigger = if *application { "application" } else { "error" };
                self.close(by, trigger, *code, *application, reason);
            }
            _ => {}
        }
    }

    fn close(
        &mut self,
        by: Initiator,
        trigger: &'static str,
        code: u64,
        application: bool,
        reason: &str,
    ) {
        if core::mem::replace(&mut self.closed, true) {
            return;
        }
        self.tell(EventData::ConnectionClosed(Box::new(Closed {
            initiator: Some(by),
            trigger: Some(Name::Borrowed(trigger)),
            code: Some(code),
            application,
            reason: Some(reason.to_owned()),
        })));
    }

    fn handshake_complete(&mut self) {
        if core::mem::replace(&mut self.complete, true) {
            return;
        }
        self.tell(EventData::ConnectionStateUpdated {
            new: Name::Borrowed("handshake_complete"),
        });
        let flight = self.sent.in_flight();
        if let Some(stop) = self.limit.stop(self.now, flight, None, true) {
            self.resolve(stop);
        }
    }

    fn handshake_confirmed(&mut self) {
        self.handshake_complete();
        if core::mem::replace(&mut self.confirmed, true) {
            return;
        }
        self.tell(EventData::ConnectionStateUpdated {
            new: Name::Borrowed("handshake_confirmed"),
        });
        self.discard(self.role, Space::Handshake);
    }

    /// The keys of a space are discarded, if this end is `role` (RFC 9001 §4.9).
    fn discard(&mut self, role: Role, space: Space) {
        if self.role != role || !self.sent.discard(space) {
            return;
        }
        let kind = match space {
            Space::Initial => PacketType::Initial,
            Space::Handshake => PacketType::Handshake,
            Space::Data => PacketType::OneRtt,
        };
        self.tell(EventData::KeyDiscarded { kind });
    }
}

/// Whether it has data of the application: what the window is for.
fn moves_data(packet: &Packet) -> bool {
    let data = |frame: &Frame| matches!(frame, Frame::Stream { .. } | Frame::Datagram { .. });
    packet.frames().iter().any(data)
}

/// Whether it has nothing but PING and PADDING.
fn probes_mtu(packet: &Packet) -> bool {
    let frames = packet.frames();
    let nothing = |frame: &Frame| matches!(frame, Frame::Ping | Frame::Padding { .. });
    frames.contains(&Frame::Ping) && frames.iter().all(nothing)
}
