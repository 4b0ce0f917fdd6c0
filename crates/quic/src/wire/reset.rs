//! Stateless resets (RFC 9000 §10.3): a datagram that looks like a short-header
//! packet and ends in a token.

use super::Writer;
use super::packet::{FIXED, LONG};
use crate::cid::ResetToken;

/// Bytes of a token.
pub(crate) const TOKEN_LEN: usize = 16;

/// Smallest stateless reset: 5 unpredictable bytes and the token.
pub(crate) const MIN_SIZE: usize = 5 + TOKEN_LEN;

/// Largest stateless reset that we send, bytes: one less than the smallest size at which an answer
/// need not be smaller (RFC 9000 §10.3).
pub(crate) const MAX_SIZE: usize = 42;

/// Returns the size of the reset that answers a datagram of `received` bytes. It is always smaller, so
/// that two endpoints without state do not answer each other forever (RFC 9000 §10.3.3). Returns
/// `None` if the datagram is too small for that.
#[must_use]
pub(crate) const fn size(received: usize) -> Option<usize> {
    if received <= MIN_SIZE {
        None
    } else if received > MAX_SIZE {
        Some(MAX_SIZE)
    } else {
        received.checked_sub(1)
    }
}

/// Writes a reset of `size` bytes, at least [`MIN_SIZE`], because anything shorter is not a QUIC
/// packet. `fill` supplies unpredictable bytes.
pub(crate) fn encode(
    w: &mut Writer<'_>,
    size: usize,
    token: ResetToken,
    fill: impl FnOnce(&mut [u8]),
) {
    let unpredictable = w.reserve(size.max(MIN_SIZE).saturating_sub(TOKEN_LEN));
    if let Some(unpredictable) = unpredictable {
        fill(unpredictable);
        if let Some(first) = unpredictable.first_mut() {
            *first = *first & !LONG | FIXED;
        }
    }
    w.bytes(&token.0);
}

/// Returns the token of `datagram` if it is a stateless reset; `None` if it is too short for one.
/// Datagrams with a long header are not excluded (RFC 9000 §10.3).
#[must_use]
pub(crate) fn candidate(datagram: &[u8]) -> Option<ResetToken> {
    if datagram.len() < MIN_SIZE {
        return None;
    }
    datagram.last_chunk().map(|token| ResetToken(*token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::{HeaderKind, PartialHeader};

    #[test]
    fn reset_looks_like_short_header_and_ends_with_token() {
        let token = ResetToken([7; TOKEN_LEN]);
        for fill in [0x00, 0xff] {
            let mut buffer = [0; 64];
            let mut w = Writer::new(&mut buffer);
            encode(&mut w, MAX_SIZE, token, |bytes| bytes.fill(fill));
            assert_eq!(w.written(), MAX_SIZE);
            assert_eq!(candidate(w.filled()), Some(token));
            let header = PartialHeader::parse(w.filled(), 8).unwrap();
            assert!(header.fixed_bit);
            assert!(matches!(header.kind, HeaderKind::Short { .. }));
        }
    }

    #[test]
    fn reset_answered_by_reset_shrinks_until_silence() {
        let mut received = 1500;
        let mut answers = 0;
        while let Some(answer) = size(received) {
            assert!((MIN_SIZE..received).contains(&answer));
            received = answer;
            answers += 1;
        }
        assert_eq!(answers, MAX_SIZE - MIN_SIZE + 1);
        assert_eq!(candidate(&[0; MIN_SIZE - 1]), None);
    }
}
