//! RFC 9204 Appendix B, byte for byte.

use super::{field, fields, hex};
use crate::qpack::{Decoded, Decoder, Encoder};

const MAX: u64 = 4096;

/// Compares the table with the one in the appendix.
#[track_caller]
fn assert_table(decoder: &Decoder, size: usize, entries: &[(u64, &str, &str)]) {
    let table = decoder.table();
    assert_eq!(table.size(), size);
    let held: Vec<_> = table.fields();
    let held: Vec<_> = (held.iter())
        .map(|(index, name, value)| {
            (
                *index,
                str::from_utf8(name).unwrap(),
                str::from_utf8(value).unwrap(),
            )
        })
        .collect();
    assert_eq!(held, entries);
}

#[track_caller]
fn assert_instructions(decoder: &mut Decoder, expected: &str) {
    assert_eq!(decoder.instructions().split(), hex(expected));
}

const AUTHORITY: (u64, &str, &str) = (0, ":authority", "www.example.com");
const PATH: (u64, &str, &str) = (1, ":path", "/sample/path");
const CUSTOM: (u64, &str, &str) = (2, "custom-key", "custom-value");

/// A decoder after B.2, whose instructions are checked.
fn after_b2() -> Decoder {
    let mut decoder = Decoder::new(220, 1);
    let bytes =
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468";
    decoder.on_encoder_stream(&hex(bytes)).unwrap();
    assert_table(&decoder, 106, &[AUTHORITY, PATH]);
    let decoded = decoder.decode(4, hex("0381 10 11").into(), MAX).unwrap();
    let expected = [
        field(":authority", "www.example.com"),
        field(":path", "/sample/path"),
    ];
    assert_eq!(fields(decoded), expected);
    assert_instructions(&mut decoder, "84");
    decoder
}

fn after_b3() -> Decoder {
    let mut decoder = after_b2();
    let bytes = "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565";
    decoder.on_encoder_stream(&hex(bytes)).unwrap();
    assert_table(&decoder, 160, &[AUTHORITY, PATH, CUSTOM]);
    assert_instructions(&mut decoder, "01");
    decoder
}

#[test]
fn b1_literal_with_name_reference() {
    let mut decoder = Decoder::new(0, 0);
    let section = hex("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    let decoded = decoder.decode(0, section.into(), MAX).unwrap();
    assert_eq!(fields(decoded), [field(":path", "/index.html")]);
    assert_instructions(&mut decoder, "");
}

#[test]
fn b2_dynamic_table() {
    after_b2();
}

#[test]
fn b3_speculative_insert() {
    after_b3();
}

const SECTION_B4: &str = "0500 80 c1 81";

#[test]
fn b4_stream_cancellation() {
    let mut decoder = after_b3();
    let decoded = decoder.decode(8, hex(SECTION_B4).into(), MAX).unwrap();
    assert_eq!((decoded, decoder.blocked_streams()), (Decoded::Blocked, 1));
    decoder.cancel(8);
    assert_instructions(&mut decoder, "48");
    assert_eq!(decoder.blocked_streams(), 0);
    decoder.on_encoder_stream(&hex("02")).unwrap();
    let copy = (3, AUTHORITY.1, AUTHORITY.2);
    assert_table(&decoder, 217, &[AUTHORITY, PATH, CUSTOM, copy]);
    assert_eq!(decoder.next_unblocked(), None);
    assert_instructions(&mut decoder, "01");
}

#[test]
fn b4_without_the_cancellation() {
    let mut decoder = after_b3();
    let decoded = decoder.decode(8, hex(SECTION_B4).into(), MAX).unwrap();
    assert_eq!(decoded, Decoded::Blocked);
    assert_eq!(decoder.resume(8), Ok(None), "it still waits");
    decoder.on_encoder_stream(&hex("02")).unwrap();
    assert_eq!(
        (decoder.next_unblocked(), decoder.next_unblocked()),
        (Some(8), None)
    );
    let decoded = decoder.resume(8).unwrap().unwrap();
    let expected = [
        field(":authority", "www.example.com"),
        field(":path", "/"),
        field("custom-key", "custom-value"),
    ];
    assert_eq!(fields(decoded), expected);
    assert_eq!(decoder.resume(8), Ok(None), "that was all");
    // The acknowledgment stands for the insertion.
    assert_instructions(&mut decoder, "88");
}

#[test]
fn b5_insert_and_evict() {
    let mut decoder = after_b3();
    decoder.on_encoder_stream(&hex("02")).unwrap();
    let bytes = "810d 6375 7374 6f6d 2d76 616c 7565 32";
    decoder.on_encoder_stream(&hex(bytes)).unwrap();
    let copy = (3, AUTHORITY.1, AUTHORITY.2);
    let last = (4, "custom-key", "custom-value2");
    assert_table(&decoder, 215, &[PATH, CUSTOM, copy, last]);
    assert_instructions(&mut decoder, "02");
}

/// The same bytes, in pieces of every length.
#[test]
fn instructions_may_be_split_anywhere() {
    let all = hex(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468 \
         4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565 02 \
         810d 6375 7374 6f6d 2d76 616c 7565 32",
    );
    let mut whole = Decoder::new(220, 0);
    whole.on_encoder_stream(&all).unwrap();
    for piece in 1..all.len() {
        let mut decoder = Decoder::new(220, 0);
        for bytes in all.chunks(piece) {
            decoder.on_encoder_stream(bytes).unwrap();
        }
        assert_eq!(decoder.table().fields(), whole.table().fields(), "{piece}");
        assert_eq!(decoder.table().size(), 215);
    }
}

/// The encoder's side of B.2 to B.4: how the decoder's three instructions change the unacknowledged
/// sections and the Known Received Count.
#[test]
fn encoder_processes_decoder_instructions() {
    let mut encoder = Encoder::new(220);
    encoder.set_peer_limits(220, 1).unwrap();
    let (mut section, authority) = (Vec::new(), field(":authority", "www.example.com"));
    encoder.encode(4, [authority.as_ref()], &mut section);
    // Base 0, and the entry inserted meanwhile is after it.
    assert_eq!(section, hex("0280 10"));
    assert_eq!(encoder.instructions().split()[..4], hex("3fbd01 c0"));
    assert_eq!(
        (encoder.outstanding(), encoder.known_received_count()),
        (1, 0)
    );
    encoder.on_decoder_stream(&hex("84")).unwrap();
    assert_eq!(
        (encoder.outstanding(), encoder.known_received_count()),
        (0, 1)
    );

    section.clear();
    encoder.encode(
        8,
        [authority.as_ref(), field("accept", "text/css").as_ref()],
        &mut section,
    );
    // Base 1: one entry before it, one after.
    assert_eq!(section, hex("0380 80 10"));
    encoder.on_decoder_stream(&hex("48")).unwrap();
    assert_eq!(
        (encoder.outstanding(), encoder.known_received_count()),
        (0, 1)
    );
    encoder.on_decoder_stream(&hex("01")).unwrap();
    assert_eq!(encoder.known_received_count(), 2);
}
