//! Decoding of frames, in every stack's spelling.

use std::borrow::Cow;

use clearway_quic::stream::Directionality;

use super::fields::{boolean, field, integer, length, lower_case, ms, text, u64_of};
use super::value::Value;
use crate::event::{AckRanges, Frame, Name};

/// Maximum number of frames kept per packet; no packet has room for more.
const MAX_FRAMES: usize = 4096;

pub(super) fn frames(value: Value<'_>) -> Option<Vec<Frame>> {
    let list = value.get("frames")?.elements()?;
    Some(list.take(MAX_FRAMES).map(frame).collect())
}

fn frame(value: Value<'_>) -> Frame {
    let name = text(value, &["frame_type", "type"])
        .map(lower_case)
        .or_else(|| {
            Some(Cow::Owned(format!(
                "{:#x}",
                u64_of(value, &["frame_type"])?
            )))
        })
        .unwrap_or_default();
    let name = unnamed(&name, value).map_or(name, Cow::Owned);
    known(&name, value).unwrap_or_else(|| Frame::Unknown {
        name: Name::Owned(name.into_owned()),
    })
}

/// The number of a frame that the file calls unknown, in hex.
fn unnamed(name: &str, value: Value<'_>) -> Option<String> {
    if name != "unknown" {
        return None;
    }
    let number = u64_of(
        value,
        &["frame_type_bytes", "raw_frame_type", "frame_type_value"],
    )?;
    Some(format!("{number:#x}"))
}

fn known(name: &str, value: Value<'_>) -> Option<Frame> {
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
        "reset_stream" | "reset_stream_at" => reset(name, value, stream()?, code().unwrap_or(0)),
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
            cid: text(value, &["connection_id"])
                .unwrap_or_default()
                .to_owned(),
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
            reason: text(value, &["reason"]).unwrap_or_default().to_owned(),
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

/// RESET_STREAM_AT, or RESET_STREAM: also where a stack calls it the other but gives no reliable
/// size, because the two are equivalent at zero.
fn reset(name: &str, value: Value<'_>, stream: u64, code: u64) -> Frame {
    let final_size = u64_of(value, &["final_size"]).unwrap_or(0);
    match u64_of(value, &["reliable_size"]) {
        Some(reliable_size) if name == "reset_stream_at" => Frame::ResetStreamAt {
            stream,
            code,
            final_size,
            reliable_size,
        },
        Some(_) | None => Frame::ResetStream {
            stream,
            code,
            final_size,
        },
    }
}

fn padding(value: Value<'_>) -> u64 {
    let raw = value.get("raw");
    raw.and_then(|raw| u64_of(raw, &["payload_length", "length"]))
        .or_else(|| u64_of(value, &["payload_length", "length"]))
        .unwrap_or(1)
}

fn token_length(value: Value<'_>) -> u64 {
    let token = value.get("token");
    token
        .and_then(|token| length(token, &["length"]))
        .or_else(|| u64_of(value, &["length"]))
        .or_else(|| Some(token?.as_str()?.len() as u64 / 2))
        .unwrap_or(0)
}

fn stream_type(value: Value<'_>) -> Directionality {
    let named = text(value, &["stream_type"]);
    if named.is_some_and(|name| name.starts_with("uni")) {
        Directionality::Unidirectional
    } else {
        Directionality::Bidirectional
    }
}

fn ack(value: Value<'_>) -> Option<Frame> {
    let ranges: AckRanges = field(value, &["acked_ranges"])?
        .elements()?
        .filter_map(range)
        .collect();
    let ecn = |name: &str| u64_of(value, &[name]);
    let ecn = match (ecn("ect0"), ecn("ect1"), ecn("ce")) {
        (None, None, None) => value
            .get("ecn")
            .and_then(Value::elements)
            .and_then(|mut counts| {
                // picoquic: [ect0, ect1, ce].
                let mut count = || integer(counts.next()?);
                Some([count()?, count()?, count()?])
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
fn range(value: Value<'_>) -> Option<(u64, u64)> {
    if let Some(mut ends) = value.elements() {
        let first = integer(ends.next()?)?;
        let last = ends.next().map_or(Some(first), integer)?;
        return Some((first.min(last), first.max(last)));
    }
    if let Some(text) = value.as_str() {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        return (first <= last).then_some((first, last));
    }
    integer(value).map(|number| (number, number))
}

#[cfg(test)]
mod tests {
    use super::super::value::{Tape, parse};
    use super::*;
    use crate::qlog::Dialect;
    use crate::qlog::encode::frame_json;

    fn read(json: &serde_json::Value) -> Frame {
        let text = json.to_string();
        let mut tape = Tape::new();
        frame(parse(&mut tape, text.as_bytes()).expect("JSON"))
    }

    #[test]
    fn unknown_frames_keep_their_number_or_name() {
        for name in ["0x30", "ack_mp"] {
            let written = Frame::Unknown { name: name.into() };
            for dialect in [Dialect::Newest, Dialect::Qvis] {
                let json = frame_json(&written, dialect);
                assert_eq!(read(&json), written, "{json}");
            }
        }
    }

    #[test]
    fn reset_stream_at_keeps_its_reliable_size() {
        let written = Frame::ResetStreamAt {
            stream: 4,
            code: 7,
            final_size: 3_000,
            reliable_size: 2_000,
        };
        for dialect in [Dialect::Newest, Dialect::Qvis] {
            let json = frame_json(&written, dialect);
            assert_eq!(json["frame_type"], "reset_stream_at");
            assert_eq!(json["reliable_size"], 2_000);
            assert_eq!(read(&json), written, "{json}");
        }
    }

    #[test]
    fn reset_without_reliable_size_is_reset_stream() {
        let reset = Frame::ResetStream {
            stream: 4,
            code: 7,
            final_size: 3_000,
        };
        for name in ["reset_stream", "reset_stream_at"] {
            let json = serde_json::json!({
                "frame_type": name, "stream_id": 4, "error_code": 7, "final_size": 3_000,
            });
            assert_eq!(read(&json), reset, "{json}");
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
            assert_eq!(read(&json), written, "{json}");
        }
    }
}
