//! The CRYPTO stream of one end at one level, put together for its TLS messages.

use std::collections::BTreeMap;

/// Maximum number of bytes that are kept; a certificate chain is smaller.
const MAX_BYTES: usize = 1 << 17;
/// Maximum number of pieces that wait for those before them.
const MAX_PIECES: usize = 256;

/// The CRYPTO stream of one end at one level.
#[derive(Debug, Default)]
pub(super) struct CryptoStream {
    /// The contiguous part, without the messages that were taken.
    bytes: Vec<u8>,
    /// Offset of the end of the contiguous part.
    end: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl CryptoStream {
    /// Adds the data of a CRYPTO frame.
    pub(super) fn add(&mut self, offset: u64, data: &[u8]) {
        if self.pieces.len() < MAX_PIECES && data.len() <= MAX_BYTES {
            let known = self.pieces.get(&offset).map_or(0, Vec::len);
            if data.len() > known {
                self.pieces.insert(offset, data.to_vec());
            }
        }
        while let Some((&offset, _)) = self.pieces.first_key_value()
            && offset <= self.end
        {
            let Some((_, piece)) = self.pieces.pop_first() else {
                return;
            };
            let known = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
            let new = piece.get(known..).unwrap_or_default();
            if self.bytes.len().saturating_add(new.len()) > MAX_BYTES {
                return;
            }
            self.bytes.extend_from_slice(new);
            self.end = self.end.saturating_add(new.len() as u64);
        }
    }

    /// Takes the next whole message: its type and body (RFC 8446 §4).
    pub(super) fn next_message(&mut self) -> Option<(u8, Vec<u8>)> {
        let [kind, a, b, c] = *self.bytes.first_chunk::<4>()?;
        let len = usize::try_from(u32::from_be_bytes([0, a, b, c])).ok()?;
        let end = len.checked_add(4)?;
        let body = self.bytes.get(4..end)?.to_vec();
        self.bytes.drain(..end);
        Some((kind, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_in_pieces_out_of_order_is_put_together() {
        let mut stream = CryptoStream::default();
        let message = [1, 0, 0, 5, 10, 11, 12, 13, 14];
        for (offset, len) in [(6, 3), (4, 4), (0, 2), (0, 2), (1, 4)] {
            assert_eq!(stream.next_message(), None);
            stream.add(offset as u64, &message[offset..offset + len]);
        }
        assert_eq!(stream.next_message(), Some((1, message[4..].to_vec())));
        assert_eq!(stream.next_message(), None);
    }

    #[test]
    fn pieces_that_never_join_are_bounded() {
        let mut stream = CryptoStream::default();
        for at in 0..10_000 {
            stream.add(2 * at + 2, &[0]);
        }
        assert_eq!(stream.pieces.len(), MAX_PIECES);
        stream.add(u64::MAX, &[0; 9]);
    }
}
