//! Capsules: messages in the data stream of an extended CONNECT (RFC 9297 §3).

use bytes::{Buf, Bytes, BytesMut};
use clearway_quic::wire::Reader;

use crate::count::Count;
use crate::error::StreamError;
use crate::frame::put_varint;
use crate::varint_buffer::VarintBuffer;

/// The DATAGRAM capsule type, which carries an HTTP datagram (RFC 9297 §3.5).
pub const DATAGRAM: u64 = 0x00;

/// A capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capsule {
    /// The capsule type.
    pub kind: u64,
    /// The capsule value.
    pub value: Bytes,
}

impl Capsule {
    /// Appends the encoded capsule to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.kind);
        put_varint(out, self.value.len() as u64);
        out.extend_from_slice(&self.value);
    }
}

/// The part of a capsule that is read next.
#[derive(Debug)]
enum CapsuleState {
    /// The type and length, which are not complete yet.
    Header,
    /// The value, which is buffered.
    Buffering {
        kind: u64,
        left: usize,
        bytes: BytesMut,
    },
    /// The value of a capsule of unknown type, which is dropped.
    Skipping { left: u64 },
}

/// Reads capsules from the pieces of a body. Capsules of types that the caller does not know are
/// skipped without being buffered (RFC 9297 §3.2).
#[derive(Debug)]
pub struct CapsuleReader {
    header: VarintBuffer<16>,
    state: CapsuleState,
    max_value: usize,
    skipped: u64,
}

impl CapsuleReader {
    /// Creates a reader that accepts values of up to `max_value` bytes.
    #[must_use]
    pub fn new(max_value: usize) -> Self {
        Self {
            header: VarintBuffer::default(),
            state: CapsuleState::Header,
            max_value,
            skipped: 0,
        }
    }

    /// Reads the next capsule, and removes what it has read from the front of `body`. Returns
    /// `None` if `body` ends before the capsule does. `knows` says which types the caller wants.
    ///
    /// # Errors
    /// `H3_EXCESSIVE_LOAD` if a wanted capsule is larger than allowed: the stream has to be reset
    /// with that code.
    pub fn next(
        &mut self,
        body: &mut Bytes,
        knows: impl Fn(u64) -> bool,
    ) -> Result<Option<Capsule>, StreamError> {
        loop {
            match &mut self.state {
                CapsuleState::Header => {
                    let Some((kind, len)) = self.header(body) else {
                        return Ok(None);
                    };
                    self.state = self.begin(kind, len, knows(kind))?;
                }
                CapsuleState::Skipping { left } => {
                    let now = usize::try_from(*left).unwrap_or(usize::MAX).min(body.len());
                    body.advance(now);
                    *left = left.saturating_sub(now as u64);
                    self.skipped.count(now as u64);
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.state = CapsuleState::Header;
                }
                CapsuleState::Buffering { kind, left, bytes } => {
                    let piece = body.split_to((*left).min(body.len()));
                    *left = left.saturating_sub(piece.len());
                    let kind = *kind;
                    if *left > 0 {
                        bytes.extend_from_slice(&piece);
                        return Ok(None);
                    }
                    let value = join(bytes, piece);
                    self.state = CapsuleState::Header;
                    return Ok(Some(Capsule { kind, value }));
                }
            }
        }
    }

    /// Returns whether the reader is between two capsules, where a body may end: a truncated
    /// capsule makes the message malformed (RFC 9297 §3.3).
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        matches!(self.state, CapsuleState::Header) && self.header.is_empty()
    }

    /// Returns how many bytes of unknown capsules were skipped.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn header(&mut self, body: &mut Bytes) -> Option<(u64, u64)> {
        while !body.is_empty() {
            self.header.push(body.get_u8());
            let mut r = Reader::new(self.header.bytes());
            if let (Some(kind), Some(len)) = (r.varint(), r.varint()) {
                self.header.clear();
                return Some((kind, len));
            }
        }
        None
    }

    fn begin(&self, kind: u64, len: u64, known: bool) -> Result<CapsuleState, StreamError> {
        if !known {
            return Ok(CapsuleState::Skipping { left: len });
        }
        match usize::try_from(len) {
            Ok(left) if left <= self.max_value => Ok(CapsuleState::Buffering {
                kind,
                left,
                bytes: BytesMut::new(),
            }),
            Ok(_) | Err(_) => Err(StreamError::new(
                crate::error::Code::EXCESSIVE_LOAD,
                "capsule exceeds the maximum size",
            )),
        }
    }
}

/// Concatenates `first` and `last`; without a copy if `first` is empty.
fn join(first: &mut BytesMut, last: Bytes) -> Bytes {
    if first.is_empty() {
        return last;
    }
    first.extend_from_slice(&last);
    first.split().freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, len) in [(DATAGRAM, 5), (0x2b, 300), (0x1234, 70), (DATAGRAM, 0)] {
            let value = Bytes::from(vec![kind as u8; len]);
            Capsule { kind, value }.encode(&mut out);
        }
        out
    }

    fn read(pieces: usize) -> Vec<(u64, usize)> {
        let mut reader = CapsuleReader::new(1000);
        let mut found = Vec::new();
        for piece in body().chunks(pieces) {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(capsule) = reader.next(&mut piece, |kind| kind != 0x2b).unwrap() {
                assert!(capsule.value.iter().all(|&b| b == capsule.kind as u8));
                found.push((capsule.kind, capsule.value.len()));
            }
            assert!(piece.is_empty());
        }
        assert!(reader.is_at_boundary());
        assert_eq!(reader.skipped(), 300);
        found
    }

    #[test]
    fn capsules_are_the_same_however_the_body_is_split() {
        for pieces in [1, 2, 3, 7, 64, 4096] {
            assert_eq!(read(pieces), [(DATAGRAM, 5), (0x1234, 70), (DATAGRAM, 0)]);
        }
    }

    #[test]
    fn truncated_capsule_is_not_at_a_boundary() {
        let body = body();
        let mut reader = CapsuleReader::new(1000);
        let mut first = Bytes::copy_from_slice(&body[..4]);
        assert_eq!(reader.next(&mut first, |_| true), Ok(None));
        assert!(!reader.is_at_boundary());
    }

    #[test]
    fn oversized_capsule_is_an_error_if_known_and_skipped_if_unknown() {
        let mut out = Vec::new();
        put_varint(&mut out, 9);
        put_varint(&mut out, 1 << 60);
        let mut wanted = CapsuleReader::new(1000);
        assert!(
            wanted
                .next(&mut Bytes::from(out.clone()), |_| true)
                .is_err()
        );
        let mut unknown = CapsuleReader::new(1000);
        assert_eq!(unknown.next(&mut Bytes::from(out), |_| false), Ok(None));
        for _ in 0..100 {
            let mut more = Bytes::from(vec![0; 1000]);
            assert_eq!(unknown.next(&mut more, |_| false), Ok(None));
        }
        assert_eq!(unknown.skipped(), 100_000);
    }
}
