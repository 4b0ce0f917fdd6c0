//! Every event of the transport has a place in a trace and in its file.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clearway_quic::ack::ReceivedEcn;
use clearway_quic::cid::ConnectionId;
use clearway_quic::connection::ConnectionError;
use clearway_quic::event::{
    ConnectionState, DropReason, LossTrigger, Metrics, MigrationState, Observer as _,
    RecoveryParameters, TimerChange, TimerKind, TraceEvent,
};
use clearway_quic::path::ecn::{EcnState, Mark};
use clearway_quic::wire::Version;
use clearway_quic::wire::{PacketKind, TransportParameters};
use clearway_quic::{Instant, Role};
use clearway_recovery::controller::{State, WindowPolicy};
use clearway_recovery::limit::Limit;
use clearway_trace::event::{Event, EventData};
use clearway_trace::qlog::{Description, Problems, Reader, Writer};
use clearway_trace::{Recorder, Shared, Sink as _};

/// Kinds of [`TraceEvent`].
const KINDS: usize = 23;

/// The number of an event's kind. No catch-all arm: a kind that is added has to get a
/// number here, an example below, and thereby a place in a trace.
fn kind(event: &TraceEvent<'_>) -> usize {
    match event {
        TraceEvent::Started { .. } => 0,
        TraceEvent::ParametersSet { .. } => 1,
        TraceEvent::StateChanged(_) => 2,
        TraceEvent::AlpnChosen(_) => 3,
        TraceEvent::Closed(_) => 4,
        TraceEvent::PacketSent { .. } => 5,
        TraceEvent::PacketReceived { .. } => 6,
        TraceEvent::PacketDropped { .. } => 7,
        TraceEvent::PacketLost { .. } => 8,
        TraceEvent::Pto { .. } => 9,
        TraceEvent::Metrics(_) => 10,
        TraceEvent::CongestionState { .. } => 11,
        TraceEvent::Timer { .. } => 12,
        TraceEvent::Limit(_) => 13,
        TraceEvent::KeysInstalled { .. } => 14,
        TraceEvent::KeyUpdated { .. } => 15,
        TraceEvent::PathChanged { .. } => 16,
        TraceEvent::Migration { .. } => 17,
        TraceEvent::EcnState { .. } => 18,
        TraceEvent::MtuChanged { .. } => 19,
        TraceEvent::KeysDiscarded { .. } => 20,
        TraceEvent::VersionChosen { .. } => 21,
        TraceEvent::StreamRead { .. } => KINDS - 1,
    }
}

fn started(remote: SocketAddr) -> TraceEvent<'static> {
    TraceEvent::Started {
        role: Role::Client,
        local: None,
        remote,
        original_dcid: ConnectionId::EMPTY,
        local_cid: ConnectionId::EMPTY,
        recovery: RecoveryParameters {
            controller: "cubic",
            window_policy: WindowPolicy::Reactive,
            initial_rtt: Duration::from_millis(333),
            packet_threshold: 3,
            time_threshold_eighths: 9,
            persistent_congestion_threshold: 3,
            max_datagram_size: 1_200,
            initial_window: 12_000,
            min_window: 2_400,
        },
    }
}

/// One event of each kind, and all values of what they name.
fn examples<'a>(
    parameters: &'a TransportParameters,
    error: &'a ConnectionError,
) -> Vec<TraceEvent<'a>> {
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, 443));
    let kind = PacketKind::OneRtt;
    let mut events = vec![
        started(remote),
        TraceEvent::ParametersSet {
            remote: true,
            parameters,
        },
        TraceEvent::StateChanged(ConnectionState::HandshakeConfirmed),
        TraceEvent::VersionChosen {
            original: Version::V1,
            current: Version::V2,
        },
        TraceEvent::AlpnChosen(b"h3"),
        TraceEvent::PacketSent {
            kind,
            number: 1,
            size: 40,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ecn: Mark::Ect0,
            payload: &[1],
        },
        TraceEvent::PacketReceived {
            kind,
            number: 2,
            size: 40,
            ecn: ReceivedEcn::Ce,
            payload: &[1],
        },
        TraceEvent::PacketDropped {
            kind: Some(kind),
            reason: DropReason::Duplicate,
        },
        TraceEvent::PacketLost {
            kind,
            number: 1,
            size: 40,
            mtu_probe: false,
            trigger: LossTrigger::Time,
        },
        TraceEvent::Pto { count: 1 },
        TraceEvent::Metrics(Metrics {
            window: 12_000,
            ..Metrics::default()
        }),
        TraceEvent::Timer {
            kind: TimerKind::Pto,
            change: TimerChange::Expired,
        },
        TraceEvent::KeysInstalled { kind },
        TraceEvent::KeyUpdated {
            phase: 1,
            remote: false,
        },
        TraceEvent::PathChanged { remote },
        TraceEvent::Migration {
            state: MigrationState::MigrationStarted,
            remote,
        },
        TraceEvent::EcnState {
            old: None,
            new: EcnState::Testing,
        },
        TraceEvent::MtuChanged { size: 1_400 },
        TraceEvent::KeysDiscarded {
            kind: PacketKind::Initial,
        },
        TraceEvent::StreamRead { id: 0, len: 9 },
    ];
    events.extend(Limit::ALL.map(TraceEvent::Limit));
    events.extend(State::ALL.map(|new| TraceEvent::CongestionState {
        old: Some(State::SlowStart),
        new,
        trigger: None,
    }));
    events.push(TraceEvent::Closed(error));
    events
}

#[test]
fn every_transport_event_is_recorded_and_written() {
    let parameters = TransportParameters::default();
    let error = ConnectionError::IdleTimeout;
    let mut covered = [false; KINDS];
    for (at, event) in examples(&parameters, &error).iter().enumerate() {
        covered[kind(event)] = true;
        let recorded: Shared<Vec<Event>> = Shared::default();
        let mut recorder = Recorder::new(recorded.clone());
        recorder.on_event(Instant::from_nanos(at as u64), event);
        let recorded = recorded.with(core::mem::take);
        assert!(!recorded.is_empty(), "not recorded: {event:?}");
        assert_eq!(reread(&recorded), recorded.len(), "not written: {event:?}");
    }
    let missing: Vec<usize> = (0..KINDS).filter(|&kind| !covered[kind]).collect();
    assert!(missing.is_empty(), "kinds without an example: {missing:?}");
}

#[test]
fn limits_and_states_are_recorded_under_the_names_of_their_owners() {
    for new in State::ALL {
        let recorded: Shared<Vec<Event>> = Shared::default();
        let event = TraceEvent::CongestionState {
            old: None,
            new,
            trigger: None,
        };
        Recorder::new(recorded.clone()).on_event(Instant::ZERO, &event);
        let told = recorded.with(|events| events[0].data.clone());
        let EventData::CongestionStateUpdated { new: name, .. } = told else {
            panic!("{told:?}");
        };
        assert_eq!(name, new.name());
    }
    for limit in Limit::ALL {
        let event = Event {
            time: 0,
            data: EventData::DataBlockedUpdated {
                reason: Some(limit),
            },
        };
        let text = String::from_utf8(written(&[event])).expect("qlog is text");
        let expected = format!(r#""reason":"{}""#, limit.qlog_name());
        assert!(text.contains(&expected), "{text}");
    }
}

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Description::default());
    for event in events {
        writer.event(event);
    }
    writer.finish()
}

/// How many events a reader of the file understands.
fn reread(events: &[Event]) -> usize {
    let text = written(events);
    let mut reader = Reader::new(&text[..]).expect("qlog");
    let known = |event: &Event| !matches!(event.data, EventData::Other { .. });
    let read = (&mut reader).map(|event| event.expect("memory"));
    let count = read.filter(known).count();
    assert_eq!(*reader.problems(), Problems::default());
    count
}
