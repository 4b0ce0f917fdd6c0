//! Events of every kind with every field and every value that Clearway writes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use clearway_quic::stream::Directionality;
use clearway_recovery::controller::{State, WindowPolicy};
use clearway_recovery::limit::Limit;
use clearway_trace::event::{
    Closed, Event, EventData, Frame, Initiator, Metrics, Packet, PacketType, Parameters,
    RecoveryParameters, Role, Space, Started, TimerChange, TimerKind,
};

const TYPES: [PacketType; 7] = [
    PacketType::Initial,
    PacketType::Handshake,
    PacketType::ZeroRtt,
    PacketType::OneRtt,
    PacketType::Retry,
    PacketType::VersionNegotiation,
    PacketType::StatelessReset,
];

fn v4() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 443))
}

fn v6() -> SocketAddr {
    SocketAddr::from((Ipv6Addr::LOCALHOST, 65_535))
}

/// All events, at times of whole and of broken milliseconds.
pub fn all() -> Vec<Event> {
    let parts = [
        connection(),
        packets(),
        losses(),
        data(),
        keys(),
        recovery(),
        others(),
    ];
    let each = parts.into_iter().flatten().enumerate();
    each.map(|(at, data)| Event {
        time: at as u64 * 500_001,
        data,
    })
    .collect()
}

/// A packet with these frames.
pub fn packet_with(frames: Vec<Frame>) -> Event {
    let packet = Packet {
        frames: Some(frames),
        ..Packet::new(PacketType::OneRtt, 1, 1_200)
    };
    Event {
        time: 0,
        data: EventData::PacketSent(packet),
    }
}

fn connection() -> Vec<EventData> {
    let started = |local, remote| {
        EventData::ConnectionStarted(Box::new(Started {
            role: Some(Role::Client),
            local,
            remote: Some(remote),
            original_dcid: Some("0a0b0c0d0e0f0001".into()),
            local_cid: Some("00ff".into()),
        }))
    };
    let mut events = vec![
        started(None, v4()),
        started(Some(v4()), v4()),
        started(Some(v6()), v6()),
    ];
    for new in [
        "attempted",
        "handshake_complete",
        "handshake_confirmed",
        "closing",
        "draining",
        "closed",
    ] {
        events.push(EventData::ConnectionStateUpdated { new: new.into() });
    }
    for chosen in [1, 0x6b33_43cf, 0xff00_001d] {
        events.push(EventData::VersionInformation { chosen });
    }
    for chosen in ["h3", "clearway-raw", ""] {
        events.push(EventData::AlpnInformation {
            chosen: chosen.into(),
        });
    }
    events.extend(closes());
    for initiator in [None, Some(Initiator::Local), Some(Initiator::Remote)] {
        let parameters = Parameters {
            initiator,
            max_idle_timeout: Some(30_000),
            max_udp_payload_size: Some(65_527),
            ack_delay_exponent: Some(3),
            max_ack_delay: Some(25),
            active_connection_id_limit: Some(2),
            initial_max_data: Some(1 << 61),
            initial_max_stream_data_bidi_local: Some(1),
            initial_max_stream_data_bidi_remote: Some(2),
            initial_max_stream_data_uni: Some(3),
            initial_max_streams_bidi: Some(100),
            initial_max_streams_uni: Some(3),
            max_datagram_frame_size: Some(0),
            disable_active_migration: Some(true),
            grease_quic_bit: Some(false),
            reset_stream_at: Some(true),
        };
        events.push(EventData::ParametersSet(Box::new(parameters)));
    }
    events
}

fn closes() -> Vec<EventData> {
    let closed = |initiator, trigger: &'static str, code, application| {
        EventData::ConnectionClosed(Box::new(Closed {
            initiator: Some(initiator),
            trigger: Some(trigger.into()),
            code,
            application,
            reason: Some("closed \u{fc}".into()),
        }))
    };
    let mut events: Vec<EventData> = (0..=0x11)
        .chain([0x100, 0x178, 0x1ff, 1 << 61])
        .map(|code| closed(Initiator::Local, "error", Some(code), false))
        .collect();
    events.push(closed(
        Initiator::Remote,
        "application",
        Some(1 << 61),
        true,
    ));
    for trigger in [
        "stateless_reset",
        "idle_timeout",
        "aborted",
        "version_mismatch",
        "unspecified",
    ] {
        events.push(closed(Initiator::Remote, trigger, None, false));
    }
    events
}

fn packets() -> Vec<EventData> {
    let mut events = Vec::new();
    for kind in TYPES {
        for (ecn, mtu_probe) in [
            (None, true),
            (Some("ECT(0)"), false),
            (Some("ECT(1)"), false),
        ] {
            let packet = Packet {
                number: kind.space().map(|_| 9),
                frames: kind.space().map(|space| match (space, mtu_probe) {
                    (Space::Data, true) => frames(),
                    _ => vec![Frame::Ping, Frame::Padding { len: 9 }],
                }),
                mtu_probe,
                ecn: ecn.map(Into::into),
                ..Packet::new(kind, 9, 1_200)
            };
            events.push(EventData::PacketSent(packet.clone()));
            events.push(EventData::PacketReceived(Packet {
                mtu_probe: false,
                ecn: ecn.map(|_| "CE".into()),
                ..packet
            }));
        }
    }
    for trigger in [
        "invalid",
        "key_unavailable",
        "decryption_failure",
        "duplicate",
        "connection_unknown",
        "general",
        "rejected",
    ] {
        for kind in [None, Some(PacketType::OneRtt)] {
            events.push(EventData::PacketDropped {
                kind,
                size: kind.map(|_| 1_200),
                trigger: Some(trigger.into()),
            });
        }
    }
    events
}

fn losses() -> Vec<EventData> {
    let triggers = [
        "reordering_threshold",
        "time_threshold",
        "pto_expired",
        "withdrawn",
    ];
    let lost = |trigger: &'static str| {
        [None, Some(1_200)].map(|size| EventData::PacketLost {
            kind: PacketType::OneRtt,
            number: 7,
            size,
            mtu_probe: size.is_some(),
            trigger: Some(trigger.into()),
        })
    };
    triggers.into_iter().flat_map(lost).collect()
}

fn data() -> Vec<EventData> {
    let mut events: Vec<EventData> = [(None, 0), (Some(0), 9), (Some(1 << 60), 1 << 40)]
        .map(|(stream, len)| EventData::StreamDataRead { stream, len })
        .into();
    let reasons = Limit::ALL.map(Some).into_iter().chain([None]);
    for reason in reasons {
        events.push(EventData::DataBlockedUpdated { reason });
        events.push(EventData::StreamDataBlockedUpdated { stream: 4, reason });
    }
    for new in [
        "probing_started",
        "probing_abandoned",
        "probing_successful",
        "migration_started",
        "migration_complete",
    ] {
        events.push(EventData::MigrationStateUpdated {
            new: new.into(),
            remote: Some(v4()),
        });
    }
    let remotes = [None, Some(v4()), Some(v6())];
    events.extend(remotes.map(|remote| EventData::TupleAssigned { remote }));
    events
}

fn keys() -> Vec<EventData> {
    let kinds = [
        PacketType::Initial,
        PacketType::Handshake,
        PacketType::ZeroRtt,
        PacketType::OneRtt,
    ];
    let mut events: Vec<EventData> = kinds.map(|kind| EventData::KeyDiscarded { kind }).into();
    for kind in kinds {
        for trigger in ["tls", "remote_update", "local_update"] {
            events.push(EventData::KeyUpdated {
                kind,
                phase: Some(1),
                trigger: Some(trigger.into()),
            });
        }
    }
    events
}

fn recovery() -> Vec<EventData> {
    let mut events = Vec::new();
    for window_policy in [
        WindowPolicy::Reactive,
        WindowPolicy::Model,
        WindowPolicy::Constant,
    ] {
        events.push(EventData::RecoveryParametersSet(Box::new(
            RecoveryParameters {
                controller: Some("cubic".into()),
                window_policy: Some(window_policy),
                reordering_threshold: Some(3),
                time_threshold: Some(1_125),
                initial_rtt: Some(333_000_000),
                max_datagram_size: Some(1_200),
                initial_congestion_window: Some(12_000),
                minimum_congestion_window: Some(2_400),
                persistent_congestion_threshold: Some(3),
            },
        )));
    }
    for rtt in [1, 1_000_000, 1_500_001] {
        events.push(EventData::RecoveryMetricsUpdated(Box::new(metrics(rtt))));
    }
    for new in State::ALL {
        events.push(EventData::CongestionStateUpdated {
            old: Some(State::SlowStart.name().into()),
            new: new.name().into(),
            trigger: Some("persistent_congestion".into()),
        });
    }
    for kind in [None, Some(TimerKind::Loss), Some(TimerKind::Pto)] {
        for change in [
            TimerChange::Set(None),
            TimerChange::Set(Some(1_250_001)),
            TimerChange::Expired,
            TimerChange::Cancelled,
        ] {
            events.push(EventData::TimerUpdated { kind, change });
        }
    }
    for new in ["testing", "unknown", "capable", "failed"] {
        events.push(EventData::EcnStateUpdated {
            old: Some("testing".into()),
            new: new.into(),
        });
    }
    events
}

fn metrics(rtt: u64) -> Metrics {
    Metrics {
        min_rtt: Some(rtt),
        smoothed_rtt: Some(rtt),
        latest_rtt: Some(rtt),
        rtt_variance: Some(rtt),
        pto_count: Some(1),
        congestion_window: Some(12_000),
        bytes_in_flight: Some(0),
        ssthresh: Some(6_000),
        packets_in_flight: Some(3),
        pacing_rate: Some(u64::from(u32::MAX) * 9),
        delivery_rate: Some(1),
        app_limited: Some(true),
        delivered: Some(2),
        lost: Some(3),
        congestion_events: Some(4),
        spurious_events: Some(5),
        persistent_events: Some(6),
        extra: vec![("boundary".into(), 7), ("next_index".into(), u64::MAX >> 2)],
    }
}

fn others() -> Vec<EventData> {
    let mut events = Vec::new();
    for (old, new) in [(None, 1_200), (Some(1_200), 1_452), (Some(1_452), 65_527)] {
        events.push(EventData::MtuUpdated { old, new });
        events.push(EventData::Scenario {
            name: "death_spiral".into(),
            details: vec![("seed".into(), new.to_string())],
        });
        events.push(EventData::Marker {
            kind: "loss".into(),
            message: "30 % from now on".into(),
        });
        events.push(EventData::EventsDropped { count: new });
    }
    events
}

/// Every kind of frame.
pub fn frames() -> Vec<Frame> {
    let mut frames = data_frames();
    frames.extend(control_frames());
    let reason = || "no \"reason\"".to_owned();
    for code in [0, 0x10, 0x11, 0x100, 0x1ff] {
        frames.push(Frame::ConnectionClose {
            application: false,
            code,
            reason: reason(),
        });
    }
    frames.push(Frame::ConnectionClose {
        application: true,
        code: 7,
        reason: reason(),
    });
    frames
}

fn data_frames() -> Vec<Frame> {
    let (stream, offset, len) = (4, 1 << 40, 1_000);
    let part = |offset, len, fin| Frame::Stream {
        stream,
        offset,
        len,
        fin,
    };
    vec![
        Frame::Padding { len },
        Frame::Ping,
        Frame::ack([(7, 7), (1, 5)]),
        Frame::Ack {
            delay: Some(25_500_000),
            ranges: [(0, 0)].into_iter().collect(),
            ecn: Some([1, 2, 3]),
        },
        Frame::ResetStream {
            stream,
            code: 1 << 61,
            final_size: offset,
        },
        Frame::ResetStreamAt {
            stream,
            code: 1 << 61,
            final_size: offset,
            reliable_size: 0,
        },
        Frame::StopSending {
            stream,
            code: 0x10c,
        },
        Frame::Crypto { offset: 0, len },
        Frame::NewToken { len },
        part(offset, len, true),
        part(0, 0, false),
        Frame::Datagram { len },
    ]
}

fn control_frames() -> Vec<Frame> {
    let (stream, limit) = (4, 1 << 50);
    let mut frames = vec![
        Frame::MaxData { limit },
        Frame::MaxStreamData { stream, limit },
        Frame::DataBlocked { limit },
        Frame::StreamDataBlocked { stream, limit },
        Frame::NewConnectionId {
            sequence: 1,
            retire_prior_to: 0,
            cid: "0a0b".into(),
        },
        Frame::RetireConnectionId { sequence: 1 },
        Frame::PathChallenge,
        Frame::PathResponse,
        Frame::HandshakeDone,
        Frame::AckFrequency {
            sequence: 1,
            threshold: Some(10),
            max_delay: Some(25_500_000),
            reordering: Some(0),
        },
        Frame::AckFrequency {
            sequence: 1,
            threshold: None,
            max_delay: None,
            reordering: None,
        },
        Frame::ImmediateAck,
        Frame::Unknown {
            name: "0x30".into(),
        },
    ];
    for kind in [
        Directionality::Bidirectional,
        Directionality::Unidirectional,
    ] {
        frames.push(Frame::MaxStreams { kind, limit });
        frames.push(Frame::StreamsBlocked { kind, limit });
    }
    frames
}
