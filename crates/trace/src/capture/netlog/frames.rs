//! Frames, as events of a netlog.

use clearway_quic::stream::Directionality;
use serde_json::Value;

use crate::event::{AckRanges, Frame, Name};

/// The stream ID that stands for the connection in frames of flow control.
const CONNECTION: u64 = u32::MAX as u64;
/// Maximum number of packets that an ACK frame may leave out.
const MAX_MISSING: usize = 4096;

/// The frame that an event `QUIC_SESSION_{name}_SENT` or `_RECEIVED` is about.
pub(super) fn frame(name: &str, params: &Value) -> Option<Frame> {
    let stream = || field(params, "stream_id");
    let limit = || field(params, "byte_offset").or_else(|| field(params, "offset"));
    let kind = match params.get("unidirectional").and_then(Value::as_bool) {
        Some(true) => Directionality::Unidirectional,
        Some(false) | None => Directionality::Bidirectional,
    };
    Some(match name {
        "STREAM_FRAME" => Frame::Stream {
            stream: stream()?,
            offset: field(params, "offset")?,
            len: field(params, "length")?,
            fin: params.get("fin").and_then(Value::as_bool) == Some(true),
        },
        "ACK_FRAME" => ack(params)?,
        "CRYPTO_FRAME" => Frame::Crypto {
            offset: field(params, "offset")?,
            len: field(params, "data_length")?,
        },
        "WINDOW_UPDATE_FRAME" => match stream()? {
            CONNECTION => Frame::MaxData { limit: limit()? },
            stream => Frame::MaxStreamData {
                stream,
                limit: limit()?,
            },
        },
        "BLOCKED_FRAME" => {
            let limit = limit().unwrap_or(0);
            match stream()? {
                CONNECTION => Frame::DataBlocked { limit },
                stream => Frame::StreamDataBlocked { stream, limit },
            }
        }
        "RST_STREAM_FRAME" => Frame::ResetStream {
            stream: stream()?,
            code: stream_error(params),
            final_size: field(params, "offset").unwrap_or(0),
        },
        "STOP_SENDING_FRAME" => Frame::StopSending {
            stream: stream()?,
            code: stream_error(params),
        },
        "MAX_STREAMS_FRAME" => Frame::MaxStreams {
            kind,
            limit: field(params, "stream_count")?,
        },
        "STREAMS_BLOCKED_FRAME" => Frame::StreamsBlocked {
            kind,
            limit: field(params, "stream_count")?,
        },
        "PADDING_FRAME" => Frame::Padding {
            len: field(params, "num_padding_bytes")?,
        },
        "MESSAGE_FRAME" => Frame::Datagram {
            len: field(params, "message_length")?,
        },
        "PING_FRAME" => Frame::Ping,
        "HANDSHAKE_DONE_FRAME" => Frame::HandshakeDone,
        "PATH_CHALLENGE_FRAME" => Frame::PathChallenge,
        "PATH_RESPONSE_FRAME" => Frame::PathResponse,
        "NEW_TOKEN_FRAME" => Frame::NewToken { len: 0 },
        "NEW_CONNECTION_ID_FRAME" => Frame::NewConnectionId {
            sequence: field(params, "sequence_number")?,
            retire_prior_to: field(params, "retire_prior_to").unwrap_or(0),
            cid: text(params, "connection_id")?.to_owned(),
        },
        "RETIRE_CONNECTION_ID_FRAME" => Frame::RetireConnectionId {
            sequence: field(params, "sequence_number")?,
        },
        // The end of the session is another event, which also says why.
        "CONNECTION_CLOSE_FRAME" | "TRANSPORT_PARAMETERS" | "PACKET" => return None,
        _ if name.ends_with("_FRAME") => Frame::Unknown {
            name: Name::Owned(name.to_ascii_lowercase()),
        },
        _ => return None,
    })
}

/// The error code of a stream: that on the wire, or else Chrome's own.
fn stream_error(params: &Value) -> u64 {
    let code = field(params, "ietf_error_code").or_else(|| field(params, "quic_rst_stream_error"));
    code.unwrap_or(0)
}

/// An ACK frame: from the smallest number to the largest, without those that are missing.
fn ack(params: &Value) -> Option<Frame> {
    let largest = field(params, "largest_observed")?;
    let smallest = field(params, "smallest_observed").unwrap_or(0);
    let missing = params.get("missing_packets").and_then(Value::as_array);
    let mut missing: Vec<u64> = missing
        .into_iter()
        .flatten()
        .filter_map(number)
        .take(MAX_MISSING)
        .collect();
    missing.sort_unstable();
    let mut ranges = AckRanges::new();
    let mut from = smallest;
    for gap in missing {
        if gap > from {
            ranges.push((from, gap.saturating_sub(1)));
        }
        from = gap.saturating_add(1).max(from);
    }
    if from <= largest {
        ranges.push((from, largest));
    }
    let delay = field(params, "delta_time_largest_observed_us");
    let counts = ["ECT0", "ECT1", "CE"].map(|name| field(params, name));
    let ecn = match counts {
        [Some(ect0), Some(ect1), Some(ce)] => Some([ect0, ect1, ce]),
        _ => None,
    };
    Some(Frame::Ack {
        delay: delay.map(|micros| micros.saturating_mul(1_000)),
        ranges,
        ecn: ecn.filter(|counts| *counts != [0; 3]),
    })
}

/// A number, which the log writes as text if a double could not hold it. Negative stream IDs are
/// 32 bits that were taken for signed ones.
pub(super) fn number(value: &Value) -> Option<u64> {
    if let Some(text) = value.as_str() {
        return text.parse().ok();
    }
    value.as_u64().or_else(|| {
        Some(u64::from(
            i32::try_from(value.as_i64()?).ok()?.cast_unsigned(),
        ))
    })
}

pub(super) fn field(params: &Value, name: &str) -> Option<u64> {
    number(params.get(name)?)
}

pub(super) fn text<'a>(params: &'a Value, name: &str) -> Option<&'a str> {
    params.get(name)?.as_str()
}
