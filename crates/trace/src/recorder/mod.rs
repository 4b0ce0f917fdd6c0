//! Records a live connection as events.

mod frames;
mod terms;

pub(crate) use self::frames::summarise;
pub(crate) use self::terms::{hex, parameters};

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::event::{self as quic, Observer, TraceEvent};
use clearway_quic::path::ecn::Mark;
use clearway_recovery::limit::Limit;

use crate::event::{
    Event, EventData, Frame, Initiator, Metrics, Name, Packet, PacketType, RecoveryParameters,
    Started, TimerChange, TimerKind,
};
use crate::sink::Sink;

/// Maximum number of blocked streams remembered; beyond it their unblocking is not recorded.
const MAX_BLOCKED: usize = 1024;

/// Turns what a connection reports to an [`Observer`] into [`Event`]s for a [`Sink`].
///
/// Memory is reused: with a sink that stores nothing, recording a packet does not allocate.
#[derive(Debug)]
pub struct Recorder<S> {
    sink: S,
    /// Time zero of the trace; the first event's time unless given.
    origin: Option<Instant>,
    /// `ack_delay_exponent` of both ends' ACK frames: ours and the peer's.
    exponents: [u8; 2],
    mtu: Option<u64>,
    /// Streams for which we sent STREAM_DATA_BLOCKED.
    blocked: BTreeSet<u64>,
    frames: Vec<Frame>,
    metrics: Box<Metrics>,
}

impl<S: Sink> Recorder<S> {
    /// Creates a recorder whose times count from the connection's first event.
    pub fn new(sink: S) -> Self {
        Self {
            sink,
            origin: None,
            exponents: [3; 2],
            mtu: None,
            blocked: BTreeSet::new(),
            frames: Vec::new(),
            metrics: Box::default(),
        }
    }

    /// Creates a recorder whose times count from `origin`, for traces that share a clock.
    pub fn since(origin: Instant, sink: S) -> Self {
        Self {
            origin: Some(origin),
            ..Self::new(sink)
        }
    }

    /// The sink.
    pub const fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Ends the recording and returns the sink.
    pub fn into_sink(self) -> S {
        self.sink
    }

    fn tell(&mut self, time: u64, data: EventData) {
        self.sink.event(&Event { time, data });
    }

    fn packet(&mut self, time: u64, packet: Packet, sent: bool) {
        let data = if sent {
            EventData::PacketSent(packet)
        } else {
            EventData::PacketReceived(packet)
        };
        let event = Event { time, data };
        self.sink.event(&event);
        if let EventData::PacketSent(packet) | EventData::PacketReceived(packet) = event.data {
            self.frames = packet.frames.unwrap_or_default();
        }
        self.blocked_streams(time, sent);
        self.frames.clear();
    }

    /// Blocked streams are known from the frames that say so.
    fn blocked_streams(&mut self, time: u64, sent: bool) {
        for at in 0..self.frames.len() {
            let Some(frame) = self.frames.get(at) else {
                return;
            };
            let (stream, reason) = match *frame {
                Frame::StreamDataBlocked { stream, .. } if sent => {
                    if self.blocked.len() >= MAX_BLOCKED || !self.blocked.insert(stream) {
                        continue;
                    }
                    (stream, Some(Limit::StreamFlowControl))
                }
                Frame::MaxStreamData { stream, .. } if !sent => {
                    if !self.blocked.remove(&stream) {
                        continue;
                    }
                    (stream, None)
                }
                _ => continue,
            };
            self.tell(time, EventData::StreamDataBlockedUpdated { stream, reason });
        }
    }

    fn metrics(&mut self, time: u64, from: &quic::Metrics<'_>) {
        let mut metrics = core::mem::take(&mut self.metrics);
        let mut extra = core::mem::take(&mut metrics.extra);
        extra.clear();
        let shown = from.internals.iter();
        extra.extend(shown.map(|(name, value)| (Name::Borrowed(*name), *value)));
        let bits = |rate: u64| rate.saturating_mul(8);
        *metrics = Metrics {
            min_rtt: from.min_rtt,
            // The RTT assumed before the first sample is not a measurement.
            smoothed_rtt: from.latest_rtt.map(|_| from.smoothed_rtt),
            latest_rtt: from.latest_rtt,
            rtt_variance: from.latest_rtt.map(|_| from.rtt_variance),
            pto_count: Some(from.pto_count.into()),
            congestion_window: Some(from.window),
            bytes_in_flight: Some(from.in_flight),
            ssthresh: from.ssthresh,
            packets_in_flight: Some(from.packets_in_flight),
            pacing_rate: Some(bits(from.pacing_rate)),
            delivery_rate: from.delivery_rate.map(bits),
            app_limited: from.delivery_rate.map(|_| from.app_limited),
            delivered: Some(from.delivered),
            lost: Some(from.lost),
            congestion_events: Some(from.congestion_events),
            spurious_events: Some(from.spurious_events),
            persistent_events: Some(from.persistent_events),
            extra,
        };
        let event = Event {
            time,
            data: EventData::RecoveryMetricsUpdated(metrics),
        };
        self.sink.event(&event);
        if let EventData::RecoveryMetricsUpdated(metrics) = event.data {
            self.metrics = metrics;
        }
    }

    fn started(&mut self, time: u64, started: Started, recovery: &quic::RecoveryParameters) {
        self.tell(time, EventData::ConnectionStarted(Box::new(started)));
        self.mtu = Some(recovery.max_datagram_size);
        let nanos = clearway_quic::time::nanos;
        let parameters = RecoveryParameters {
            controller: Some(Name::Borrowed(recovery.controller)),
            window_policy: Some(recovery.window_policy),
            reordering_threshold: Some(recovery.packet_threshold),
            time_threshold: Some(u64::from(recovery.time_threshold_eighths) * 125),
            initial_rtt: Some(nanos(recovery.initial_rtt)),
            max_datagram_size: Some(recovery.max_datagram_size),
            initial_congestion_window: Some(recovery.initial_window),
            minimum_congestion_window: Some(recovery.min_window),
            persistent_congestion_threshold: Some(recovery.persistent_congestion_threshold.into()),
        };
        self.tell(time, EventData::RecoveryParametersSet(Box::new(parameters)));
    }

    fn take_frames(&mut self, payload: &[u8], exponent: u8) -> Vec<Frame> {
        let mut out = core::mem::take(&mut self.frames);
        frames::summarise(payload, exponent, &mut out);
        out
    }
}

impl<S: Sink + Send + core::fmt::Debug> Observer for Recorder<S> {
    fn on_event(&mut self, now: Instant, event: &TraceEvent<'_>) {
        let origin = *self.origin.get_or_insert(now);
        let time = clearway_quic::time::nanos(now - origin);
        self.record(time, event);
    }
}

impl<S: Sink> Recorder<S> {
    fn record(&mut self, time: u64, event: &TraceEvent<'_>) {
        match *event {
            TraceEvent::Started {
                role,
                local,
                remote,
                original_dcid,
                local_cid,
                ref recovery,
            } => {
                let started = Started {
                    role: Some(role.into()),
                    local: local.map(|ip| SocketAddr::new(ip, 0)),
                    remote: Some(remote),
                    original_dcid: Some(terms::hex(&original_dcid)),
                    local_cid: Some(terms::hex(&local_cid)),
                };
                self.started(time, started, recovery);
            }
            TraceEvent::ParametersSet { remote, parameters } => {
                let [local, peer] = &mut self.exponents;
                let exponent = if remote { peer } else { local };
                *exponent = parameters.ack_delay_exponent;
                let initiator = if remote {
                    Initiator::Remote
                } else {
                    Initiator::Local
                };
                let parameters = terms::parameters(initiator, parameters);
                self.tell(time, EventData::ParametersSet(Box::new(parameters)));
            }
            TraceEvent::Closed(error) => {
                let closed = terms::closed(error);
                self.tell(time, EventData::ConnectionClosed(Box::new(closed)));
            }
            TraceEvent::PacketSent {
                kind,
                number,
                size,
                in_flight,
                mtu_probe,
                ecn,
                payload,
                ..
            } => {
                let frames = self.take_frames(payload, self.exponents[0]);
                let packet = Packet {
                    frames: Some(frames),
                    in_flight: Some(in_flight),
                    mtu_probe,
                    ecn: sent_mark(ecn),
                    ..Packet::new(kind.into(), number, size.into())
                };
                self.packet(time, packet, true);
            }
            TraceEvent::PacketReceived {
                kind,
                number,
                size,
                ecn,
                payload,
            } => {
                let frames = self.take_frames(payload, self.exponents[1]);
                let packet = Packet {
                    frames: Some(frames),
                    ecn: received_mark(ecn),
                    ..Packet::new(kind.into(), number, size.into())
                };
                self.packet(time, packet, false);
            }
            TraceEvent::Metrics(ref metrics) => self.metrics(time, metrics),
            TraceEvent::MtuChanged { size } => {
                let new = u64::from(size);
                let old = self.mtu.replace(new);
                self.tell(time, EventData::MtuUpdated { old, new });
            }
            TraceEvent::StateChanged(_)
            | TraceEvent::VersionChosen { .. }
            | TraceEvent::AlpnChosen(_)
            | TraceEvent::PacketDropped { .. }
            | TraceEvent::PacketLost { .. }
            | TraceEvent::Pto { .. }
            | TraceEvent::CongestionState { .. }
            | TraceEvent::Timer { .. }
            | TraceEvent::Limit(_)
            | TraceEvent::KeysInstalled { .. }
            | TraceEvent::KeyUpdated { .. }
            | TraceEvent::KeysDiscarded { .. }
            | TraceEvent::PathChanged { .. }
            | TraceEvent::Migration { .. }
            | TraceEvent::EcnState { .. }
            | TraceEvent::StreamRead { .. } => {
                if let Some(data) = stateless(event) {
                    self.tell(time, data);
                }
            }
        }
    }
}

/// The record of an event that does not depend on earlier ones; `None` for those that do, which
/// [`Recorder::record`] writes itself.
fn stateless(event: &TraceEvent<'_>) -> Option<EventData> {
    Some(match *event {
        TraceEvent::StateChanged(state) => EventData::ConnectionStateUpdated {
            new: terms::state(state).into(),
        },
        TraceEvent::VersionChosen { current, .. } => {
            EventData::VersionInformation { chosen: current.0 }
        }
        TraceEvent::AlpnChosen(alpn) => EventData::AlpnInformation {
            chosen: String::from_utf8_lossy(alpn).into_owned().into(),
        },
        TraceEvent::PacketDropped { kind, reason } => EventData::PacketDropped {
            kind: kind.map(PacketType::from),
            size: None,
            trigger: Some(terms::drop_reason(reason).into()),
        },
        TraceEvent::PacketLost {
            kind,
            number,
            size,
            mtu_probe,
            trigger,
        } => EventData::PacketLost {
            kind: kind.into(),
            number,
            size: Some(size.into()),
            mtu_probe,
            trigger: Some(terms::loss_trigger(trigger).into()),
        },
        TraceEvent::Pto { count } => EventData::RecoveryMetricsUpdated(Box::new(Metrics {
            pto_count: Some(count.into()),
            ..Metrics::default()
        })),
        TraceEvent::CongestionState { old, new, trigger } => EventData::CongestionStateUpdated {
            old: old.map(|state| state.name().into()),
            new: new.name().into(),
            trigger: trigger.map(Name::Borrowed),
        },
        TraceEvent::Timer { kind, change } => EventData::TimerUpdated {
            kind: Some(match kind {
                quic::TimerKind::Loss => TimerKind::Loss,
                quic::TimerKind::Pto => TimerKind::Pto,
            }),
            change: match change {
                quic::TimerChange::Set(delta) => {
                    TimerChange::Set(Some(clearway_quic::time::nanos(delta)))
                }
                quic::TimerChange::Expired => TimerChange::Expired,
                quic::TimerChange::Cancelled => TimerChange::Cancelled,
            },
        },
        TraceEvent::Limit(limit) => EventData::DataBlockedUpdated {
            reason: Some(limit),
        },
        TraceEvent::KeysInstalled { kind } => EventData::KeyUpdated {
            kind: kind.into(),
            phase: None,
            trigger: Some("tls".into()),
        },
        TraceEvent::KeyUpdated { phase, remote } => EventData::KeyUpdated {
            kind: PacketType::OneRtt,
            phase: Some(phase),
            trigger: Some(
                if remote {
                    "remote_update"
                } else {
                    "local_update"
                }
                .into(),
            ),
        },
        TraceEvent::KeysDiscarded { kind } => EventData::KeyDiscarded { kind: kind.into() },
        TraceEvent::PathChanged { remote } => EventData::TupleAssigned {
            remote: Some(remote),
        },
        TraceEvent::Migration { state, remote } => EventData::MigrationStateUpdated {
            new: terms::migration(state).into(),
            remote: Some(remote),
        },
        TraceEvent::EcnState { old, new } => EventData::EcnStateUpdated {
            old: old.map(|state| terms::ecn(state).into()),
            new: terms::ecn(new).into(),
        },
        TraceEvent::StreamRead { id, len } => EventData::StreamDataRead {
            stream: Some(id),
            len,
        },
        TraceEvent::Started { .. }
        | TraceEvent::ParametersSet { .. }
        | TraceEvent::Closed(_)
        | TraceEvent::PacketSent { .. }
        | TraceEvent::PacketReceived { .. }
        | TraceEvent::Metrics(_)
        | TraceEvent::MtuChanged { .. } => return None,
    })
}

fn sent_mark(mark: Mark) -> Option<Name> {
    match mark {
        Mark::NotEct => None,
        Mark::Ect0 => Some("ECT(0)".into()),
        Mark::Ect1 => Some("ECT(1)".into()),
    }
}

fn received_mark(mark: ReceivedEcn) -> Option<Name> {
    match mark {
        ReceivedEcn::NotEct => None,
        ReceivedEcn::Ect0 => Some("ECT(0)".into()),
        ReceivedEcn::Ect1 => Some("ECT(1)".into()),
        ReceivedEcn::Ce => Some("CE".into()),
    }
}
