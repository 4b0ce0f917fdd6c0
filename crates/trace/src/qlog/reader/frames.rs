//! Decoding of frames, in every stack's spelling.

use clearway_quic::stream::Directionality;
use serde_json::Value;

use super::fields::{boolean, field, integer, length, ms, text, u64_of};
use crate::event::{AckRanges, Frame, Name};

/// Maximum number of frames kept per packet; no packet has room for more.
const MAX_FRAMES: usize = 4096;

pub(super) fn frames(value: &Value) -> Option<Vec<Frame>> {
    let list = value.get("frames")?.as_array()?;
    Some(list.iter().take(MAX_FRAMES).map(frame).collect())
}

fn frame(value: &Value) -> Frame {
    let name = text(value, &["frame_type", "type"])
        .or_else(|| u64_of(value, &["frame_type"]).map(|number| format!("{number:#x}")))
        .unwrap_or_default()
        .to_ascii_lowercase();
    let name = unnamed(&name, value).unwrap_or(name);
    known(&name, value).unwrap_or(Frame::Unknown {
        name: Name::Owned(name),
    })
}

/// The number of a frame that the file calls unknown, in hex.
fn unnamed(name: &str, value: &Value) -> Option<String> {
    let number = u64_of(
        value,
        &["frame_type_bytes", "raw_frame_type", "frame_type_value"],
    )?;
    (name == "unknown").then(|| format!("{number:#x}"))
}

fn known(name: &str, value: &Value) -> Option<Frame> {
    let stream = || u64_of(value, &["stream_id", "id"]);
    let limit = || u64_of(value, &["maximum", "limit"]);
    let code = || u64_of(value, &["error_code", "raw_error_code", "raw_error"]);
    let sequence = || u64_of(value, &["sequence_number"]);
    Some(match name {
        "padding" => Frame::Padding {
            len: padding(value),
        },
        "ping" => Frame::Ping,
        "ack" | "ack_ecn" | "ack_receive_timestamps" => ack(value)?,
        "reset_stream" | "reset_stream_at" => Frame::ResetStream {
            stream: stream()?,
            code: code().unwrap_or(0),
            final_size: u64_of(value, &["final_size"]).unwrap_or(0),
        },
        "stop_sending" => Frame::StopSending {
            stream: stream()?,
            code: code().unwrap_or(0),
        },
        "crypto" => Frame::Crypto {
            offset: u64_of(value, &["offset"]).unwrap_or(0),
            len: length(value, &["length"]).unwrap_or(0),
        },
        "new_token" => Frame::NewToken {
            len: token_length(value),
        },
        "stream" => Frame::Stream {
            stream: stream()?,
            offset: u64_of(value, &["offset"]).unwrap_or(0),
            len: length(value, &["length"]).unwrap_or(0),
            fin: boolean(value, &["fin"]).unwrap_or(false),
        },
        "max_data" => Frame::MaxData { limit: limit()? },
        "max_stream_data" => Frame::MaxStreamData {
            stream: stream()?,
            limit: limit()?,
        },
        "max_streams" => Frame::MaxStreams {
            kind: stream_type(value),
            limit: limit()?,
        },
        "data_blocked" => Frame::DataBlocked { limit: limit()? },
        "stream_data_blocked" => Frame::StreamDataBlocked {
            stream: stream()?,
            limit: limit()?,
        },
        "streams_blocked" => Frame::StreamsBlocked {
            kind: stream_type(value),
            limit: limit()?,
        },
        "new_connection_id" => Frame::NewConnectionId {
            sequence: sequence()?,
            retire_prior_to: u64_of(value, &["retire_prior_to", "retire_before"]).unwrap_or(0),
            cid: text(value, &["connection_id"]).unwrap_or_default(),
        },
        "retire_connection_id" => Frame::RetireConnectionId {
            sequence: sequence()?,
        },
        "path_challenge" => Frame::PathChallenge,
        "path_response" => Frame::PathResponse,
        "connection_close" | "application_close" => Frame::ConnectionClose {
            application: name == "application_close"
                || text(value, &["error_space"]).is_some_and(|space| space.starts_with("app")),
            code: code().unwrap_or(0),
            reason: text(value, &["reason"]).unwrap_or_default(),
        },
        "handshake_done" => Frame::HandshakeDone,
        "datagram" => Frame::Datagram {
            len: length(value, &["length"]).unwrap_or(0),
        },
        "ack_frequency" => Frame::AckFrequency {
            sequence: sequence().unwrap_or(0),
            threshold: u64_of(value, &["ack_eliciting_threshold", "packet_tolerance"]),
            max_delay: ms(value, &["request_max_ack_delay"]),
            reordering: u64_of(value, &["reordering_threshold"]),
        },
        "immediate_ack" => Frame::ImmediateAck,
        _ => return None,
    })
}

fn padding(value: &Value) -> u64 {
    let raw = value.get("raw");
    raw.and_then(|raw| u64_of(raw, &["payload_length", "length"]))
        .or_else(|| u64_of(value, &["payload_length", "length"]))
        .unwrap_or(1)
}

fn token_length(value: &Value) -> u64 {
    let token = value.get("token");
    token
        .and_then(|token| length(token, &["length"]))
        .or_else(|| u64_of(value, &["length"]))
        .or_else(|| Some(token?.as_str()?.len() as u64 / 2))
        .unwrap_or(0)
}

fn stream_type(value: &Value) -> Directionality {
    let named = text(value, &["stream_type"]);
    if named.is_some_and(|name| name.starts_with("uni")) {
        Directionality::Unidirectional
    } else {
        Directionality::Bidirectional
    }
}

fn ack(value: &Value) -> Option<Frame> {
    let ranges: AckRanges = field(value, &["acked_ranges"])?
        .as_array()?
        .iter()
        .filter_map(range)
        .collect();
    let ecn = |name: &str| u64_of(value, &[name]);
    let ecn = match (ecn("ect0"), ecn("ect1"), ecn("ce")) {
        (None, None, None) => value
            .get("ecn")
            .and_then(Value::as_array)
            .and_then(|counts| {
                // picoquic: [ect0, ect1, ce].
                let count = |at: usize| integer(counts.get(at)?);
                Some([count(0)?, count(1)?, count(2)?])
            }),
        (ect0, ect1, ce) => Some([ect0, ect1, ce].map(Option::unwrap_or_default)),
    };
    Some(Frame::Ack {
        delay: ms(value, &["ack_delay"]),
        ranges,
        ecn,
    })
}

/// `[7]`, `[7, 9]`, or a number or two as text.
fn range(value: &Value) -> Option<(u64, u64)> {
    match value {
        Value::Array(ends) => {
            let first = integer(ends.first()?)?;
            let last = ends.get(1).map_or(Some(first), integer)?;
            Some((first.min(last), first.max(last)))
        }
        Value::String(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some((first, last))
        }
        other => integer(other).map(|number| (number, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qlog::Dialect;
    use crate::qlog::encode::frame_json;

    #[test]
    fn unknown_frames_keep_their_number_or_name() {
        for name in ["0x30", "ack_mp"] {
            let written = Frame::Unknown { name: name.into() };
            for dialect in [Dialect::Newest, Dialect::Qvis] {
                let json = frame_json(&written, dialect);
                assert_eq!(frame(&json), written, "{json}");
            }
        }
    }

    #[test]
    fn ack_frequency_keeps_all_fields() {
        let written = Frame::AckFrequency {
            sequence: 3,
            threshold: Some(9),
            max_delay: Some(25_500_000),
            reordering: Some(0),
        };
        for dialect in [Dialect::Newest, Dialect::Qvis] {
            let json = frame_json(&written, dialect);
            assert_eq!(frame(&json), written, "{json}");
        }
    }
}
