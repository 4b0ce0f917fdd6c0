//! Reading frames from a packet's payload.

use super::{Ack, Frame, MAX_ACK_DELAY_LIMIT_MICROS, kind};
use crate::cid::{ConnectionId, ResetToken};
use crate::error::{Code, TransportError};
use crate::wire::Reader;
use crate::wire::cursor::{VARINT_MAX, varint_len};
use crate::wire::stream_id::{Directionality, MAX_STREAM_COUNT, StreamId};

/// Checks that a payload contains at least one frame.
///
/// # Errors
/// PROTOCOL_VIOLATION (RFC 9000 §12.4).
pub(crate) fn check_not_empty(payload: &[u8]) -> Result<(), TransportError> {
    if payload.is_empty() {
        return Err(TransportError::new(
            Code::PROTOCOL_VIOLATION,
            "packet without frames",
        ));
    }
    Ok(())
}

/// The frames of a payload. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
}

impl<'a> Frames<'a> {
    /// Creates an iterator over the frames of a decrypted payload.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(payload),
        }
    }

    /// Returns what has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    fn read(&mut self) -> Result<Frame<'a>, TransportError> {
        let frame_type = self.read_type()?;
        self.body(frame_type)
            .unwrap_or_else(|| Err(encoding_error("frame truncated")))
            .map_err(|error| error.in_frame(frame_type))
    }

    fn read_type(&mut self) -> Result<u64, TransportError> {
        let before = self.reader.remaining();
        let frame_type = self
            .reader
            .varint()
            .ok_or_else(|| encoding_error("frame type truncated"))?;
        if before.saturating_sub(self.reader.remaining()) != varint_len(frame_type) {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "frame type not in its shortest encoding",
            )
            .in_frame(frame_type));
        }
        Ok(frame_type)
    }

    /// Reads a frame after its type; `None` if there are too few bytes.
    fn body(&mut self, frame_type: u64) -> Option<Result<Frame<'a>, TransportError>> {
        let r = &mut self.reader;
        Some(Ok(match frame_type {
            kind::PADDING => padding(r),
            kind::PING => Frame::Ping,
            kind::ACK | kind::ACK_ECN => {
                return Some(Ack::decode(r, frame_type == kind::ACK_ECN).map(Frame::Ack));
            }
            kind::RESET_STREAM => Frame::ResetStream {
                id: stream_id(r)?,
                code: r.varint()?,
                final_size: r.varint()?,
            },
            kind::RESET_STREAM_AT => return reset_stream_at(r),
            kind::STOP_SENDING => Frame::StopSending {
                id: stream_id(r)?,
                code: r.varint()?,
            },
            kind::CRYPTO => return crypto(r),
            kind::NEW_TOKEN => return new_token(r),
            kind::STREAM..=kind::STREAM_LAST => return stream(r, frame_type),
            kind::MAX_DATA => Frame::MaxData(r.varint()?),
            kind::MAX_STREAM_DATA => Frame::MaxStreamData {
                id: stream_id(r)?,
                limit: r.varint()?,
            },
            kind::MAX_STREAMS_BIDI | kind::MAX_STREAMS_UNI => {
                return stream_count(
                    r,
                    frame_type == kind::MAX_STREAMS_UNI,
                    |directionality, limit| Frame::MaxStreams {
                        directionality,
                        limit,
                    },
                );
            }
            kind::DATA_BLOCKED => Frame::DataBlocked { limit: r.varint()? },
            kind::STREAM_DATA_BLOCKED => Frame::StreamDataBlocked {
                id: stream_id(r)?,
                limit: r.varint()?,
            },
            kind::STREAMS_BLOCKED_BIDI | kind::STREAMS_BLOCKED_UNI => {
                return stream_count(
                    r,
                    frame_type == kind::STREAMS_BLOCKED_UNI,
                    |directionality, limit| Frame::StreamsBlocked {
                        directionality,
                        limit,
                    },
                );
            }
            kind::NEW_CONNECTION_ID => return new_connection_id(r),
            kind::RETIRE_CONNECTION_ID => Frame::RetireConnectionId {
                sequence: r.varint()?,
            },
            kind::PATH_CHALLENGE => Frame::PathChallenge(r.array()?),
            kind::PATH_RESPONSE => Frame::PathResponse(r.array()?),
            kind::CONNECTION_CLOSE => Frame::ConnectionClose {
                code: Code(r.varint()?),
                frame_type: r.varint()?,
                reason: r.prefixed()?,
            },
            kind::APPLICATION_CLOSE => Frame::ApplicationClose {
                code: r.varint()?,
                reason: r.prefixed()?,
            },
            kind::HANDSHAKE_DONE => Frame::HandshakeDone,
            kind::IMMEDIATE_ACK => Frame::ImmediateAck,
            kind::DATAGRAM => Frame::Datagram(r.bytes(r.remaining())?),
            kind::DATAGRAM_LEN => Frame::Datagram(r.prefixed()?),
            kind::ACK_FREQUENCY => return ack_frequency(r),
            _ => return Some(Err(encoding_error("unknown frame type"))),
        }))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, TransportError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let frame = self.read();
        if frame.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(frame)
    }
}

fn encoding_error(reason: &'static str) -> TransportError {
    TransportError::new(Code::FRAME_ENCODING_ERROR, reason)
}

fn stream_id(r: &mut Reader<'_>) -> Option<StreamId> {
    r.varint().map(StreamId::from_wire)
}

/// Returns a RESET_STREAM_AT, whose reliable size is at most its final size
/// (draft-ietf-quic-reliable-stream-reset §4).
fn reset_stream_at<'a>(r: &mut Reader<'_>) -> Option<Result<Frame<'a>, TransportError>> {
    let id = stream_id(r)?;
    let (code, final_size, reliable_size) = (r.varint()?, r.varint()?, r.varint()?);
    if reliable_size > final_size {
        return Some(Err(encoding_error("reliable size above the final size")));
    }
    Some(Ok(Frame::ResetStreamAt {
        id,
        code,
        final_size,
        reliable_size,
    }))
}

/// Returns the rest of a run whose first byte has been read.
fn padding<'a>(r: &mut Reader<'_>) -> Frame<'a> {
    // A prefix of the rest: cannot run out.
    let more = r.bytes(leading_zeros(r.rest()));
    let len = more.map_or(0, <[u8]>::len).saturating_add(1);
    Frame::Padding { len }
}

/// Returns how many zeros `bytes` begins with. Initial packets have a thousand, so it takes a whole
/// block at a time.
fn leading_zeros(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<32>();
    let zeros = blocks.iter().take_while(|block| **block == [0; 32]);
    let whole = zeros.count().saturating_mul(32);
    let rest = bytes.get(whole..).unwrap_or_default();
    let more = rest.iter().take_while(|&&byte| byte == 0).count();
    whole.saturating_add(more)
}

/// Returns the data of CRYPTO and STREAM frames has to end within the number space of
/// offsets (RFC 9000 §19.6, §19.8).
fn check_end(offset: u64, data: &[u8]) -> Result<(), TransportError> {
    if offset.saturating_add(data.len() as u64) > VARINT_MAX {
        return Err(encoding_error("data beyond offset 2^62 - 1"));
    }
    Ok(())
}

fn crypto<'a>(r: &mut Reader<'a>) -> Option<Result<Frame<'a>, TransportError>> {
    let offset = r.varint()?;
    let data = r.prefixed()?;
    Some(check_end(offset, data).map(|()| Frame::Crypto { offset, data }))
}

fn new_token<'a>(r: &mut Reader<'a>) -> Option<Result<Frame<'a>, TransportError>> {
    let token = r.prefixed()?;
    if token.is_empty() {
        return Some(Err(encoding_error("NEW_TOKEN with an empty token")));
    }
    Some(Ok(Frame::NewToken(token)))
}

#[inline]
fn stream<'a>(r: &mut Reader<'a>, frame_type: u64) -> Option<Result<Frame<'a>, TransportError>> {
    let id = stream_id(r)?;
    let offset = if frame_type & kind::STREAM_OFF != 0 {
        r.varint()?
    } else {
        0
    };
    let data = if frame_type & kind::STREAM_LEN != 0 {
        r.prefixed()?
    } else {
        r.bytes(r.remaining())?
    };
    let fin = frame_type & kind::STREAM_FIN != 0;
    Some(check_end(offset, data).map(|()| Frame::Stream {
        id,
        offset,
        fin,
        data,
    }))
}

/// Reads MAX_STREAMS or STREAMS_BLOCKED (RFC 9000 §19.11, §19.14).
fn stream_count<'a>(
    r: &mut Reader<'_>,
    unidirectional: bool,
    frame: impl FnOnce(Directionality, u64) -> Frame<'a>,
) -> Option<Result<Frame<'a>, TransportError>> {
    let limit = r.varint()?;
    if limit > MAX_STREAM_COUNT {
        return Some(Err(encoding_error("stream count above 2^60")));
    }
    let directionality = if unidirectional {
        Directionality::Unidirectional
    } else {
        Directionality::Bidirectional
    };
    Some(Ok(frame(directionality, limit)))
}

fn new_connection_id<'a>(r: &mut Reader<'_>) -> Option<Result<Frame<'a>, TransportError>> {
    let sequence = r.varint()?;
    let retire_prior_to = r.varint()?;
    let len = r.u8()?;
    let cid = ConnectionId::new(r.bytes(usize::from(len))?).filter(|cid| !cid.is_empty());
    let reset_token = ResetToken(r.array()?);
    let Some(cid) = cid else {
        return Some(Err(encoding_error(
            "connection ID length is not 1 to 20 bytes",
        )));
    };
    if retire_prior_to > sequence {
        return Some(Err(encoding_error(
            "Retire Prior To above the sequence number",
        )));
    }
    Some(Ok(Frame::NewConnectionId {
        sequence,
        retire_prior_to,
        cid,
        reset_token,
    }))
}

fn ack_frequency<'a>(r: &mut Reader<'_>) -> Option<Result<Frame<'a>, TransportError>> {
    let sequence = r.varint()?;
    let ack_eliciting_threshold = r.varint()?;
    let request_max_ack_delay = r.varint()?;
    let reordering_threshold = r.varint()?;
    if request_max_ack_delay >= MAX_ACK_DELAY_LIMIT_MICROS {
        return Some(Err(TransportError::new(
            Code::PROTOCOL_VIOLATION,
            "Requested Max Ack Delay of 2^14 milliseconds or more",
        )));
    }
    Some(Ok(Frame::AckFrequency {
        sequence,
        ack_eliciting_threshold,
        request_max_ack_delay,
        reordering_threshold,
    }))
}
