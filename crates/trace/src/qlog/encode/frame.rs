//! Encoding of frames.

use clearway_quic::stream::Directionality;

use super::connection::{crypto_error, transport_error};
use crate::event::Frame;
use crate::qlog::Dialect;
use crate::qlog::json::Json;

pub(super) fn frame(json: &mut Json<'_>, frame: &Frame, dialect: Dialect) {
    if let Frame::Unknown { name } = frame {
        unknown(json, name);
        return;
    }
    json.text("frame_type", frame.name());
    match frame {
        Frame::Ping
        | Frame::PathChallenge
        | Frame::PathResponse
        | Frame::HandshakeDone
        | Frame::ImmediateAck
        | Frame::Unknown { .. } => {}
        Frame::Padding { len } => match dialect {
            Dialect::Newest => json.object("raw", |json| json.u64("payload_length", *len)),
            Dialect::Qvis => json.u64("length", *len),
        },
        Frame::Ack { delay, ranges, ecn } => {
            json.opt_ms("ack_delay", *delay);
            json.array("acked_ranges", |json| {
                for &(from, to) in ranges {
                    // qvis needs both ends of a range.
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
        Frame::ResetStreamAt {
            stream,
            code,
            final_size,
            reliable_size,
        } => {
            json.u64("stream_id", *stream);
            json.text("error", "unknown");
            json.u64("error_code", *code);
            json.u64("final_size", *final_size);
            json.u64("reliable_size", *reliable_size);
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
        Frame::RetireConnectionId { sequence } => json.u64("sequence_number", *sequence),
        // No draft of qlog has this frame: the names of draft-ietf-quic-ack-frequency §4.
        Frame::AckFrequency {
            sequence,
            threshold,
            max_delay,
            reordering,
        } => {
            json.u64("sequence_number", *sequence);
            json.opt_u64("ack_eliciting_threshold", *threshold);
            json.opt_ms("request_max_ack_delay", *max_delay);
            json.opt_u64("reordering_threshold", *reordering);
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
    }
}

const fn stream_type(kind: Directionality) -> &'static str {
    match kind {
        Directionality::Bidirectional => "bidirectional",
        Directionality::Unidirectional => "unidirectional",
    }
}

/// The length of the data.
pub(super) fn length(json: &mut Json<'_>, len: u64, dialect: Dialect) {
    match dialect {
        Dialect::Newest => json.object("raw", |json| json.u64("length", len)),
        Dialect::Qvis => json.u64("length", len),
    }
}

/// A frame that this crate does not know: by its number as the draft has it, or by the name that
/// another stack gave it, which is how the draft is extended (`$QuicFrame`).
fn unknown(json: &mut Json<'_>, name: &str) {
    let number = match name.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => name.parse(),
    };
    match number {
        Ok(number) => {
            json.text("frame_type", "unknown");
            json.u64("frame_type_bytes", number);
        }
        Err(_) => json.text("frame_type", name),
    }
}
