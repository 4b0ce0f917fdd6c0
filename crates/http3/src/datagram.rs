//! HTTP datagrams in QUIC DATAGRAM frames (RFC 9297 §2.1).

use bytes::{Buf, Bytes, BytesMut};
use clearway_quic::stream::StreamId;
use clearway_quic::wire::cursor::varint_len;
use clearway_quic::wire::{Reader, Writer};

use crate::error::{Code, ConnectionError};

/// Largest quarter stream ID: that of the largest stream.
const MAX_QUARTER: u64 = (1 << 60) - 1;

/// Splits a DATAGRAM into its stream and its payload, which is not copied.
///
/// # Errors
/// `H3_DATAGRAM_ERROR` if it has no stream, or one that can't be.
pub fn decode(mut datagram: Bytes) -> Result<(StreamId, Bytes), ConnectionError> {
    let mut r = Reader::new(&datagram);
    match r.varint() {
        Some(quarter) if quarter <= MAX_QUARTER => {
            datagram.advance(datagram.len().saturating_sub(r.remaining()));
            Ok((StreamId::from_wire(quarter << 2), datagram))
        }
        Some(_) => Err(wrong("a quarter stream ID beyond the largest stream")),
        None => Err(wrong("a datagram too short for its stream")),
    }
}

/// Makes a DATAGRAM of a payload. `stream` is a request's.
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

/// Bytes that the stream's number takes in each of its datagrams.
#[must_use]
pub fn overhead(stream: StreamId) -> usize {
    varint_len(stream.index())
}

fn wrong(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::DATAGRAM_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_payloads_survive() {
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
    fn a_stream_that_can_not_be() {
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
