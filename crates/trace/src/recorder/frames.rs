//! Parses a packet's payload into summaries of its frames.

use clearway_quic::wire::{self, Frames};

use super::terms::hex;
use crate::event::Frame;

/// Maximum number of ranges of one ACK: as many as fit a packet.
const MAX_RANGES: usize = 1024;

/// Appends the frames of `payload` to `out`. A payload that does not parse gives those before the
/// error; the connection reports the error itself.
pub(crate) fn summarise(payload: &[u8], exponent: u8, out: &mut Vec<Frame>) {
    out.extend(
        Frames::new(payload)
            .map_while(Result::ok)
            .map(|frame| summary(&frame, exponent)),
    );
}

fn summary(frame: &wire::Frame<'_>, exponent: u8) -> Frame {
    match *frame {
        wire::Frame::Padding { len } => Frame::Padding { len: len as u64 },
        wire::Frame::Ping => Frame::Ping,
        wire::Frame::Ack(ref ack) => Frame::Ack {
            delay: Some(ack.delay_micros(exponent).saturating_mul(1_000)),
            ranges: ack
                .ranges()
                .take(MAX_RANGES)
                .map(|range| (*range.start(), *range.end()))
                .collect(),
            ecn: ack.ecn.map(|ecn| [ecn.ect0, ecn.ect1, ecn.ce]),
        },
        wire::Frame::ResetStream {
            id,
            code,
            final_size,
        } => Frame::ResetStream {
            stream: id.as_u64(),
            code,
            final_size,
        },
        wire::Frame::ResetStreamAt {
            id,
            code,
            final_size,
            reliable_size,
        } => Frame::ResetStreamAt {
            stream: id.as_u64(),
            code,
            final_size,
            reliable_size,
        },
        wire::Frame::StopSending { id, code } => Frame::StopSending {
            stream: id.as_u64(),
            code,
        },
        wire::Frame::Crypto { offset, data } => Frame::Crypto {
            offset,
            len: data.len() as u64,
        },
        wire::Frame::NewToken(token) => Frame::NewToken {
            len: token.len() as u64,
        },
        wire::Frame::Stream {
            id,
            offset,
            fin,
            data,
        } => Frame::Stream {
            stream: id.as_u64(),
            offset,
            len: data.len() as u64,
            fin,
        },
        wire::Frame::MaxData(limit) => Frame::MaxData { limit },
        wire::Frame::MaxStreamData { id, limit } => Frame::MaxStreamData {
            stream: id.as_u64(),
            limit,
        },
        wire::Frame::MaxStreams {
            directionality: kind,
            limit,
        } => Frame::MaxStreams { kind, limit },
        wire::Frame::DataBlocked { limit } => Frame::DataBlocked { limit },
        wire::Frame::StreamDataBlocked { id, limit } => Frame::StreamDataBlocked {
            stream: id.as_u64(),
            limit,
        },
        wire::Frame::StreamsBlocked {
            directionality: kind,
            limit,
        } => Frame::StreamsBlocked { kind, limit },
        wire::Frame::NewConnectionId {
            sequence,
            retire_prior_to,
            cid,
            ..
        } => Frame::NewConnectionId {
            sequence,
            retire_prior_to,
            cid: hex(&cid),
        },
        wire::Frame::RetireConnectionId { sequence } => Frame::RetireConnectionId { sequence },
        wire::Frame::PathChallenge(_) => Frame::PathChallenge,
        wire::Frame::PathResponse(_) => Frame::PathResponse,
        wire::Frame::ConnectionClose { code, reason, .. } => Frame::ConnectionClose {
            application: false,
            code: code.0,
            reason: String::from_utf8_lossy(reason).into_owned(),
        },
        wire::Frame::ApplicationClose { code, reason } => Frame::ConnectionClose {
            application: true,
            code,
            reason: String::from_utf8_lossy(reason).into_owned(),
        },
        wire::Frame::HandshakeDone => Frame::HandshakeDone,
        wire::Frame::Datagram(data) => Frame::Datagram {
            len: data.len() as u64,
        },
        wire::Frame::AckFrequency {
            sequence,
            ack_eliciting_threshold,
            request_max_ack_delay,
            reordering_threshold,
        } => Frame::AckFrequency {
            sequence,
            threshold: Some(ack_eliciting_threshold),
            max_delay: Some(request_max_ack_delay.saturating_mul(1_000)),
            reordering: Some(reordering_threshold),
        },
        wire::Frame::ImmediateAck => Frame::ImmediateAck,
    }
}
