//! Encoding of connection start and end, and of transport parameters.

use std::net::{IpAddr, SocketAddr};

use crate::event::{Closed, Initiator, Parameters, Started};
use crate::qlog::Dialect;
use crate::qlog::json::Json;

pub(super) fn endpoint(json: &mut Json<'_>, address: SocketAddr) {
    let (ip, port) = match address.ip() {
        IpAddr::V4(_) => ("ip_v4", "port_v4"),
        IpAddr::V6(_) => ("ip_v6", "port_v6"),
    };
    json.text(ip, &address.ip().to_string());
    if address.port() != 0 {
        json.u64(port, address.port().into());
    }
}

pub(super) fn started(json: &mut Json<'_>, it: &Started, dialect: Dialect) {
    if dialect == Dialect::Qvis {
        let ip = |address: Option<SocketAddr>| {
            address.map_or_else(String::new, |address| address.ip().to_string())
        };
        let port = |address: Option<SocketAddr>| address.map(|address| address.port().into());
        json.text("src_ip", &ip(it.local));
        json.opt_u64("src_port", port(it.local));
        json.text("dst_ip", &ip(it.remote));
        json.opt_u64("dst_port", port(it.remote));
        json.opt_text("src_cid", it.local_cid.as_deref());
        json.opt_text("dst_cid", it.original_dcid.as_deref());
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

pub(super) fn closed(json: &mut Json<'_>, it: &Closed) {
    json.opt_text("initiator", it.initiator.map(Initiator::name));
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
    json.opt_text("reason", it.reason.as_deref());
    json.opt_text("trigger", it.trigger.as_deref());
}

/// RFC 9001 §4.8: TLS alerts have error codes of their own.
pub(super) fn crypto_error(code: u64) -> Option<String> {
    (0x100..0x200)
        .contains(&code)
        .then(|| format!("crypto_error_{code:#x}"))
}

/// The names of RFC 9000 §20.1, as qlog spells them.
pub(super) const fn transport_error(code: u64) -> &'static str {
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

pub(super) fn parameters(json: &mut Json<'_>, it: &Parameters, dialect: Dialect) {
    let owner = match dialect {
        Dialect::Newest => "initiator",
        Dialect::Qvis => "owner",
    };
    json.opt_text(owner, it.initiator.map(Initiator::name));
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
        json.opt_u64(key, value);
    }
    if let Some(disabled) = it.disable_active_migration {
        json.bool("disable_active_migration", disabled);
    }
    if let Some(grease) = it.grease_quic_bit {
        json.bool("grease_quic_bit", grease);
    }
    if let Some(reliable) = it.reset_stream_at {
        json.bool("reset_stream_at", reliable);
    }
}
