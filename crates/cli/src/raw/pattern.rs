//! The content that the raw protocol transfers.
//!
//! Byte `i` is `(i ^ (i >> 8) ^ (i >> 16)) as u8`: every server sends the same, so that a client
//! can check each byte without further information, and misplaced data is noticed.

use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;

/// Bytes of a piece. Within one, `i >> 16` does not change.
const PIECE: usize = 1 << 16;

/// Pieces until the pattern repeats: byte `i` depends on 24 bits of `i`.
const PIECES: usize = 1 << 8;

/// Created when first needed, then shared: sending costs one reference count, and 16 MB at most.
static PATTERN: [OnceLock<Bytes>; PIECES] = [const { OnceLock::new() }; PIECES];

/// The first piece, from which the others follow by one XOR.
static FIRST: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..PIECE).map(|i| (i ^ (i >> 8)) as u8).collect());

/// The piece that holds byte `offset`.
fn piece(offset: u64) -> &'static Bytes {
    let index = (offset >> 16) as u8;
    PATTERN[usize::from(index)].get_or_init(|| {
        FIRST
            .iter()
            .map(|byte| byte ^ index)
            .collect::<Vec<_>>()
            .into()
    })
}

/// Where `offset` lies within its piece.
const fn within(offset: u64) -> usize {
    (offset % PIECE as u64) as usize
}

/// Content from `offset` on, without a copy: at least one byte and at most
/// `most`, which is not zero.
pub(crate) fn chunk(offset: u64, most: u64) -> Bytes {
    let start = within(offset);
    let end = usize::try_from(most).map_or(PIECE, |most| start.saturating_add(most).min(PIECE));
    piece(offset).slice(start..end)
}

/// Compares content received at `offset` with what it has to be.
///
/// # Errors
/// The offset of the first byte that differs.
pub(crate) fn check(mut offset: u64, mut data: &[u8]) -> Result<(), u64> {
    while !data.is_empty() {
        let expected = &piece(offset)[within(offset)..];
        let len = expected.len().min(data.len());
        let (now, later) = data.split_at(len);
        if now != &expected[..len] {
            let same = now.iter().zip(expected).take_while(|(a, b)| a == b).count();
            return Err(offset + same as u64);
        }
        offset += len as u64;
        data = later;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(i: u64) -> u8 {
        (i ^ (i >> 8) ^ (i >> 16)) as u8
    }

    #[test]
    fn pattern_chunks_match_the_formula_at_every_boundary() {
        for start in [
            0,
            1,
            255,
            65_530,
            65_536,
            16_777_210,
            (1 << 40) - 3,
            (7 << 16) + 9,
        ] {
            let (mut offset, end) = (start, start + 200_000);
            while offset < end {
                let chunk = chunk(offset, end - offset);
                assert!(!chunk.is_empty());
                for (i, &found) in chunk.iter().enumerate() {
                    assert_eq!(found, byte(offset + i as u64));
                }
                offset += chunk.len() as u64;
            }
            assert_eq!(offset, end);
        }
    }

    #[test]
    fn wrong_byte_is_reported_at_its_offset() {
        let mut data: Vec<u8> = (1_000..200_000).map(byte).collect();
        assert_eq!(check(1_000, &data), Ok(()));
        data[100_000] ^= 1;
        assert_eq!(check(1_000, &data), Err(101_000));
        assert_eq!(check(1_001, &data[..10]), Err(1_001));
    }
}
