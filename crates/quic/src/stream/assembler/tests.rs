use proptest::prelude::*;

use super::*;

fn pattern(from: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((from as usize + i) % 251) as u8)
        .collect()
}

/// The memory held, added up anew.
fn held(assembler: &Assembler) -> usize {
    let ready: usize = assembler.ready.iter().map(Block::charge).sum();
    let ahead = assembler.out_of_order.as_deref();
    ready
        + memory::vec_deque(&assembler.ready)
        + ahead.map_or(0, |ahead| size_of_val(ahead) + ahead.recount())
}

#[test]
fn short_stream_uses_short_block() {
    let mut assembler = Assembler::default();
    assert_eq!(assembler.insert(0, b"hello", 0), 5);
    assert_eq!(assembler.charged, FIRST);
    assert_eq!(assembler.read_chunk(99).unwrap(), &b"hello"[..]);
    assert_eq!(assembler.read_chunk(99), None);
}

#[test]
fn fully_read_stream_frees_memory_and_continues() {
    let mut assembler = Assembler::default();
    let block = BLOCK as u64;
    for offset in [0, 5, block - 2, block + 3] {
        assembler.insert(assembler.read, b"x", 0);
        let len = offset as usize + 1 - assembler.read as usize;
        assembler.insert(assembler.read, &pattern(assembler.read, len), 0);
        assembler.release_memory();
        while assembler.read_chunk(usize::MAX).is_some() {}
        assembler.release_memory();
        assert_eq!((assembler.read, assembler.memory()), (offset + 1, 0));
    }
    // What waits for data before it is kept.
    assembler.insert(block + 6, b"late", 0);
    assembler.release_memory();
    assembler.insert(block + 4, b"so", 0);
    assert_eq!(assembler.read_chunk(99).unwrap(), &b"solate"[..]);
}

#[test]
fn chunks_of_one_block_share_its_memory() {
    let mut assembler = Assembler::default();
    let data = pattern(0, 2 * BLOCK);
    assembler.insert(0, &data, 0);
    let first = assembler.read_chunk(100).unwrap();
    let second = assembler.read_chunk(usize::MAX).unwrap();
    assert_eq!(first.as_ptr() as usize + 100, second.as_ptr() as usize);
    assert_eq!(second.len(), BLOCK - 100);
    assembler.read_chunk(usize::MAX).unwrap();
    assert_eq!(assembler.charged, 0);
}

/// With room to spare a stream in bulk that is read along takes an allocation for
/// every twenty packets or so; without, one for every packet, and no memory more.
#[test]
fn bulk_stream_uses_whole_blocks_if_allowed() {
    const PACKET: usize = 1_400;
    let chunks = |spare: usize| {
        let mut assembler = Assembler::default();
        let mut blocks = 0;
        for i in 0..1_000_u64 {
            let before = assembler.charged;
            assembler.insert(i * PACKET as u64, &[7; PACKET], spare);
            blocks += u32::from(assembler.charged > before);
            let mut read = 0;
            while let Some(chunk) = assembler.read_chunk(usize::MAX) {
                read += chunk.len();
            }
            assert_eq!(read, PACKET);
            if spare == 0 {
                assert_eq!(assembler.charged, 0);
            }
        }
        blocks
    };
    assert_eq!(chunks(0), 1_000);
    assert!(chunks(BLOCK) < 100, "{}", chunks(BLOCK));
}

#[test]
fn single_byte_uses_little_memory_at_any_offset() {
    let mut assembler = Assembler::default();
    for i in 0..1_000 {
        assembler.insert(1 + i * BLOCK as u64, b"x", BLOCK);
    }
    assert_eq!(assembler.pieces(), 1_000);
    assert!(assembler.memory() <= 200_000, "{}", assembler.memory());
}

/// What arrives behind a lost packet is held in few blocks, and is not copied again.
#[test]
fn contiguous_data_behind_gap_uses_few_pieces_and_is_not_moved() {
    const PACKET: usize = 1_400;
    let mut assembler = Assembler::default();
    for i in 1..1_000_u64 {
        assembler.insert(i * PACKET as u64, &[7; PACKET], 0);
    }
    let bytes = 999 * PACKET;
    assert_eq!(assembler.stored(), bytes);
    assert!(assembler.pieces() <= 16 + bytes / BLOCK);
    assert!(assembler.memory() <= 2 * bytes, "{}", assembler.memory());
    let kept = assembler.out_of_order.as_ref().unwrap().first_bytes();
    assembler.insert(0, &[7; PACKET], 0);
    assert_eq!(assembler.pieces(), 0);
    assert_eq!(assembler.contiguous, 1_000 * PACKET as u64);
    assembler.read_chunk(usize::MAX).unwrap();
    assert_eq!(assembler.read_chunk(usize::MAX).unwrap().as_ptr(), kept);
}

#[test]
fn covering_data_replaces_smaller_pieces() {
    let mut assembler = Assembler::default();
    for offset in [10, 12, 14, 20] {
        assert_eq!(assembler.insert(offset, b"x", 0), 1);
    }
    assert_eq!(assembler.insert(9, &[b'y'; 8], 0), 5);
    assert_eq!((assembler.pieces(), assembler.stored()), (2, 9));
    assert_eq!(assembler.insert(11, &[b'z'; 2], 0), 0);
    assert_eq!(assembler.insert(0, &[b'a'; 30], 0), 21);
    assert_eq!((assembler.pieces(), assembler.stored()), (0, 30));
}

/// Small pieces come out as one chunk.
#[test]
fn adjacent_small_pieces_are_merged() {
    let mut assembler = Assembler::default();
    for i in (1..200_u64).rev() {
        assembler.insert(i, &pattern(i, 1), 0);
    }
    assert_eq!(assembler.pieces(), 199);
    assembler.insert(0, &pattern(0, 1), 0);
    let mut out = Vec::new();
    let mut chunks = 0;
    while let Some(chunk) = assembler.read_chunk(usize::MAX) {
        out.extend_from_slice(&chunk);
        chunks += 1;
    }
    assert_eq!(out, pattern(0, 200));
    assert!(chunks < 5, "{chunks} chunks");
}

proptest! {
    /// Pieces in any order, overlapping and repeated, come out as written; the
    /// memory charged is the memory held, and a small multiple of the bytes.
    #[test]
    fn pieces_received_in_any_order_are_read_in_order(
        pieces in prop::collection::vec(
            (0_u64..200_000, prop_oneof![1_usize..40_000, 1_usize..40], 0..4, 1_usize..70_000),
            1..60,
        ),
        spare in prop_oneof![Just(0), Just(BLOCK)],
    ) {
        let total = 240_000;
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        let mut arrived = vec![false; total];
        let last = (0, total, 1, total);
        for (offset, len, how, take) in pieces.into_iter().chain([last]) {
            let fresh = assembler.insert(offset, &pattern(offset, len), spare);
            let range = &mut arrived[offset as usize..offset as usize + len];
            prop_assert_eq!(fresh, range.iter().filter(|known| !**known).count());
            range.fill(true);
            let stored = arrived.iter().filter(|known| **known).count() - out.len();
            prop_assert_eq!(assembler.stored(), stored);
            let pieces = assembler.pieces() + assembler.ready.len();
            if spare == 0 {
                // What is read of a block stays until all of it is.
                let most = 2 * stored + 2 * BLOCK + 200 * pieces;
                prop_assert!(assembler.memory() <= most, "{} of {}", assembler.memory(), most);
            }
            match how {
                0 => {
                    let mut buffer = vec![0; take];
                    let n = assembler.read(&mut buffer);
                    out.extend_from_slice(&buffer[..n]);
                }
                1 => out.extend(assembler.read_chunk(take).unwrap_or_default()),
                2 => {
                    out.extend(assembler.read_chunk(take).unwrap_or_default());
                    assembler.release_memory();
                }
                _ => {}
            }
            prop_assert_eq!(assembler.memory(), held(&assembler));
            prop_assert_eq!(assembler.read, out.len() as u64);
            prop_assert!(assembler.out_of_order.as_ref().is_none_or(|ahead| ahead.is_sound()));
        }
        while let Some(chunk) = assembler.read_chunk(usize::MAX) {
            out.extend_from_slice(&chunk);
        }
        prop_assert_eq!(out, pattern(0, total));
        assembler.release_memory();
        prop_assert_eq!((assembler.memory(), assembler.stored()), (0, 0));
    }
}
