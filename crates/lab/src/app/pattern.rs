//! The pattern of bytes that streams carry: known at both ends, and checked by a comparison.

use std::sync::LazyLock;

use bytes::Bytes;

/// A prime, so that lost or repeated blocks of a power of two bytes are detected.
const LEN: usize = 65_521;

/// Bytes that look random and repeat after [`LEN`].
static BLOCK: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_u32;
    (0..LEN)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 24) as u8
        })
        .collect()
});

/// At most `len` bytes of the stream keyed `key` from `offset` on, without a
/// copy; at least one unless `len` is zero.
pub(super) fn piece(key: u64, offset: u64, len: u64) -> Bytes {
    let at = start(key, offset);
    let end = (LEN as u64).min((at as u64).saturating_add(len)) as usize;
    BLOCK.slice(at..end)
}

/// Whether `data` is the content of the stream keyed `key` from `offset` on.
pub(super) fn matches(key: u64, mut offset: u64, mut data: &[u8]) -> bool {
    while !data.is_empty() {
        let expected = piece(key, offset, data.len() as u64);
        let (head, rest) = data.split_at(expected.len());
        if head != expected {
            return false;
        }
        offset += head.len() as u64;
        data = rest;
    }
    true
}

fn start(key: u64, offset: u64) -> usize {
    // Streams start at different positions, so that one cannot be mistaken for another.
    (key.wrapping_mul(7_919).wrapping_add(offset) % LEN as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_pieces_join_and_verify() {
        let mut joined = Vec::new();
        while joined.len() < 200_000 {
            let next = piece(3, joined.len() as u64, 7_001);
            joined.extend_from_slice(&next);
        }
        assert!(matches(3, 0, &joined));
        assert!(matches(3, 70_000, &joined[70_000..]));
        assert!(!matches(4, 0, &joined), "another stream's bytes");
        assert!(!matches(3, 1, &joined), "a byte missing");
        joined[150_000] ^= 1;
        assert!(!matches(3, 0, &joined), "a byte changed");
    }
}
