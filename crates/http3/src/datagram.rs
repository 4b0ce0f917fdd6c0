//! HTTP datagrams in QUIC DATAGRAM frames (RFC 9297 §2.1).

use bytes::{Buf, Bytes, BytesMut};
use clearway_quic::stream::StreamId;
use clearway_quic::wire::cursor::varint_len;
use clearway_quic::wire::{Reader, Writer};

use crate::error::{Code, ConnectionError};

/// The largest quarter stream ID (RFC 9297 §2.1): a quarter of the largest stream ID.
const MAX_QUARTER: u64 = (1 << 60) - 1;

/// Decodes the payload of a DATAGRAM frame. Returns the request stream and the HTTP datagram's
/// payload, which is not copied.
///
/// # Errors
/// `H3_DATAGRAM_ERROR` if the quarter stream ID is incomplete or too large (RFC 9297 §2.1).
pub fn decode(mut datagram: Bytes) -> Result<(StreamId, Bytes), ConnectionError> {
    let mut r = Reader::new(&datagram);
    match r.varint() {
        Some(quarter) if quarter <= MAX_QUARTER => {
            datagram.advance(datagram.len().saturating_sub(r.remaining()));
            Ok((StreamId::from_wire(quarter << 2), datagram))
        }
        Some(_) => Err(error(
            "HTTP datagram has a quarter stream ID above 2^60 - 1",
        )),
        None => Err(error("HTTP datagram ends within its quarter stream ID")),
    }
}

/// Encodes the payload of a DATAGRAM frame that carries `payload` for the request stream `stream`.
#[must_use]
pub fn encode(stream: StreamId, payload: &[u8]) -> Bytes {
    let mut prefix = [0; 8];
    let mut w = Writer::new(&mut prefix);
    w.varint(stream.index());
    let mut datagram = BytesMut::with_capacity(w.written().saturating_add(payload.len()));
    datagram.extend_from_slice(w.filled());
    datagram.extend_from_slice(payload);
    datagram.freeze()
}

/// Returns how many bytes of each DATAGRAM frame the quarter stream ID takes.
#[must_use]
pub(crate) fn overhead(stream: StreamId) -> usize {
    varint_len(stream.index())
}

fn error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::DATAGRAM_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_and_payload_round_trip() {
        for id in [0, 4, 252, 256, 1 << 40, (1 << 62) - 4] {
            let id = StreamId::from_wire(id);
            let datagram = encode(id, b"payload");
            assert_eq!(datagram.len(), overhead(id) + 7);
            let decoded = decode(datagram).unwrap();
            assert_eq!(decoded, (id, Bytes::from_static(b"payload")));
        }
        let empty = decode(encode(StreamId::from_wire(8), b"")).unwrap();
        assert!(empty.1.is_empty());
    }

    #[test]
    fn incomplete_or_too_large_quarter_stream_id_is_rejected() {
        for wrong in [&[][..], &[0x40], &[0xd0, 0, 0, 0, 0, 0, 0, 0]] {
            let error = decode(Bytes::copy_from_slice(wrong)).unwrap_err();
            assert_eq!(error.code, Code::DATAGRAM_ERROR);
        }
        assert!(
            decode(Bytes::from_static(&[
                0xcf, 255, 255, 255, 255, 255, 255, 255
            ]))
            .is_ok()
        );
    }
}
