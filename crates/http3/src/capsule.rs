//! Capsules: messages on the body of an extended CONNECT (RFC 9297 §3).

use bytes::{Buf, Bytes, BytesMut};
use clearway_quic::wire::Reader;

use crate::count::Count;
use crate::error::StreamError;
use crate::frame::put_varint;
use crate::partial::Partial;

/// The type of the capsule that carries an HTTP datagram (RFC 9297 §3.5).
pub const DATAGRAM: u64 = 0x00;

/// One capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capsule {
    /// Its type.
    pub kind: u64,
    /// Its value.
    pub value: Bytes,
}

impl Capsule {
    /// Appends it to `out`, as it stands in a body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.kind);
        put_varint(out, self.value.len() as u64);
        out.extend_from_slice(&self.value);
    }
}

/// What happens to the value of the capsule being read.
#[derive(Debug)]
enum Value {
    /// Its type and length are not there yet.
    Header,
    /// It is gathered.
    Gather {
        kind: u64,
        left: usize,
        bytes: BytesMut,
    },
    /// It is dropped: nobody knows its type.
    Skip { left: u64 },
}

/// Reads capsules from the pieces of a body. Types the caller does not know are
/// skipped without being kept (RFC 9297 §3.2).
#[derive(Debug)]
pub struct CapsuleReader {
    header: Partial<16>,
    value: Value,
    max_value: usize,
    skipped: u64,
}

impl CapsuleReader {
    /// Takes values up to `max_value` bytes.
    #[must_use]
    pub fn new(max_value: usize) -> Self {
        Self {
            header: Partial::default(),
            value: Value::Header,
            max_value,
            skipped: 0,
        }
    }

    /// Reads on in `body` and takes what it read off its front; `None` if the next
    /// capsule is not whole. `knows` says which types are wanted.
    ///
    /// # Errors
    /// A wanted capsule is larger than allowed; the stream is to be reset with the
    /// error's code.
    pub fn next(
        &mut self,
        body: &mut Bytes,
        knows: impl Fn(u64) -> bool,
    ) -> Result<Option<Capsule>, StreamError> {
        loop {
            match &mut self.value {
                Value::Header => {
                    let Some((kind, len)) = self.header(body) else {
                        return Ok(None);
                    };
                    self.value = self.begin(kind, len, knows(kind))?;
                }
                Value::Skip { left } => {
                    let now = usize::try_from(*left).unwrap_or(usize::MAX).min(body.len());
                    body.advance(now);
                    *left = left.saturating_sub(now as u64);
                    self.skipped.count(now as u64);
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.value = Value::Header;
                }
                Value::Gather { kind, left, bytes } => {
                    let piece = body.split_to((*left).min(body.len()));
                    *left = left.saturating_sub(piece.len());
                    let kind = *kind;
                    if *left > 0 {
                        bytes.extend_from_slice(&piece);
                        return Ok(None);
                    }
                    let value = join(bytes, piece);
                    self.value = Value::Header;
                    return Ok(Some(Capsule { kind, value }));
                }
            }
        }
    }

    /// Whether the body may end here (RFC 9297 §3.3: a capsule cut off makes the
    /// message malformed).
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.value, Value::Header) && self.header.is_empty()
    }

    /// Bytes of unknown capsules passed over.
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

    fn begin(&self, kind: u64, len: u64, known: bool) -> Result<Value, StreamError> {
        if !known {
            return Ok(Value::Skip { left: len });
        }
        match usize::try_from(len) {
            Ok(left) if left <= self.max_value => Ok(Value::Gather {
                kind,
                left,
                bytes: BytesMut::new(),
            }),
            Ok(_) | Err(_) => Err(StreamError::new(
                crate::error::Code::EXCESSIVE_LOAD,
                "a capsule larger than allowed",
            )),
        }
    }
}

/// `first`, then `last`; without a copy if there is no first.
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
        assert!(reader.is_between());
        assert_eq!(reader.skipped(), 300);
        found
    }

    #[test]
    fn however_the_body_is_cut_the_capsules_are_the_same() {
        for pieces in [1, 2, 3, 7, 64, 4096] {
            assert_eq!(read(pieces), [(DATAGRAM, 5), (0x1234, 70), (DATAGRAM, 0)]);
        }
    }

    #[test]
    fn a_body_may_not_end_within_a_capsule() {
        let body = body();
        let mut reader = CapsuleReader::new(1000);
        let mut first = Bytes::copy_from_slice(&body[..4]);
        assert_eq!(reader.next(&mut first, |_| true), Ok(None));
        assert!(!reader.is_between());
    }

    #[test]
    fn large_ones_are_refused_if_wanted_and_passed_over_if_not() {
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
