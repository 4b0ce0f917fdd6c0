//! Attacks of a peer, and the exact error of each.

use bytes::Bytes;
use proptest::prelude::*;

use super::{field, fields, hex};
use crate::qpack::{Decoded, Decoder, Encoder, ErrorCode, QpackError, Reason, integer};

const MAX: u64 = 16 << 10;

fn failed(reason: Reason) -> QpackError {
    QpackError {
        code: ErrorCode::DecompressionFailed,
        reason,
    }
}

/// A decoder of 100 bytes whose table has "a: b" as entry 1; entry 0 was evicted.
fn decoder() -> Decoder {
    let mut decoder = Decoder::new(100, 2);
    // Capacity 100; an entry of 32 + 1 + 40; "a: b".
    let mut stream = hex("3f45 4178 28");
    stream.extend([b'y'; 40]);
    stream.extend(hex("4161 0162"));
    decoder.on_encoder_stream(&stream).unwrap();
    assert_eq!(
        (decoder.table().dropped(), decoder.table().insert_count()),
        (1, 2)
    );
    decoder
}

#[track_caller]
fn section(bytes: &str, reason: Reason) {
    let outcome = decoder().decode(0, hex(bytes).into(), MAX);
    assert_eq!(outcome, Err(failed(reason)), "{bytes}");
}

#[track_caller]
fn encoder_stream(bytes: &str, reason: Reason) {
    let error = QpackError {
        code: ErrorCode::EncoderStreamError,
        reason,
    };
    assert_eq!(
        decoder().on_encoder_stream(&hex(bytes)),
        Err(error),
        "{bytes}"
    );
    // The same, one byte at a time.
    let mut decoder = decoder();
    let outcome = hex(bytes)
        .iter()
        .try_for_each(|&byte| decoder.on_encoder_stream(&[byte]));
    assert_eq!(outcome, Err(error), "{bytes}, cut");
}

#[test]
fn decoder_of_these_tests_has_one_entry() {
    // Required Insert Count 2, Base 2: relative 0 is entry 1.
    let decoded = decoder()
        .decode(0, hex("0300 80 4001 63 c1").into(), MAX)
        .unwrap();
    assert_eq!(
        fields(decoded),
        [field("a", "b"), field("a", "c"), field(":path", "/")]
    );
}

#[test]
fn references_to_missing_entries_are_rejected() {
    // Static 99, as an entry and as a name.
    section("0000 ff24", Reason::StaticIndex);
    section("0000 5f54 00", Reason::StaticIndex);
    // Evicted: relative 1 of Base 2; as a name; before the first.
    section("0300 81", Reason::DynamicIndex);
    section("0300 41 00", Reason::DynamicIndex);
    section("0300 82", Reason::DynamicIndex);
    // Post-base 1 of Base 1 is entry 2, beyond the Required Insert Count of 2.
    section("0380 11", Reason::PastRequiredInsertCount);
    section("0380 01 00", Reason::PastRequiredInsertCount);
    section(
        "0380 1f ffff ffff ffff ff3f",
        Reason::PastRequiredInsertCount,
    );
    // Any of the dynamic table with a Required Insert Count of 0.
    section("0002 80", Reason::PastRequiredInsertCount);
    section("0000 10", Reason::PastRequiredInsertCount);
    section("0000 80", Reason::DynamicIndex);
    // Base 3 above Required Insert Count 2: relative 0 is entry 2.
    section("0301 80", Reason::PastRequiredInsertCount);
}

#[test]
fn impossible_prefixes_are_rejected() {
    // MaxEntries is 3: above 6; 3 + 2 = 5 at most, which 6 and wrapped 1 are not.
    section("07 00", Reason::RequiredInsertCount);
    section("01 00", Reason::RequiredInsertCount);
    section("ff ffff ffff ffff ffff 1f 00", Reason::RequiredInsertCount);
    section("03 82", Reason::NegativeBase);
    section("00 80", Reason::NegativeBase);
    section("", Reason::Truncated);
    section("00", Reason::Truncated);
    section("00 7f", Reason::Truncated);
    let none = Decoder::new(0, 10).decode(0, hex("0200").into(), MAX);
    assert_eq!(none, Err(failed(Reason::RequiredInsertCount)));
}

#[test]
fn invalid_integers_and_strings_are_rejected() {
    section("0000 ff ffff ffff ffff ffff ff7f", Reason::IntegerTooLarge);
    section("0000 ff 8080 8080 8080 8080 8000", Reason::IntegerTooLarge);
    section("0000 ff 80", Reason::Truncated);
    section("0000 51 05 2f", Reason::Truncated);
    section("0000 51 7fff ffff ffff ffff ff1f", Reason::Truncated);
    section("0000 23 6162", Reason::Truncated);
    section("0000 21 61", Reason::Truncated);
    // Huffman strings as values: EOS, zeros as padding, a byte of padding.
    section("0000 51 84 ffff ffff", Reason::HuffmanEos);
    section("0000 51 81 00", Reason::HuffmanPadding);
    section("0000 51 82 07 ff", Reason::HuffmanPadding);
    section("0000 2c ffff ffff 00", Reason::HuffmanEos);
}

#[test]
fn invalid_encoder_instructions_are_rejected() {
    encoder_stream("ff24 00", Reason::StaticIndex);
    encoder_stream("81 00", Reason::DynamicIndex);
    encoder_stream("01", Reason::DynamicIndex);
    encoder_stream("1f ffff ffff ffff ffff 1f", Reason::DynamicIndex);
    // 101 bytes.
    encoder_stream("3f46", Reason::Capacity);
    encoder_stream("3f ffff ffff ffff ffff 1f", Reason::Capacity);
    encoder_stream("3f ffff ffff ffff ffff ff", Reason::IntegerTooLarge);
    encoder_stream("40 84 ffff ffff", Reason::HuffmanEos);
    encoder_stream("61 00 00", Reason::HuffmanPadding);
}

#[test]
fn entries_larger_than_the_table_are_rejected_by_their_lengths() {
    // With a capacity of 0 not even an empty one.
    encoder_stream("20 c0 00", Reason::EntryTooLarge);
    // A length alone is enough: 69 bytes of value, of name, 35 of both, Huffman
    // strings that cannot be shorter than 69.
    encoder_stream("c0 45", Reason::EntryTooLarge);
    encoder_stream("5f 26", Reason::EntryTooLarge);
    encoder_stream("41 61 44", Reason::EntryTooLarge);
    encoder_stream("c0 ff 8602", Reason::EntryTooLarge);
    encoder_stream("c0 7f ffff ffff ffff ffff 1f", Reason::EntryTooLarge);
    encoder_stream("7f ffff ffff ffff ffff 1f", Reason::EntryTooLarge);
    // With the name's 10 bytes, 59 are too many, and known when both are there.
    let value = "61".repeat(59);
    encoder_stream(&format!("c0 3b {value}"), Reason::EntryTooLarge);
    // A Huffman string that turns out longer: 70 times '0' in 44 bytes.
    let zeros = "00".repeat(43);
    encoder_stream(&format!("c0 ac {zeros} 03"), Reason::EntryTooLarge);
}

#[test]
fn incomplete_instruction_takes_little_memory() {
    let mut decoder = Decoder::new(4096, 0);
    decoder.on_encoder_stream(&hex("3fe11f")).unwrap();
    // Huffman coded, the longest that may still fit, a byte at a time.
    let mut head = Vec::new();
    integer::encode(&mut head, 0x60, 5, 15_000);
    decoder.on_encoder_stream(&head).unwrap();
    for _ in 0..15_000 {
        decoder.on_encoder_stream(&[0xff]).unwrap();
    }
    assert!(decoder.memory() < 40 << 10, "{}", decoder.memory());
}

#[test]
fn acknowledgments_of_unsent_sections_are_rejected() {
    let error = |reason| {
        Err(QpackError {
            code: ErrorCode::DecoderStreamError,
            reason,
        })
    };
    let fresh = || {
        let mut encoder = Encoder::new(4096);
        encoder.set_peer_limits(4096, 10).unwrap();
        encoder.encode(4, [field("server", "a").as_ref()], &mut Vec::new());
        encoder.encode(8, [field(":method", "GET").as_ref()], &mut Vec::new());
        encoder
    };
    for (bytes, reason) in [
        ("00", Reason::ZeroIncrement),
        ("02", Reason::IncrementPastInserted),
        ("3f ffff ffff ffff ffff 1f", Reason::IncrementPastInserted),
        ("01 01", Reason::IncrementPastInserted),
        ("80", Reason::NothingToAcknowledge),
        ("84 84", Reason::NothingToAcknowledge),
        // The section has no dynamic references, so it is not acknowledged.
        ("88", Reason::NothingToAcknowledge),
        ("44 84", Reason::NothingToAcknowledge),
        ("ff ffff ffff ffff ffff ff", Reason::IntegerTooLarge),
        ("7f ffff ffff ffff ffff ff7f", Reason::IntegerTooLarge),
    ] {
        assert_eq!(
            fresh().on_decoder_stream(&hex(bytes)),
            error(reason),
            "{bytes}"
        );
        let mut cut = fresh();
        let outcome = hex(bytes)
            .iter()
            .try_for_each(|&byte| cut.on_decoder_stream(&[byte]));
        assert_eq!(outcome, error(reason), "{bytes}, cut");
    }
    // Cancelling an unknown stream is allowed: it may have had no section.
    fresh()
        .on_decoder_stream(&hex("40 44 44 7f ffff ff00"))
        .unwrap();
    let mut encoder = fresh();
    assert_eq!(
        encoder.set_peer_limits(4095, 10),
        error(Reason::CapacityChanged)
    );
}

#[test]
fn more_blocked_streams_than_allowed_are_rejected() {
    let mut decoder = decoder();
    let waits: Bytes = hex("0400 80").into();
    assert_eq!(decoder.decode(0, waits.clone(), MAX), Ok(Decoded::Blocked));
    assert_eq!(decoder.decode(4, waits.clone(), MAX), Ok(Decoded::Blocked));
    // A second section of a stream blocks no further stream, and waits its turn.
    assert_eq!(decoder.decode(4, waits.clone(), MAX), Ok(Decoded::Blocked));
    assert_eq!(
        decoder.decode(4, hex("0000 c1").into(), MAX),
        Ok(Decoded::Blocked)
    );
    assert_eq!(decoder.blocked_streams(), 2);
    let third = decoder.decode(8, waits.clone(), MAX);
    assert_eq!(third, Err(failed(Reason::BlockedStreams)));
    // One leaves, so there is room for one.
    decoder.cancel(0);
    assert_eq!(decoder.decode(8, waits, MAX), Ok(Decoded::Blocked));
    decoder.on_encoder_stream(&hex("00")).unwrap();
    assert_eq!(decoder.blocked_streams(), 0);
    assert_eq!(decoder.next_unblocked(), Some(4));
    for expected in [field("a", "b"), field("a", "b"), field(":path", "/")] {
        assert_eq!(fields(decoder.resume(4).unwrap().unwrap()), [expected]);
    }
    assert_eq!(decoder.resume(4), Ok(None));
    assert_eq!(
        (decoder.next_unblocked(), decoder.next_unblocked()),
        (Some(8), None)
    );
    assert_eq!(
        fields(decoder.resume(8).unwrap().unwrap()),
        [field("a", "b")]
    );
    // Two on stream 4, one on 8, after the cancellation of 0.
    assert_eq!(decoder.instructions().split(), hex("40 84 84 88"));
}

#[test]
fn blocked_section_is_checked_when_resumed() {
    let mut decoder = decoder();
    let waits = hex("0400 81 ff24");
    assert_eq!(decoder.decode(0, waits.into(), MAX), Ok(Decoded::Blocked));
    decoder.on_encoder_stream(&hex("00")).unwrap();
    assert_eq!(decoder.next_unblocked(), Some(0));
    assert_eq!(decoder.resume(0), Err(failed(Reason::StaticIndex)));
}

#[test]
fn header_bomb_is_too_large_without_being_decoded() {
    let mut decoder = Decoder::new(4096, 0);
    // An entry of 4000 bytes, then 60,000 references to it.
    let mut stream = hex("3fe11f 41 61");
    integer::encode(&mut stream, 0, 7, 4000);
    stream.extend([b'b'; 4000]);
    decoder.on_encoder_stream(&stream).unwrap();
    let mut bomb = hex("0200");
    bomb.extend([0x80; 60_000]);
    let bomb = Bytes::from(bomb);
    assert_eq!(decoder.decode(0, bomb.clone(), MAX), Ok(Decoded::TooLarge));
    // Processed all the same, so the encoder need not wait.
    assert_eq!(decoder.instructions().split(), hex("80"));
    // Any bad reference within it is still found.
    let bad = [&bomb[..], &[0x81]].concat();
    assert_eq!(
        decoder.decode(0, bad.into(), MAX),
        Err(failed(Reason::DynamicIndex))
    );
    let bad = [&bomb[..], &[0xff, 0x24]].concat();
    assert_eq!(
        decoder.decode(0, bad.into(), MAX),
        Err(failed(Reason::StaticIndex))
    );
    // Four of them fit 16 KiB: 4 * (4000 + 1 + 32).
    let four = decoder.decode(4, bomb.slice(..6), MAX).unwrap();
    assert_eq!(fields(four).len(), 4);
}

#[test]
fn size_limit_counts_name_value_and_32() {
    let bytes = hex("0000 21 61 02 6263 c1");
    let size = (32 + 1 + 2) + (32 + 5 + 1);
    for limit in 0..size {
        let outcome = Decoder::new(0, 0).decode(0, bytes.clone().into(), limit);
        assert_eq!(outcome, Ok(Decoded::TooLarge), "{limit}");
    }
    let outcome = Decoder::new(0, 0).decode(0, bytes.into(), size).unwrap();
    assert_eq!(fields(outcome).len(), 2);
    // Huffman coded: counted as decoded.
    let coded = hex("0000 51 8c f1e3 c2e5 f23a 6ba0 ab90 f4ff");
    let size = 32 + 5 + 15;
    let short = Decoder::new(0, 0).decode(0, coded.clone().into(), size - 1);
    assert_eq!(short, Ok(Decoded::TooLarge));
    let whole = Decoder::new(0, 0).decode(0, coded.into(), size).unwrap();
    assert_eq!(fields(whole), [field(":path", "www.example.com")]);
}

#[test]
fn unread_acknowledgments_are_excessive_load() {
    let mut decoder = decoder();
    let waits: Bytes = hex("0300 80").into();
    let outcome = (0..100_000)
        .try_for_each(|stream| decoder.decode(4 * stream, waits.clone(), MAX).map(|_| ()));
    let code = ErrorCode::ExcessiveLoad;
    assert_eq!(
        outcome,
        Err(QpackError {
            code,
            reason: Reason::UnreadInstructions
        })
    );
    for stream in 0..100_000 {
        decoder.cancel(4 * stream);
    }
    assert!(decoder.memory() < 256 << 10, "{}", decoder.memory());
}

#[test]
fn errors_show_code_and_reason() {
    let error = decoder()
        .decode(0, hex("0000 ff24").into(), MAX)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "QPACK_DECOMPRESSION_FAILED: static table index exceeds 98"
    );
    let codes = [
        (ErrorCode::DecompressionFailed, 0x200),
        (ErrorCode::EncoderStreamError, 0x201),
        (ErrorCode::DecoderStreamError, 0x202),
        (ErrorCode::ExcessiveLoad, 0x107),
    ];
    for (code, number) in codes {
        assert_eq!(code.code(), number);
    }
}

proptest! {
    /// Random bytes neither cause a panic nor take memory.
    #[test]
    fn random_bytes_do_not_panic_or_take_memory(
        stream in proptest::collection::vec(any::<u8>(), 0..200),
        section in proptest::collection::vec(any::<u8>(), 0..200),
        limit in 0_u64..1000,
    ) {
        let mut decoder = decoder();
        let _ = decoder.on_encoder_stream(&stream);
        if let Ok(Decoded::Fields(fields)) = decoder.decode(0, section.into(), limit) {
            let size: usize = fields.iter().map(|f| f.name.len() + f.value.len() + 32).sum();
            prop_assert!(size as u64 <= limit);
        }
        prop_assert!(decoder.memory() < 8 << 10);
        let mut encoder = Encoder::new(4096);
        encoder.set_peer_limits(4096, 10).unwrap();
        encoder.encode(4, [field("server", "a").as_ref()], &mut Vec::new());
        let _ = encoder.on_decoder_stream(&stream);
    }
}
