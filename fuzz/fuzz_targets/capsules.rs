//! Capsules and headers of WebTransport streams: they are the same however the bytes are split, a
//! capsule that is larger than allowed is an error before it is buffered, and what was read can be
//! written again.
#![no_main]

use bytes::Bytes;
use clearway_http3::capsule::{Capsule, CapsuleReader};
use clearway_http3::webtransport::{CLOSE_SESSION, CloseSession, StreamHeader, StreamHeaderReader};
use libfuzzer_sys::fuzz_target;

/// The longest capsule that is accepted, in bytes.
const MAX: usize = CloseSession::MAX_LEN;

/// Reads all capsules. Returns them, whether one was too large, and whether the end is allowed.
fn read(bytes: &[u8], piece: usize) -> (Vec<Capsule>, bool, bool) {
    let mut reader = CapsuleReader::new(MAX);
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match reader.next(&mut piece, |kind| kind % 3 != 2) {
                Ok(Some(capsule)) => found.push(capsule),
                Ok(None) => break,
                Err(_) => return (found, true, false),
            }
        }
        assert!(piece.is_empty());
    }
    assert!(reader.skipped() <= bytes.len() as u64);
    (found, false, reader.is_at_boundary())
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (piece, bytes) = input;
    let whole = read(&bytes, bytes.len());
    assert_eq!(whole, read(&bytes, usize::from(piece)));
    assert_eq!(whole, read(&bytes, 1));
    for capsule in whole.0 {
        assert!(capsule.value.len() <= MAX && capsule.kind % 3 != 2);
        let mut again = Vec::new();
        capsule.encode(&mut again);
        assert_eq!(read(&again, again.len()).0, [capsule.clone()]);
        if capsule.kind == CLOSE_SESSION
            && let Ok(close) = CloseSession::decode(capsule.value.clone())
        {
            assert_eq!(close.capsule(), capsule);
            assert_eq!(CloseSession::new(close.code, &close.reason), close);
        }
    }
    let mut at_once = StreamHeaderReader::default();
    let header = at_once.push(&bytes);
    let mut in_pieces = StreamHeaderReader::default();
    let mut used = 0;
    let found = bytes.iter().find_map(|&byte| {
        used += 1;
        in_pieces.push(&[byte])
    });
    assert_eq!(found.map(|(header, _)| (header, used)), header);
    if let Some((header, _)) = header {
        let StreamHeader { .. } = header;
        let again = header.encode();
        let mut reader = StreamHeaderReader::default();
        assert_eq!(reader.push(&again), Some((header, again.len())));
    }
});
