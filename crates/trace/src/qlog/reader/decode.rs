//! Decoding of one event's JSON.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use clearway_recovery::controller::WindowPolicy;
use clearway_recovery::limit::Limit;

use super::fields::{boolean, field, length, lower_case, ms, negative, text, time, u64_of, word};
use super::frames::frames;
use super::header::Header;
use super::metrics::metrics;
use super::value::Value;
use crate::event::{
    Closed, Event, EventData, Initiator, Name, Packet, PacketType, Parameters, RecoveryParameters,
    Started, TimerChange, TimerKind,
};
use crate::qlog::encode::{DROPPED, OTHER_LOSS_TRIGGER};

/// Decodes an event, with its time as in the file; `None` if it is invalid.
pub(super) fn event(value: Value<'_>, header: &Header) -> Option<Event> {
    let unit = if header.micros { 1_000 } else { 1_000_000 };
    if value.is_object() {
        let time = time(field(value, &["time", "relative_time"])?, unit)?;
        let data_of = value.get("data").unwrap_or(Value::NULL);
        let data = match value.get("name").and_then(Value::as_str) {
            Some(name) => data(&lower_case(name), data_of)?,
            None => {
                let category = text(value, &["category"])?;
                let event = text(value, &["type", "event", "event_type"])?;
                data(&full_name(category, event), data_of)?
            }
        };
        return Some(Event { time, data });
    }
    // The first drafts: fields in the order given by the header.
    let values: Vec<Value<'_>> = value.elements()?.collect();
    let at = |names: &[&str]| {
        let fields = &header.event_fields;
        let at = fields
            .iter()
            .position(|field| names.contains(&field.as_str()))?;
        values.get(at).copied()
    };
    let time = time(at(&["relative_time", "time"])?, unit)?;
    let category = at(&["category"])?.as_str()?;
    let event = at(&["event_type", "event"])?.as_str()?;
    let data = data(
        &full_name(category, event),
        at(&["data"]).unwrap_or(Value::NULL),
    )?;
    Some(Event { time, data })
}

fn full_name(category: &str, event: &str) -> String {
    format!("{category}:{event}").to_ascii_lowercase()
}

fn data(name: &str, it: Value<'_>) -> Option<EventData> {
    let (category, kind) = name.split_once(':').unwrap_or(("", name));
    if category == "simulation" {
        return simulation(kind, it);
    }
    Some(match kind {
        "connection_started" => EventData::ConnectionStarted(Box::new(started(it))),
        "connection_closed" => EventData::ConnectionClosed(Box::new(closed(it))),
        "connection_state_updated" => EventData::ConnectionStateUpdated {
            new: word(it, &["new"])?,
        },
        "parameters_set" if category == "recovery" => recovery_parameters(it),
        "recovery_parameters_set" => recovery_parameters(it),
        "parameters_set" if matches!(category, "quic" | "transport" | "") => {
            EventData::ParametersSet(Box::new(parameters(it)))
        }
        "version_information" => match text(it, &["chosen_version"])
            .and_then(|chosen| u32::from_str_radix(chosen, 16).ok())
        {
            Some(chosen) => EventData::VersionInformation { chosen },
            // Others also say only what was offered.
            None => other(name),
        },
        "alpn_information" => match it.get("chosen_alpn").and_then(alpn) {
            Some(chosen) => EventData::AlpnInformation { chosen },
            // aioquic's also says only what was offered.
            None => other(name),
        },
        "packet_sent" => EventData::PacketSent(packet(it)?),
        "packet_received" => EventData::PacketReceived(packet(it)?),
        "packet_dropped" => dropped(it),
        "packet_lost" => lost(it)?,
        "data_moved" | "stream_data_moved" => return Some(moved(name, it)),
        "connection_data_blocked_updated" => EventData::DataBlockedUpdated {
            reason: blocked(it)?,
        },
        "stream_data_blocked_updated" => EventData::StreamDataBlockedUpdated {
            stream: u64_of(it, &["stream_id"])?,
            reason: blocked(it)?,
        },
        "migration_state_updated" => EventData::MigrationStateUpdated {
            new: word(it, &["new"])?,
            remote: remote(it),
        },
        "tuple_assigned" | "path_updated" | "path_assigned" => {
            EventData::TupleAssigned { remote: remote(it) }
        }
        "timer_updated" | "loss_timer_updated" => return timer(name, it),
        "loss_timer_set" => EventData::TimerUpdated {
            kind: timer_kind(it),
            change: TimerChange::Set(ms(it, &["delta"])),
        },
        "loss_timer_expired" => EventData::TimerUpdated {
            kind: timer_kind(it),
            change: TimerChange::Expired,
        },
        "key_updated" => EventData::KeyUpdated {
            kind: key_kind(it)?,
            phase: u64_of(it, &["key_phase", "generation"]),
            trigger: word(it, &["trigger"]),
        },
        "key_discarded" | "key_retired" => EventData::KeyDiscarded {
            kind: key_kind(it)?,
        },
        "metrics_updated" | "recovery_metrics_updated" | "metric_update" => {
            EventData::RecoveryMetricsUpdated(Box::new(metrics(it)?))
        }
        "congestion_state_updated" => EventData::CongestionStateUpdated {
            old: word(it, &["old"]).map(state),
            new: state(word(it, &["new"])?),
            trigger: word(it, &["trigger"]),
        },
        "ecn_state_updated" => EventData::EcnStateUpdated {
            old: word(it, &["old"]),
            new: word(it, &["new", "state"])?,
        },
        "mtu_updated" => EventData::MtuUpdated {
            old: u64_of(it, &["old"]),
            new: u64_of(it, &["new", "mtu"])?,
        },
        "warning" if text(it, &["message"]) == Some(DROPPED) => EventData::EventsDropped {
            count: u64_of(it, &["code"])?,
        },
        _ => other(name),
    })
}

fn other(name: &str) -> EventData {
    EventData::Other {
        name: Name::Owned(name.to_owned()),
    }
}

fn simulation(kind: &str, it: Value<'_>) -> Option<EventData> {
    let owned = |name: &str| text(it, &[name]).map(|text| Name::Owned(text.to_owned()));
    match kind {
        "scenario" => Some(EventData::Scenario {
            name: owned("name")?,
            details: it.get("details").map(details).unwrap_or_default(),
        }),
        "marker" => Some(EventData::Marker {
            kind: owned("type").unwrap_or_default(),
            message: owned("message").unwrap_or_default(),
        }),
        _ => Some(other(&format!("simulation:{kind}"))),
    }
}

/// The fields of an object, ordered by name; texts as they are, the rest as JSON.
fn details(it: Value<'_>) -> Vec<(String, String)> {
    let said = |value: Value<'_>| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_json().to_string(),
    };
    let fields = it.fields().into_iter().flatten();
    let ordered: BTreeMap<&str, Value<'_>> = fields.collect();
    let ordered = ordered.into_iter();
    ordered
        .map(|(key, value)| (key.to_owned(), said(value)))
        .collect()
}

/// `SlowStart` and `slow start` are `slow_start`.
fn state(name: Name) -> Name {
    match name.as_ref() {
        "slowstart" | "slow start" => "slow_start".into(),
        "congestionavoidance" | "congestion avoidance" => "congestion_avoidance".into(),
        "applicationlimited" | "application limited" => "application_limited".into(),
        _ => name,
    }
}

fn alpn(value: Value<'_>) -> Option<Name> {
    let named = value.as_str().or_else(|| text(value, &["string_value"]));
    Some(Name::Owned(named?.to_owned()))
}

fn initiator(it: Value<'_>) -> Option<Initiator> {
    match text(it, &["initiator", "owner"])?
        .to_ascii_lowercase()
        .as_str()
    {
        "local" => Some(Initiator::Local),
        "remote" => Some(Initiator::Remote),
        _ => None,
    }
}

fn address(it: Value<'_>, ips: &[&str], ports: &[&str]) -> Option<SocketAddr> {
    let ip: IpAddr = text(it, ips)?.parse().ok()?;
    let port = u64_of(it, ports).and_then(|port| u16::try_from(port).ok());
    Some(SocketAddr::new(ip, port.unwrap_or(0)))
}

fn endpoint(it: Value<'_>) -> Option<SocketAddr> {
    address(
        it,
        &["ip_v4", "ip_v6", "ip"],
        &["port_v4", "port_v6", "port"],
    )
}

fn remote(it: Value<'_>) -> Option<SocketAddr> {
    endpoint(field(it, &["tuple_remote", "path_remote", "remote"])?)
}

fn first_cid(it: Value<'_>) -> Option<String> {
    let mut ids = it.get("connection_ids")?.elements()?;
    ids.next()?.as_str().map(str::to_owned)
}

fn started(it: Value<'_>) -> Started {
    let old = |side: &str| address(it, &[&format!("{side}_ip")], &[&format!("{side}_port")]);
    Started {
        role: None,
        local: it.get("local").and_then(endpoint).or_else(|| old("src")),
        remote: it.get("remote").and_then(endpoint).or_else(|| old("dst")),
        original_dcid: text(it, &["dst_cid"]).map(str::to_owned),
        local_cid: it
            .get("local")
            .and_then(first_cid)
            .or_else(|| Some(text(it, &["src_cid"])?.to_owned())),
    }
}

fn closed(it: Value<'_>) -> Closed {
    let application = it.get("application_error").is_some()
        || it.get("application_code").is_some()
        || it.get("application_error_code").is_some();
    Closed {
        initiator: initiator(it),
        trigger: word(it, &["trigger"]),
        code: u64_of(
            it,
            &[
                "error_code",
                "application_error",
                "connection_error",
                "application_code",
                "connection_code",
                "application_error_code",
                "connection_error_code",
            ],
        ),
        application,
        reason: text(it, &["reason"]).map(str::to_owned),
    }
}

fn parameters(it: Value<'_>) -> Parameters {
    let get = |name: &str| u64_of(it, &[name]);
    Parameters {
        initiator: initiator(it),
        max_idle_timeout: u64_of(it, &["max_idle_timeout", "idle_timeout"]),
        max_udp_payload_size: u64_of(it, &["max_udp_payload_size", "max_packet_size"]),
        ack_delay_exponent: get("ack_delay_exponent"),
        max_ack_delay: get("max_ack_delay"),
        active_connection_id_limit: get("active_connection_id_limit"),
        initial_max_data: get("initial_max_data"),
        initial_max_stream_data_bidi_local: get("initial_max_stream_data_bidi_local"),
        initial_max_stream_data_bidi_remote: get("initial_max_stream_data_bidi_remote"),
        initial_max_stream_data_uni: get("initial_max_stream_data_uni"),
        initial_max_streams_bidi: get("initial_max_streams_bidi"),
        initial_max_streams_uni: get("initial_max_streams_uni"),
        max_datagram_frame_size: get("max_datagram_frame_size"),
        disable_active_migration: boolean(it, &["disable_active_migration"]),
        grease_quic_bit: boolean(it, &["grease_quic_bit"]),
        reset_stream_at: boolean(it, &["reset_stream_at"]),
    }
}

fn packet_type(it: Value<'_>) -> PacketType {
    let header = it.get("header").unwrap_or(Value::NULL);
    let name = text(header, &["packet_type"]).or_else(|| text(it, &["packet_type"]));
    name.map_or(PacketType::Unknown, PacketType::from_name)
}

fn number(it: Value<'_>) -> Option<u64> {
    let header = it.get("header").unwrap_or(Value::NULL);
    u64_of(header, &["packet_number"]).or_else(|| u64_of(it, &["packet_number"]))
}

fn size(it: Value<'_>) -> Option<u64> {
    let header = it.get("header").unwrap_or(Value::NULL);
    length(it, &["packet_size"]).or_else(|| u64_of(header, &["packet_size"]))
}

/// `None` if its number is negative: no packet has such a number.
fn packet(it: Value<'_>) -> Option<Packet> {
    let header = it.get("header").unwrap_or(Value::NULL);
    let number_of = |it| negative(it, &["packet_number"]);
    if number_of(header) || number_of(it) {
        return None;
    }
    Some(Packet {
        kind: packet_type(it),
        number: number(it),
        size: size(it),
        frames: frames(it),
        in_flight: None,
        mtu_probe: boolean(it, &["is_mtu_probe_packet"]).unwrap_or(false),
        ecn: text(it, &["ecn"]).map(|mark| Name::Owned(mark.to_owned())),
    })
}

fn dropped(it: Value<'_>) -> EventData {
    let kind = packet_type(it);
    EventData::PacketDropped {
        kind: (kind != PacketType::Unknown).then_some(kind),
        size: size(it),
        trigger: word(it, &["trigger"]),
    }
}

fn lost(it: Value<'_>) -> Option<EventData> {
    // If the type is missing, assume the most frequent one.
    let kind = match packet_type(it) {
        PacketType::Unknown => PacketType::OneRtt,
        kind => kind,
    };
    Some(EventData::PacketLost {
        kind,
        number: number(it)?,
        size: size(it),
        mtu_probe: boolean(it, &["is_mtu_probe_packet"]).unwrap_or(false),
        trigger: word(it, &["trigger", OTHER_LOSS_TRIGGER]),
    })
}

fn moved(name: &str, it: Value<'_>) -> EventData {
    if text(it, &["to"]) == Some("application") {
        EventData::StreamDataRead {
            stream: u64_of(it, &["stream_id"]),
            len: length(it, &["length"]).unwrap_or(0),
        }
    } else {
        other(name)
    }
}

/// The limit, or `None` inside for unblocked. Blocked without a known reason is invalid here.
fn blocked(it: Value<'_>) -> Option<Option<Limit>> {
    match text(it, &["new"])? {
        "unblocked" => Some(None),
        "blocked" => {
            let reason = text(it, &["reason"])?;
            Limit::from_qlog_name(reason).map(Some)
        }
        _ => None,
    }
}

fn timer_kind(it: Value<'_>) -> Option<TimerKind> {
    match text(it, &["timer_type"])? {
        "ack" | "loss_timeout" => Some(TimerKind::Loss),
        "pto" => Some(TimerKind::Pto),
        _ => None,
    }
}

fn timer(name: &str, it: Value<'_>) -> Option<EventData> {
    let kind = timer_kind(it);
    if kind.is_none() && it.get("timer_type").is_some() {
        // The idle timer and others do not belong to recovery.
        return Some(other(name));
    }
    Some(EventData::TimerUpdated {
        kind,
        change: match text(it, &["event_type"])? {
            "set" => TimerChange::Set(ms(it, &["delta"])),
            "expired" => TimerChange::Expired,
            "cancelled" | "canceled" => TimerChange::Cancelled,
            _ => return None,
        },
    })
}

fn key_kind(it: Value<'_>) -> Option<PacketType> {
    let name = text(it, &["key_type"])?.to_ascii_lowercase();
    let kinds = [
        ("initial", PacketType::Initial),
        ("handshake", PacketType::Handshake),
        ("0rtt", PacketType::ZeroRtt),
        ("1rtt", PacketType::OneRtt),
    ];
    let found = kinds.into_iter().find(|(part, _)| name.contains(part));
    found.map(|(_, kind)| kind)
}

fn recovery_parameters(it: Value<'_>) -> EventData {
    let thousandths = |value: Value<'_>| time(value, 1_000);
    EventData::RecoveryParametersSet(Box::new(RecoveryParameters {
        controller: word(it, &["controller", "congestion_control", "cc"]),
        window_policy: text(it, &["window_policy"]).and_then(WindowPolicy::from_name),
        reordering_threshold: u64_of(it, &["reordering_threshold"]),
        time_threshold: it.get("time_threshold").and_then(thousandths),
        initial_rtt: ms(it, &["initial_rtt"]),
        max_datagram_size: u64_of(it, &["max_datagram_size"]),
        initial_congestion_window: u64_of(it, &["initial_congestion_window"]),
        minimum_congestion_window: u64_of(it, &["minimum_congestion_window"]),
        persistent_congestion_threshold: u64_of(it, &["persistent_congestion_threshold"]),
    }))
}
