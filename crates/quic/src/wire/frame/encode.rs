//! Writing frames of fixed content. For frames with much data see [`super::data`], for ACK frames
//! [`super::ack`], and for CONNECTION_CLOSE with a reason that may be truncated [`super::close`].

use super::{Frame, data, kind};
use crate::wire::Writer;
use crate::wire::cursor::varint_len;
use crate::wire::stream_id::{Directionality, StreamId};

impl Frame<'_> {
    /// Returns the number of bytes that [`Frame::encode`] writes.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a few integers and slices that are in memory together"
    )]
    pub fn size(&self) -> usize {
        match self {
            Self::Padding { len } => *len,
            Self::Ping | Self::HandshakeDone | Self::ImmediateAck => 1,
            Self::Ack(ack) => ack.size(),
            Self::ResetStream {
                id,
                code,
                final_size,
            } => 1 + sizes(&[id.as_u64(), *code, *final_size]),
            Self::ResetStreamAt {
                id,
                code,
                final_size,
                reliable_size,
            } => 1 + sizes(&[id.as_u64(), *code, *final_size, *reliable_size]),
            Self::StopSending { id, code } => 1 + sizes(&[id.as_u64(), *code]),
            Self::Crypto { offset, data } => {
                data::crypto_header_size(*offset, data.len()) + data.len()
            }
            Self::NewToken(token) => 1 + prefixed_size(token),
            Self::Stream {
                id, offset, data, ..
            } => data::stream_header_size(*id, *offset, Some(data.len())) + data.len(),
            Self::MaxStreamData { id, limit } | Self::StreamDataBlocked { id, limit } => {
                1 + sizes(&[id.as_u64(), *limit])
            }
            Self::MaxData(limit)
            | Self::MaxStreams { limit, .. }
            | Self::DataBlocked { limit }
            | Self::StreamsBlocked { limit, .. } => 1 + varint_len(*limit),
            Self::NewConnectionId {
                sequence,
                retire_prior_to,
                cid,
                reset_token,
            } => 2 + sizes(&[*sequence, *retire_prior_to]) + cid.len() + reset_token.0.len(),
            Self::RetireConnectionId { sequence } => 1 + varint_len(*sequence),
            Self::PathChallenge(bytes) | Self::PathResponse(bytes) => 1 + bytes.len(),
            Self::ConnectionClose {
                code,
                frame_type,
                reason,
            } => 1 + sizes(&[code.0, *frame_type]) + prefixed_size(reason),
            Self::ApplicationClose { code, reason } => {
                1 + varint_len(*code) + prefixed_size(reason)
            }
            Self::Datagram(data) => data::datagram_header_size(Some(data.len())) + data.len(),
            Self::AckFrequency {
                sequence,
                ack_eliciting_threshold,
                request_max_ack_delay,
                reordering_threshold,
            } => {
                2 + sizes(&[
                    *sequence,
                    *ack_eliciting_threshold,
                    *request_max_ack_delay,
                    *reordering_threshold,
                ])
            }
        }
    }

    /// Writes the frame, with a Length field in STREAM and DATAGRAM frames. If [`Frame::size`] is more
    /// than the room in `w`, `w` overflows.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Padding { len } => w.zeros(*len),
            Self::Ping => w.varint(kind::PING),
            Self::Ack(ack) => ack.encode(w),
            Self::ResetStream {
                id,
                code,
                final_size,
            } => fields(w, kind::RESET_STREAM, &[id.as_u64(), *code, *final_size]),
            Self::ResetStreamAt {
                id,
                code,
                final_size,
                reliable_size,
            } => {
                let values = [id.as_u64(), *code, *final_size, *reliable_size];
                fields(w, kind::RESET_STREAM_AT, &values);
            }
            Self::StopSending { id, code } => {
                fields(w, kind::STOP_SENDING, &[id.as_u64(), *code]);
            }
            Self::Crypto { offset, data } => {
                data::encode_crypto_header(w, *offset, data.len());
                w.bytes(data);
            }
            Self::NewToken(token) => {
                w.varint(kind::NEW_TOKEN);
                prefixed(w, token);
            }
            Self::Stream {
                id,
                offset,
                fin,
                data,
            } => {
                data::encode_stream_header(w, *id, *offset, Some(data.len()), *fin);
                w.bytes(data);
            }
            Self::MaxData(limit) => fields(w, kind::MAX_DATA, &[*limit]),
            Self::MaxStreamData { id, limit } => {
                stream_limit(w, kind::MAX_STREAM_DATA, *id, *limit);
            }
            Self::MaxStreams {
                directionality,
                limit,
            } => stream_count(w, kind::MAX_STREAMS_BIDI, *directionality, *limit),
            Self::DataBlocked { limit } => fields(w, kind::DATA_BLOCKED, &[*limit]),
            Self::StreamDataBlocked { id, limit } => {
                stream_limit(w, kind::STREAM_DATA_BLOCKED, *id, *limit);
            }
            Self::StreamsBlocked {
                directionality,
                limit,
            } => stream_count(w, kind::STREAMS_BLOCKED_BIDI, *directionality, *limit),
            Self::NewConnectionId {
                sequence,
                retire_prior_to,
                cid,
                reset_token,
            } => {
                fields(w, kind::NEW_CONNECTION_ID, &[*sequence, *retire_prior_to]);
                w.u8(cid.len() as u8);
                w.bytes(cid);
                w.bytes(&reset_token.0);
            }
            Self::RetireConnectionId { sequence } => {
                fields(w, kind::RETIRE_CONNECTION_ID, &[*sequence]);
            }
            Self::PathChallenge(bytes) => {
                w.varint(kind::PATH_CHALLENGE);
                w.bytes(bytes);
            }
            Self::PathResponse(bytes) => {
                w.varint(kind::PATH_RESPONSE);
                w.bytes(bytes);
            }
            Self::ConnectionClose {
                code,
                frame_type,
                reason,
            } => {
                fields(w, kind::CONNECTION_CLOSE, &[code.0, *frame_type]);
                prefixed(w, reason);
            }
            Self::ApplicationClose { code, reason } => {
                fields(w, kind::APPLICATION_CLOSE, &[*code]);
                prefixed(w, reason);
            }
            Self::HandshakeDone => w.varint(kind::HANDSHAKE_DONE),
            Self::Datagram(data) => {
                data::encode_datagram_header(w, Some(data.len()));
                w.bytes(data);
            }
            Self::AckFrequency {
                sequence,
                ack_eliciting_threshold,
                request_max_ack_delay,
                reordering_threshold,
            } => fields(
                w,
                kind::ACK_FREQUENCY,
                &[
                    *sequence,
                    *ack_eliciting_threshold,
                    *request_max_ack_delay,
                    *reordering_threshold,
                ],
            ),
            Self::ImmediateAck => w.varint(kind::IMMEDIATE_ACK),
        }
    }
}

fn sizes(values: &[u64]) -> usize {
    values.iter().map(|&value| varint_len(value)).sum()
}

fn prefixed_size(bytes: &[u8]) -> usize {
    varint_len(bytes.len() as u64).saturating_add(bytes.len())
}

fn prefixed(w: &mut Writer<'_>, bytes: &[u8]) {
    w.varint(bytes.len() as u64);
    w.bytes(bytes);
}

fn fields(w: &mut Writer<'_>, frame_type: u64, values: &[u64]) {
    w.varint(frame_type);
    for &value in values {
        w.varint(value);
    }
}

fn stream_limit(w: &mut Writer<'_>, frame_type: u64, id: StreamId, limit: u64) {
    fields(w, frame_type, &[id.as_u64(), limit]);
}

/// Writes a frame with a stream count. The type for unidirectional streams is that for bidirectional
/// ones plus one.
#[expect(clippy::arithmetic_side_effects, reason = "0x13 or 0x17")]
fn stream_count(w: &mut Writer<'_>, bidi_type: u64, directionality: Directionality, limit: u64) {
    let frame_type = match directionality {
        Directionality::Bidirectional => bidi_type,
        Directionality::Unidirectional => bidi_type + 1,
    };
    fields(w, frame_type, &[limit]);
}
