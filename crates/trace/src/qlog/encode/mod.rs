//! Encoding of events as JSON, in either dialect.

mod connection;
mod frame;
mod packet;
mod recovery;

use clearway_recovery::limit::Limit;

use super::Dialect;
use super::json::Json;
use crate::event::{Event, EventData, PacketType};

/// Encodes one event, without the record separator.
pub(in crate::qlog) fn event(out: &mut Vec<u8>, event: &Event, dialect: Dialect) {
    Json::new(out).element(|json| {
        json.ms("time", event.time);
        json.text("name", name(&event.data, dialect));
        json.object("data", |json| data(json, &event.data, dialect));
    });
}

/// One frame as JSON.
#[cfg(test)]
pub(in crate::qlog) fn frame_json(it: &crate::event::Frame, dialect: Dialect) -> serde_json::Value {
    let mut out = Vec::new();
    Json::new(&mut out).element(|json| frame::frame(json, it, dialect));
    serde_json::from_slice(&out).expect("valid JSON")
}

fn name(data: &EventData, dialect: Dialect) -> &str {
    let newest = data.name();
    match dialect {
        Dialect::Newest => newest,
        Dialect::Qvis => qvis_name(data).unwrap_or(newest),
    }
}

/// The name in qlog 0.3, where it was different.
fn qvis_name(data: &EventData) -> Option<&'static str> {
    Some(match data {
        EventData::ConnectionStarted(_) => "connectivity:connection_started",
        EventData::ConnectionClosed(_) => "connectivity:connection_closed",
        EventData::ConnectionStateUpdated { .. } => "connectivity:connection_state_updated",
        EventData::MtuUpdated { .. } => "connectivity:mtu_updated",
        EventData::MigrationStateUpdated { .. } => "connectivity:migration_state_updated",
        EventData::TupleAssigned { .. } => "connectivity:path_updated",
        EventData::ParametersSet(_) => "transport:parameters_set",
        EventData::VersionInformation { .. } => "transport:version_information",
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

fn data(json: &mut Json<'_>, data: &EventData, dialect: Dialect) {
    match data {
        EventData::ConnectionStarted(it) => connection::started(json, it, dialect),
        EventData::ConnectionClosed(it) => connection::closed(json, it),
        EventData::ConnectionStateUpdated { new } => json.text("new", new),
        EventData::ParametersSet(it) => connection::parameters(json, it, dialect),
        EventData::VersionInformation { chosen } => {
            json.text("chosen_version", &format!("{chosen:08x}"));
        }
        EventData::AlpnInformation { chosen } => match dialect {
            Dialect::Newest => json.object("chosen_alpn", |json| {
                json.text("string_value", chosen);
            }),
            Dialect::Qvis => json.text("chosen_alpn", chosen),
        },
        EventData::PacketSent(it) | EventData::PacketReceived(it) => {
            packet::packet(json, it, dialect);
        }
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
            json.opt_text("trigger", trigger.as_deref());
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
            json.opt_text(
                loss_trigger_key(trigger.as_deref(), dialect),
                trigger.as_deref(),
            );
        }
        EventData::StreamDataRead { stream, len } => {
            json.opt_u64("stream_id", *stream);
            json.text("from", "transport");
            json.text("to", "application");
            frame::length(json, *len, dialect);
        }
        EventData::DataBlockedUpdated { reason } => blocked(json, *reason),
        EventData::StreamDataBlockedUpdated { stream, reason } => {
            json.u64("stream_id", *stream);
            blocked(json, *reason);
        }
        EventData::MigrationStateUpdated { new, remote } => {
            json.text("new", new);
            if let Some(remote) = remote {
                json.object("tuple_remote", |json| connection::endpoint(json, *remote));
            }
        }
        EventData::TupleAssigned { remote } => {
            json.text("tuple_id", "");
            if let Some(remote) = remote {
                json.object("tuple_remote", |json| connection::endpoint(json, *remote));
            }
        }
        EventData::TimerUpdated { kind, change } => recovery::timer(json, *kind, *change),
        EventData::KeyUpdated {
            kind,
            phase,
            trigger,
        } => {
            json.text("key_type", key_type(*kind));
            json.opt_u64("key_phase", *phase);
            json.opt_text("trigger", trigger.as_deref());
        }
        EventData::KeyDiscarded { kind } => json.text("key_type", key_type(*kind)),
        EventData::RecoveryParametersSet(it) => recovery::parameters(json, it),
        EventData::RecoveryMetricsUpdated(it) => recovery::metrics(json, it),
        EventData::CongestionStateUpdated { old, new, trigger } => {
            json.opt_text("old", old.as_deref());
            json.text("new", new);
            json.opt_text("trigger", trigger.as_deref());
        }
        EventData::EcnStateUpdated { old, new } => {
            json.opt_text("old", old.as_deref());
            json.text("new", new);
        }
        EventData::MtuUpdated { old, new } => {
            json.opt_u64("old", *old);
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

/// Where a loss's trigger belongs: the draft's triggers are a closed list, so others are in an
/// extension field.
fn loss_trigger_key(trigger: Option<&str>, dialect: Dialect) -> &'static str {
    match (dialect, trigger) {
        (Dialect::Qvis, _)
        | (_, None | Some("reordering_threshold" | "time_threshold" | "pto_expired")) => "trigger",
        (Dialect::Newest, Some(_)) => OTHER_LOSS_TRIGGER,
    }
}

/// The extension field for triggers of losses that the draft does not list.
pub(in crate::qlog) const OTHER_LOSS_TRIGGER: &str = "other_trigger";

/// The event that stands in for missing events; its code is their number.
pub(in crate::qlog) const DROPPED: &str =
    "events dropped: the trace could not be written fast enough";

fn blocked(json: &mut Json<'_>, reason: Option<Limit>) {
    match reason {
        Some(reason) => {
            json.text("new", "blocked");
            json.text("reason", reason.qlog_name());
        }
        None => json.text("new", "unblocked"),
    }
}

/// The draft names the keys of each direction; an update concerns both, and is recorded as the
/// server's, which every trace has.
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
