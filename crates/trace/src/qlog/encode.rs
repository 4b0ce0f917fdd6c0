//! Events to JSON, in either dialect.

use std::net::{IpAddr, SocketAddr};

use clearway_quic::stream::Directionality;
use clearway_recovery::limit::Limit;

use super::Dialect;
use super::json::Json;
use crate::event::{
    Closed, Event, EventData, Frame, Metrics, Packet, PacketType, Parameters, RecoveryParameters,
    Started, TimerChange, TimerKind,
};

/// As qlog's `BlockedReason` names it. `handshake` is an extension.
pub(crate) const fn reason_name(limit: Limit) -> &'static str {
    match limit {
        Limit::Handshake => "handshake",
        Limit::Amplification => "amplification_protection",
        Limit::Congestion => "congestion_control",
        Limit::Pacing => "pacing",
        Limit::Scheduling => "scheduling",
        Limit::ConnectionFlowControl => "connection_flow_control",
        Limit::StreamFlowControl => "stream_flow_control",
        Limit::StreamLimit => "stream_id",
        Limit::Application => "application",
    }
}

/// One event, without what separates it from the next.
pub(super) fn event(out: &mut Vec<u8>, event: &Event, dialect: Dialect) {
    Json::new(out).element(|json| {
        json.ms("time", event.time);
        json.text("name", name(&event.data, dialect));
        json.object("data", |json| data(json, &event.data, dialect));
    });
}

fn name(data: &EventData, dialect: Dialect) -> &str {
    let newest = data.name();
    match dialect {
        Dialect::Newest => newest,
        Dialect::Qvis => qvis_name(data).unwrap_or(newest),
    }
}

/// The name in 0.3, where it had another.
fn qvis_name(data: &EventData) -> Option<&'static str> {
    Some(match data {
        EventData::ConnectionStarted(_) => "connectivity:connection_started",
        EventData::ConnectionClosed(_) => "connectivity:connection_closed",
        EventData::ConnectionStateUpdated { .. } => "connectivity:connection_state_updated",
        EventData::MtuUpdated { .. } => "connectivity:mtu_updated",
        EventData::MigrationStateUpdated { .. } => "connectivity:migration_state_updated",
        EventData::TupleAssigned { .. } => "connectivity:path_updated",
        EventData::ParametersSet(_) => "transport:parameters_set",
        EventData::AlpnInformation { .. } => "transport:alpn_information",
        EventData::PacketSent(_) => "transport:packet_sent",
        EventData::PacketReceived(_) => "transport:packet_received",
        EventData::PacketDropped { .. } => "transport:packet_dropped",
        EventData::StreamDataRead { .. } => "transport:data_moved",
        EventData::DataBlockedUpdated { .. } => "transport:connection_data_blocked_updated",
        EventData::StreamDataBlockedUpdated { .. } => "transport:stream_data_blocked_updated",
        EventData::KeyUpdated { .. } => "security:key_updated",
        EventData::KeyDiscarded { .. } => "security:key_discarded",
        EventData::PacketLost { .. } => "recovery:packet_lost",
        EventData::TimerUpdated { .. } => "recovery:loss_timer_updated",
        EventData::RecoveryParametersSet(_) => "recovery:parameters_set",
        EventData::RecoveryMetricsUpdated(_) => "recovery:metrics_updated",
        EventData::CongestionStateUpdated { .. } => "recovery:congestion_state_updated",
        EventData::EcnStateUpdated { .. } => "recovery:ecn_state_updated",
        EventData::Scenario { .. }
        | EventData::Marker { .. }
        | EventData::EventsDropped { .. }
        | EventData::Other { .. } => return None,
    })
}

fn opt_text(json: &mut Json<'_>, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        json.text(key, value);
    }
}

fn opt_u64(json: &mut Json<'_>, key: &str, value: Option<u64>) {
    if let Some(value) = value {
        json.u64(key, value);
    }
}

fn opt_ms(json: &mut Json<'_>, key: &str, value: Option<u64>) {
    if let Some(value) = value {
        json.ms(key, value);
    }
}

fn data(json: &mut Json<'_>, data: &EventData, dialect: Dialect) {
    match data {
        EventData::ConnectionStarted(it) => started(json, it, dialect),
        EventData::ConnectionClosed(it) => closed(json, it),
        EventData::ConnectionStateUpdated { new } => json.text("new", new),
        EventData::ParametersSet(it) => parameters(json, it, dialect),
        EventData::AlpnInformation { chosen } => match dialect {
            Dialect::Newest => json.object("chosen_alpn", |json| {
                json.text("string_value", chosen);
            }),
            Dialect::Qvis => json.text("chosen_alpn", chosen),
        },
        EventData::PacketSent(it) | EventData::PacketReceived(it) => packet(json, it, dialect),
        EventData::PacketDropped {
            kind,
            size,
            trigger,
        } => {
            if let Some(kind) = kind {
                json.object("header", |json| json.text("packet_type", kind.name()));
            }
            if let Some(size) = size {
                json.object("raw", |json| json.u64("length", *size));
            }
            opt_text(json, "trigger", trigger.as_deref());
        }
        EventData::PacketLost {
            kind,
            number,
            size,
            mtu_probe,
            trigger,
        } => {
            json.object("header", |json| {
                json.text("packet_type", kind.name());
                json.u64("packet_number", *number);
            });
            if let Some(size) = size {
                json.object("raw", |json| json.u64("length", *size));
            }
            if *mtu_probe {
                json.bool("is_mtu_probe_packet", true);
            }
            opt_text(json, "trigger", trigger.as_deref());
        }
        EventData::StreamDataRead { stream, len } => {
            opt_u64(json, "stream_id", *stream);
            json.text("from", "transport");
            json.text("to", "application");
            match dialect {
                Dialect::Newest => json.object("raw", |json| json.u64("length", *len)),
                Dialect::Qvis => json.u64("length", *len),
            }
        }
        EventData::DataBlockedUpdated { reason } => blocked(json, *reason),
        EventData::StreamDataBlockedUpdated { stream, reason } => {
            json.u64("stream_id", *stream);
            blocked(json, *reason);
        }
        EventData::MigrationStateUpdated { new, remote } => {
            json.text("new", new);
            if let Some(remote) = remote {
                json.object("tuple_remote", |json| endpoint(json, *remote));
            }
        }
        EventData::TupleAssigned { remote } => {
            json.text("tuple_id", "");
            if let Some(remote) = remote {
                json.object("tuple_remote", |json| endpoint(json, *remote));
            }
        }
        EventData::TimerUpdated { kind, change } => timer(json, *kind, *change),
        EventData::KeyUpdated {
            kind,
            phase,
            trigger,
        } => {
            json.text("key_type", key_type(*kind));
            opt_u64(json, "key_phase", *phase);
            opt_text(json, "trigger", trigger.as_deref());
        }
        EventData::KeyDiscarded { kind } => json.text("key_type", key_type(*kind)),
        EventData::RecoveryParametersSet(it) => recovery_parameters(json, it),
        EventData::RecoveryMetricsUpdated(it) => metrics(json, it),
        EventData::CongestionStateUpdated { old, new, trigger } => {
            opt_text(json, "old", old.as_deref());
            json.text("new", new);
            opt_text(json, "trigger", trigger.as_deref());
        }
        EventData::EcnStateUpdated { old, new } => {
            opt_text(json, "old", old.as_deref());
            json.text("new", new);
        }
        EventData::MtuUpdated { old, new } => {
            opt_u64(json, "old", *old);
            json.u64("new", *new);
        }
        EventData::Scenario { name, details } => {
            json.text("name", name);
            json.object("details", |json| {
                for (key, value) in details {
                    json.text(key, value);
                }
            });
        }
        EventData::Marker { kind, message } => {
            json.text("type", kind);
            json.text("message", message);
        }
        EventData::EventsDropped { count } => {
            json.u64("code", *count);
            json.text("message", DROPPED);
        }
        EventData::Other { .. } => {}
    }
}

/// What stands where events are missing; the count is the code.
pub(super) const DROPPED: &str = "events dropped: the trace could not be written fast enough";

fn blocked(json: &mut Json<'_>, reason: Option<Limit>) {
    match reason {
        Some(reason) => {
            json.text("new", "blocked");
            json.text("reason", reason_name(reason));
        }
        None => json.text("new", "unblocked"),
    }
}

fn endpoint(json: &mut Json<'_>, address: SocketAddr) {
    let (ip, port) = match address.ip() {
        IpAddr::V4(_) => ("ip_v4", "port_v4"),
        IpAddr::V6(_) => ("ip_v6", "port_v6"),
    };
    json.text(ip, &address.ip().to_string());
    if address.port() != 0 {
        json.u64(port, address.port().into());
    }
}

fn started(json: &mut Json<'_>, it: &Started, dialect: Dialect) {
    if dialect == Dialect::Qvis {
        let ip = |address: Option<SocketAddr>| {
            address.map_or_else(String::new, |address| address.ip().to_string())
        };
        let port = |address: Option<SocketAddr>| address.map(|address| address.port().into());
        json.text("src_ip", &ip(it.local));
        opt_u64(json, "src_port", port(it.local));
        json.text("dst_ip", &ip(it.remote));
        opt_u64(json, "dst_port", port(it.remote));
        opt_text(json, "src_cid", it.local_cid.as_deref());
        opt_text(json, "dst_cid", it.original_dcid.as_deref());
        return;
    }
    json.object("local", |json| {
        if let Some(local) = it.local {
            endpoint(json, local);
        }
        if let Some(cid) = it.local_cid.as_deref() {
            json.array("connection_ids", |json| json.item(cid));
        }
    });
    json.object("remote", |json| {
        if let Some(remote) = it.remote {
            endpoint(json, remote);
        }
    });
}

fn closed(json: &mut Json<'_>, it: &Closed) {
    opt_text(
        json,
        "initiator",
        it.initiator.map(crate::event::Initiator::name),
    );
    if let Some(code) = it.code {
        let (key, name) = if it.application {
            ("application_error", "unknown")
        } else {
            ("connection_error", transport_error(code))
        };
        match (it.application, crypto_error(code)) {
            (false, Some(alert)) => json.text(key, &alert),
            _ => json.text(key, name),
        }
        json.u64("error_code", code);
    }
    opt_text(json, "reason", it.reason.as_deref());
    opt_text(json, "trigger", it.trigger.as_deref());
}

/// RFC 9001 §4.8: TLS alerts are codes of their own.
fn crypto_error(code: u64) -> Option<String> {
    (0x100..0x200)
        .contains(&code)
        .then(|| format!("crypto_error_{code:#x}"))
}

/// The names of RFC 9000 §20.1, as qlog spells them.
const fn transport_error(code: u64) -> &'static str {
    match code {
        0x0 => "no_error",
        0x1 => "internal_error",
        0x2 => "connection_refused",
        0x3 => "flow_control_error",
        0x4 => "stream_limit_error",
        0x5 => "stream_state_error",
        0x6 => "final_size_error",
        0x7 => "frame_encoding_error",
        0x8 => "transport_parameter_error",
        0x9 => "connection_id_limit_error",
        0xa => "protocol_violation",
        0xb => "invalid_token",
        0xc => "application_error",
        0xd => "crypto_buffer_exceeded",
        0xe => "key_update_error",
        0xf => "aead_limit_reached",
        0x10 => "no_viable_path",
        _ => "unknown",
    }
}

fn parameters(json: &mut Json<'_>, it: &Parameters, dialect: Dialect) {
    let owner = match dialect {
        Dialect::Newest => "initiator",
        Dialect::Qvis => "owner",
    };
    opt_text(json, owner, it.initiator.map(crate::event::Initiator::name));
    for (key, value) in [
        ("max_idle_timeout", it.max_idle_timeout),
        ("max_udp_payload_size", it.max_udp_payload_size),
        ("ack_delay_exponent", it.ack_delay_exponent),
        ("max_ack_delay", it.max_ack_delay),
        ("active_connection_id_limit", it.active_connection_id_limit),
        ("initial_max_data", it.initial_max_data),
        (
            "initial_max_stream_data_bidi_local",
            it.initial_max_stream_data_bidi_local,
        ),
        (
            "initial_max_stream_data_bidi_remote",
            it.initial_max_stream_data_bidi_remote,
        ),
        (
            "initial_max_stream_data_uni",
            it.initial_max_stream_data_uni,
        ),
        ("initial_max_streams_bidi", it.initial_max_streams_bidi),
        ("initial_max_streams_uni", it.initial_max_streams_uni),
        ("max_datagram_frame_size", it.max_datagram_frame_size),
    ] {
        opt_u64(json, key, value);
    }
    if let Some(disabled) = it.disable_active_migration {
        json.bool("disable_active_migration", disabled);
    }
    if let Some(grease) = it.grease_quic_bit {
        json.bool("grease_quic_bit", grease);
    }
}

fn packet(json: &mut Json<'_>, it: &Packet, dialect: Dialect) {
    json.object("header", |json| {
        json.text("packet_type", it.kind.name());
        opt_u64(json, "packet_number", it.number);
    });
    if let Some(size) = it.size {
        json.object("raw", |json| json.u64("length", size));
    }
    if it.mtu_probe {
        json.bool("is_mtu_probe_packet", true);
    }
    if let Some(ecn) = &it.ecn {
        json.text("ecn", ecn);
    }
    if let Some(frames) = &it.frames {
        json.array("frames", |json| {
            for each in frames {
                json.element(|json| frame(json, each, dialect));
            }
        });
    }
}

const fn stream_type(kind: Directionality) -> &'static str {
    match kind {
        Directionality::Bidirectional => "bidirectional",
        Directionality::Unidirectional => "unidirectional",
    }
}

fn length(json: &mut Json<'_>, len: u64, dialect: Dialect) {
    match dialect {
        Dialect::Newest => json.object("raw", |json| json.u64("length", len)),
        Dialect::Qvis => json.u64("length", len),
    }
}

fn frame(json: &mut Json<'_>, frame: &Frame, dialect: Dialect) {
    json.text("frame_type", known_name(frame));
    match frame {
        Frame::Ping
        | Frame::PathChallenge
        | Frame::PathResponse
        | Frame::HandshakeDone
        | Frame::ImmediateAck => {}
        Frame::Padding { len } => match dialect {
            Dialect::Newest => json.object("raw", |json| json.u64("payload_length", *len)),
            Dialect::Qvis => json.u64("length", *len),
        },
        Frame::Ack { delay, ranges, ecn } => {
            opt_ms(json, "ack_delay", *delay);
            json.array("acked_ranges", |json| {
                for &(from, to) in ranges {
                    // qvis needs both ends.
                    if from == to && dialect == Dialect::Newest {
                        json.numbers(&[from]);
                    } else {
                        json.numbers(&[from, to]);
                    }
                }
            });
            if let Some([ect0, ect1, ce]) = ecn {
                json.u64("ect0", *ect0);
                json.u64("ect1", *ect1);
                json.u64("ce", *ce);
            }
        }
        Frame::ResetStream {
            stream,
            code,
            final_size,
        } => {
            json.u64("stream_id", *stream);
            json.text("error", "unknown");
            json.u64("error_code", *code);
            json.u64("final_size", *final_size);
        }
        Frame::StopSending { stream, code } => {
            json.u64("stream_id", *stream);
            json.text("error", "unknown");
            json.u64("error_code", *code);
        }
        Frame::Crypto { offset, len } => {
            json.u64("offset", *offset);
            length(json, *len, dialect);
        }
        Frame::NewToken { len } => json.object("token", |json| {
            json.object("raw", |json| json.u64("length", *len));
        }),
        Frame::Stream {
            stream,
            offset,
            len,
            fin,
        } => {
            json.u64("stream_id", *stream);
            json.u64("offset", *offset);
            if *fin {
                json.bool("fin", true);
            }
            length(json, *len, dialect);
        }
        Frame::MaxData { limit } => json.u64("maximum", *limit),
        Frame::MaxStreamData { stream, limit } => {
            json.u64("stream_id", *stream);
            json.u64("maximum", *limit);
        }
        Frame::MaxStreams { kind, limit } => {
            json.text("stream_type", stream_type(*kind));
            json.u64("maximum", *limit);
        }
        Frame::DataBlocked { limit } => json.u64("limit", *limit),
        Frame::StreamDataBlocked { stream, limit } => {
            json.u64("stream_id", *stream);
            json.u64("limit", *limit);
        }
        Frame::StreamsBlocked { kind, limit } => {
            json.text("stream_type", stream_type(*kind));
            json.u64("limit", *limit);
        }
        Frame::NewConnectionId {
            sequence,
            retire_prior_to,
            cid,
        } => {
            json.u64("sequence_number", *sequence);
            json.u64("retire_prior_to", *retire_prior_to);
            json.text("connection_id", cid);
        }
        Frame::RetireConnectionId { sequence } | Frame::AckFrequency { sequence } => {
            json.u64("sequence_number", *sequence);
        }
        Frame::ConnectionClose {
            application,
            code,
            reason,
        } => {
            let space = if *application {
                "application"
            } else {
                "transport"
            };
            json.text("error_space", space);
            let error = match (*application, crypto_error(*code)) {
                (true, _) => "unknown".into(),
                (false, Some(alert)) => alert,
                (false, None) => transport_error(*code).into(),
            };
            json.text("error", &error);
            json.u64("error_code", *code);
            json.text("reason", reason);
        }
        Frame::Datagram { len } => length(json, *len, dialect),
        Frame::Unknown { name } => {
            json.u64("frame_type_bytes", frame_number(name));
            json.text("frame_type_name", name);
        }
    }
}

/// The draft has names for the frames of RFCs only.
fn known_name(frame: &Frame) -> &str {
    match frame {
        Frame::Unknown { .. } => "unknown",
        other => other.name(),
    }
}

/// A type read as a number, if the trace gave it as one.
fn frame_number(name: &str) -> u64 {
    let hex = name.strip_prefix("0x");
    hex.map_or_else(|| name.parse(), |hex| u64::from_str_radix(hex, 16))
        .unwrap_or(0)
}

fn timer(json: &mut Json<'_>, kind: Option<TimerKind>, change: TimerChange) {
    let kind = kind.map(|kind| match kind {
        TimerKind::Loss => "ack",
        TimerKind::Pto => "pto",
    });
    opt_text(json, "timer_type", kind);
    match change {
        TimerChange::Set(delta) => {
            json.text("event_type", "set");
            opt_ms(json, "delta", delta);
        }
        TimerChange::Expired => json.text("event_type", "expired"),
        TimerChange::Cancelled => json.text("event_type", "cancelled"),
    }
}

/// The draft names the keys of each direction; an update concerns both, and is
/// told as the server's, which every trace has.
const fn key_type(kind: PacketType) -> &'static str {
    match kind {
        PacketType::Initial => "server_initial_secret",
        PacketType::Handshake => "server_handshake_secret",
        PacketType::ZeroRtt => "client_0rtt_secret",
        PacketType::OneRtt
        | PacketType::Retry
        | PacketType::VersionNegotiation
        | PacketType::StatelessReset
        | PacketType::Unknown => "server_1rtt_secret",
    }
}

fn recovery_parameters(json: &mut Json<'_>, it: &RecoveryParameters) {
    opt_u64(json, "reordering_threshold", it.reordering_threshold);
    if let Some(threshold) = it.time_threshold {
        json.thousandths("time_threshold", threshold);
    }
    json.u64("timer_granularity", 1);
    opt_ms(json, "initial_rtt", it.initial_rtt);
    opt_u64(json, "max_datagram_size", it.max_datagram_size);
    opt_u64(
        json,
        "initial_congestion_window",
        it.initial_congestion_window,
    );
    opt_u64(
        json,
        "minimum_congestion_window",
        it.minimum_congestion_window,
    );
    opt_u64(
        json,
        "persistent_congestion_threshold",
        it.persistent_congestion_threshold,
    );
    opt_text(json, "controller", it.controller.as_deref());
}

fn metrics(json: &mut Json<'_>, it: &Metrics) {
    opt_ms(json, "min_rtt", it.min_rtt);
    opt_ms(json, "smoothed_rtt", it.smoothed_rtt);
    opt_ms(json, "latest_rtt", it.latest_rtt);
    opt_ms(json, "rtt_variance", it.rtt_variance);
    for (key, value) in [
        ("pto_count", it.pto_count),
        ("congestion_window", it.congestion_window),
        ("bytes_in_flight", it.bytes_in_flight),
        ("ssthresh", it.ssthresh),
        ("packets_in_flight", it.packets_in_flight),
        ("pacing_rate", it.pacing_rate),
        ("delivery_rate", it.delivery_rate),
    ] {
        opt_u64(json, key, value);
    }
    if let Some(limited) = it.app_limited {
        json.bool("app_limited", limited);
    }
    for (key, value) in [
        ("delivered", it.delivered),
        ("lost", it.lost),
        ("congestion_events", it.congestion_events),
        ("spurious_events", it.spurious_events),
        ("persistent_events", it.persistent_events),
    ] {
        opt_u64(json, key, value);
    }
    if !it.extra.is_empty() {
        json.object("controller", |json| {
            for (key, value) in &it.extra {
                json.u64(key, *value);
            }
        });
    }
}
