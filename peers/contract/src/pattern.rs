//! The clearway-raw protocol: the client requests a number of bytes, and the server sends them.
//!
//! A request is a bidirectional stream. The client sends the number of bytes it wants as 8 bytes in
//! network order, then any number of upload bytes, then FIN. The server reads up to that FIN and
//! responds with exactly that many bytes of [the pattern](pattern), then FIN.

use std::sync::LazyLock;

use bytes::Bytes;

/// The ALPN protocol name of clearway-raw.
pub const ALPN: &[u8] = b"clearway-raw";

/// Length of a request's header, in bytes: the number of requested bytes, in network order.
pub const HEADER: usize = 8;

/// The pattern repeats after this many bytes (16 MiB): a byte depends on 24 bits of its offset.
const PERIOD: u64 = 1 << 24;

/// Maximum length of a write, in bytes.
const PIECE: u64 = 1 << 20;

/// One period, computed once: senders pass slices of it without a copy, and receivers compare with
/// it, so that the arithmetic of the pattern is not part of a measurement.
static TABLE: LazyLock<Bytes> = LazyLock::new(|| (0..PERIOD).map(byte_at).collect());

/// Returns the byte at an offset of every response.
fn byte_at(offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16)).to_be_bytes()[7]
}

/// Computes the pattern's table now, so that it is not part of a measurement.
pub fn prepare() {
    LazyLock::force(&TABLE);
}

/// Returns the pattern from `offset` on: at least one byte unless `remaining` is 0, at most
/// `remaining` bytes. Call it again for the rest.
pub fn pattern(offset: u64, remaining: u64) -> Bytes {
    let start = offset % PERIOD;
    let length = remaining.min(PIECE).min(PERIOD - start);
    // Both ends are at most PERIOD, which fits any usize of 32 bits or more.
    TABLE.slice(start as usize..(start + length) as usize)
}

/// Compares bytes received at `offset` with the pattern.
///
/// # Errors
/// The offset of the first byte that differs.
pub fn verify(offset: u64, received: &[u8]) -> Result<(), u64> {
    let mut at = offset;
    let mut rest = received;
    while !rest.is_empty() {
        let expected = pattern(at, rest.len() as u64);
        let (head, tail) = rest.split_at(expected.len());
        if head != expected {
            let same = head.iter().zip(&expected).take_while(|(a, b)| a == b);
            return Err(at + same.count() as u64);
        }
        at += expected.len() as u64;
        rest = tail;
    }
    Ok(())
}

/// Returns the sum of the pattern's first `length` bytes, which is the trailer `x-sum` of an echo.
#[must_use]
pub fn sum(length: u64) -> u64 {
    (0..length).map(|offset| u64::from(byte_at(offset))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, as in the protocol's description.
    fn definition(i: u64) -> u8 {
        ((i) ^ (i >> 8) ^ (i >> 16)) as u8
    }

    #[test]
    fn the_table_is_the_definition_around_every_seam() {
        let seams = [
            0,
            0xff,
            0xffff,
            PIECE - 2,
            PERIOD - 3,
            7 * PERIOD - 3,
            u64::MAX >> 1,
        ];
        for seam in seams {
            let piece = pattern(seam, 9);
            assert!(!piece.is_empty());
            for (i, byte) in piece.iter().enumerate() {
                assert_eq!(
                    *byte,
                    definition(seam + i as u64),
                    "offset {}",
                    seam + i as u64
                );
            }
        }
    }

    #[test]
    fn pieces_never_exceed_what_remains() {
        assert!(pattern(5, 0).is_empty());
        assert_eq!(pattern(5, 3).len(), 3);
        assert_eq!(pattern(PERIOD - 1, 100).len(), 1);
        assert_eq!(pattern(0, u64::MAX).len() as u64, PIECE);
    }

    #[test]
    fn a_sound_answer_verifies_across_a_period() {
        let start = PERIOD - 1000;
        let sound: Vec<u8> = (start..start + 3000).map(definition).collect();
        assert_eq!(verify(start, &sound), Ok(()));
        assert_eq!(verify(start, &[]), Ok(()));
    }

    #[test]
    fn changed_byte_is_found_at_its_offset() {
        let start = PERIOD - 1000;
        let mut broken: Vec<u8> = (start..start + 3000).map(definition).collect();
        broken[2500] ^= 0x40;
        assert_eq!(verify(start, &broken), Err(start + 2500));
    }

    #[test]
    fn an_answer_shifted_by_one_fails() {
        let shifted: Vec<u8> = (1..100).map(definition).collect();
        assert_eq!(verify(0, &shifted), Err(0));
    }
}
