mod properties;

use super::*;
use crate::wire::cursor::VARINT_MAX;
use crate::wire::stream_id::MAX_STREAM_COUNT;
use crate::wire::{RangeSet, Reader, Writer};

fn only(payload: &[u8]) -> Result<Frame<'_>, TransportError> {
    let mut frames = Frames::new(payload);
    let frame = frames.next().expect("a frame");
    if frame.is_ok() {
        assert!(frames.next().is_none(), "one frame only");
    }
    frame
}

fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = vec![0; frame.size()];
    let mut w = Writer::new(&mut buffer);
    frame.encode(&mut w);
    assert_eq!(w.remaining(), 0, "size() of {frame:?}");
    buffer
}

/// One of each variant; the match in [`variant`] keeps the list complete.
fn specimens() -> Vec<Frame<'static>> {
    let id = StreamId::from_wire(5);
    let directionality = Directionality::Unidirectional;
    vec![
        Frame::Padding { len: 3 },
        Frame::Ping,
        Frame::Ack(Ack::decode(&mut Reader::new(&[9, 1, 1, 2, 0, 3]), false).unwrap()),
        Frame::ResetStream {
            id,
            code: 1,
            final_size: 2,
        },
        Frame::StopSending { id, code: 1 },
        Frame::Crypto {
            offset: 0,
            data: b"hello",
        },
        Frame::NewToken(b"token"),
        Frame::Stream {
            id,
            offset: 70,
            fin: true,
            data: b"data",
        },
        Frame::MaxData(1),
        Frame::MaxStreamData { id, limit: 1 },
        Frame::MaxStreams {
            directionality,
            limit: 1,
        },
        Frame::DataBlocked { limit: 1 },
        Frame::StreamDataBlocked { id, limit: 1 },
        Frame::StreamsBlocked {
            directionality,
            limit: 1,
        },
        Frame::NewConnectionId {
            sequence: 2,
            retire_prior_to: 1,
            cid: ConnectionId::new(b"12345678").unwrap(),
            reset_token: ResetToken([1; 16]),
        },
        Frame::RetireConnectionId { sequence: 1 },
        Frame::PathChallenge([1; 8]),
        Frame::PathResponse([1; 8]),
        Frame::ConnectionClose {
            code: Code::NO_ERROR,
            frame_type: 0,
            reason: b"",
        },
        Frame::ApplicationClose {
            code: 0,
            reason: b"bye",
        },
        Frame::HandshakeDone,
        Frame::Datagram(b"datagram"),
        Frame::AckFrequency {
            sequence: 1,
            ack_eliciting_threshold: 2,
            request_max_ack_delay: 3,
            reordering_threshold: 4,
        },
        Frame::ImmediateAck,
        Frame::ResetStreamAt {
            id,
            code: 1,
            final_size: 3,
            reliable_size: 2,
        },
    ]
}

fn variant(frame: &Frame<'_>) -> usize {
    match frame {
        Frame::Padding { .. } => 0,
        Frame::Ping => 1,
        Frame::Ack(_) => 2,
        Frame::ResetStream { .. } => 3,
        Frame::StopSending { .. } => 4,
        Frame::Crypto { .. } => 5,
        Frame::NewToken(_) => 6,
        Frame::Stream { .. } => 7,
        Frame::MaxData(_) => 8,
        Frame::MaxStreamData { .. } => 9,
        Frame::MaxStreams { .. } => 10,
        Frame::DataBlocked { .. } => 11,
        Frame::StreamDataBlocked { .. } => 12,
        Frame::StreamsBlocked { .. } => 13,
        Frame::NewConnectionId { .. } => 14,
        Frame::RetireConnectionId { .. } => 15,
        Frame::PathChallenge(_) => 16,
        Frame::PathResponse(_) => 17,
        Frame::ConnectionClose { .. } => 18,
        Frame::ApplicationClose { .. } => 19,
        Frame::HandshakeDone => 20,
        Frame::Datagram(_) => 21,
        Frame::AckFrequency { .. } => 22,
        Frame::ImmediateAck => 23,
        Frame::ResetStreamAt { .. } => 24,
    }
}

/// RFC 9000 §12.4 table 3 (RETIRE_CONNECTION_ID by §12.5), RFC 9221 §5 and the
/// drafts for ACK frequency and reliable resets: type, packets, whether ack-eliciting, whether probing.
#[test]
fn every_frame_decodes_and_encodes_as_in_table() {
    let table = [
        (0x00, "IH01", false, true),
        (0x01, "IH01", true, false),
        (0x02, "IH_1", false, false),
        (0x04, "__01", true, false),
        (0x05, "__01", true, false),
        (0x06, "IH_1", true, false),
        (0x07, "___1", true, false),
        (0x09, "__01", true, false),
        (0x10, "__01", true, false),
        (0x11, "__01", true, false),
        (0x13, "__01", true, false),
        (0x14, "__01", true, false),
        (0x15, "__01", true, false),
        (0x17, "__01", true, false),
        (0x18, "__01", true, true),
        (0x19, "___1", true, false),
        (0x1a, "__01", true, true),
        (0x1b, "___1", true, true),
        (0x1c, "IH01", false, false),
        (0x1d, "__01", false, false),
        (0x1e, "___1", true, false),
        (0x30, "__01", true, false),
        (0xaf, "___1", true, false),
        (0x1f, "___1", true, false),
        (0x24, "__01", true, false),
    ];
    let specimens = specimens();
    assert_eq!(specimens.len(), table.len());
    for (at, (frame, (frame_type, packets, eliciting, probing))) in
        specimens.iter().zip(table).enumerate()
    {
        assert_eq!(variant(frame), at);
        assert_eq!(frame.frame_type(), frame_type, "{frame:?}");
        assert_eq!(frame.is_ack_eliciting(), eliciting, "{frame:?}");
        assert_eq!(frame.is_probing(), probing, "{frame:?}");
        let columns = [
            (PacketKind::Initial, 'I'),
            (PacketKind::Handshake, 'H'),
            (PacketKind::ZeroRtt, '0'),
            (PacketKind::OneRtt, '1'),
        ];
        for ((packet, letter), entry) in columns.into_iter().zip(packets.chars()) {
            assert_eq!(
                frame.allowed_in(packet),
                entry == letter,
                "{frame:?} in {packet:?}"
            );
            let servers_only = frame_type == 0x07 || frame_type == 0x1e;
            let from_client = frame.check_allowed(packet, Role::Client);
            assert_eq!(from_client.is_ok(), entry == letter && !servers_only);
            if let Err(error) = from_client {
                assert_eq!(error.code, Code::PROTOCOL_VIOLATION);
                assert_eq!(error.frame, Some(frame_type));
            }
        }
    }
}

/// Cut anywhere, a frame is truncated, or (where it runs to the end of the
/// packet, or is padding) shorter; never another frame, never a panic.
#[test]
fn every_truncated_frame_is_an_error() {
    for frame in specimens() {
        let bytes = written(&frame);
        assert_eq!(only(&bytes), Ok(frame.clone()));
        for cut in 1..bytes.len() {
            match only(&bytes[..cut]) {
                Ok(shorter) => assert!(matches!(shorter, Frame::Padding { .. }), "{shorter:?}"),
                Err(error) => assert_eq!(error.code, Code::FRAME_ENCODING_ERROR),
            }
        }
    }
}

#[test]
fn frames_forbidden_by_rfc_are_errors() {
    let varint = |value: u64| {
        // Not in the shortest form.
        (value | 0xc000_0000_0000_0000).to_be_bytes()
    };
    let with = |head: &[u8], value: u64, tail: &[u8]| [head, &varint(value), tail].concat();
    let cid = |len: u8, retire: u8| {
        [&[0x18, 1, retire, len][..], &vec![7; usize::from(len) + 16]].concat()
    };
    let cases: [(&str, Vec<u8>, Code, u64); 18] = [
        ("unknown type", vec![0x21], Code::FRAME_ENCODING_ERROR, 0x21),
        (
            "unknown long type",
            vec![0x40, 0xae],
            Code::FRAME_ENCODING_ERROR,
            0xae,
        ),
        (
            "long PING",
            vec![0x40, 0x01],
            Code::PROTOCOL_VIOLATION,
            0x01,
        ),
        (
            "four-byte ACK_FREQUENCY",
            vec![0x80, 0, 0, 0xaf],
            Code::PROTOCOL_VIOLATION,
            0xaf,
        ),
        (
            "first ACK range below 0",
            vec![0x02, 5, 0, 0, 6],
            Code::FRAME_ENCODING_ERROR,
            2,
        ),
        (
            "second ACK range below 0",
            vec![0x02, 5, 0, 1, 0, 4, 0],
            Code::FRAME_ENCODING_ERROR,
            2,
        ),
        (
            "its length below 0",
            vec![0x02, 5, 0, 1, 0, 3, 1],
            Code::FRAME_ENCODING_ERROR,
            2,
        ),
        (
            "more ranges than bytes",
            with(&[0x02, 5, 0], VARINT_MAX, &[0]),
            Code::FRAME_ENCODING_ERROR,
            2,
        ),
        (
            "CRYPTO end",
            with(&[0x06], VARINT_MAX, &[1, 0]),
            Code::FRAME_ENCODING_ERROR,
            6,
        ),
        (
            "STREAM end",
            with(&[0x0e, 0], VARINT_MAX, &[1, 0]),
            Code::FRAME_ENCODING_ERROR,
            0x0e,
        ),
        (
            "empty NEW_TOKEN",
            vec![0x07, 0],
            Code::FRAME_ENCODING_ERROR,
            7,
        ),
        (
            "MAX_STREAMS",
            with(&[0x12], MAX_STREAM_COUNT + 1, &[]),
            Code::FRAME_ENCODING_ERROR,
            0x12,
        ),
        (
            "STREAMS_BLOCKED",
            with(&[0x17], MAX_STREAM_COUNT + 1, &[]),
            Code::FRAME_ENCODING_ERROR,
            0x17,
        ),
        ("CID of 0", cid(0, 0), Code::FRAME_ENCODING_ERROR, 0x18),
        ("CID of 21", cid(21, 0), Code::FRAME_ENCODING_ERROR, 0x18),
        (
            "Retire Prior To",
            cid(8, 2),
            Code::FRAME_ENCODING_ERROR,
            0x18,
        ),
        (
            "Requested Max Ack Delay",
            with(&[0x40, 0xaf, 0, 0], MAX_ACK_DELAY_LIMIT_MICROS, &[0]),
            Code::PROTOCOL_VIOLATION,
            0xaf,
        ),
        (
            "length beyond the packet",
            vec![0x31, 2, 0],
            Code::FRAME_ENCODING_ERROR,
            0x31,
        ),
    ];
    for (what, bytes, code, frame) in cases {
        let error = only(&bytes).expect_err(what);
        assert_eq!((error.code, error.frame), (code, Some(frame)), "{what}");
    }
    // The last values that are still fine.
    for (what, bytes) in [
        ("ACK down to 0", vec![0x02, 5, 0, 1, 0, 3, 0]),
        ("CRYPTO end", with(&[0x06], VARINT_MAX - 1, &[1, 0])),
        ("STREAM end", with(&[0x0e, 0], VARINT_MAX, &[0])),
        ("MAX_STREAMS", with(&[0x12], MAX_STREAM_COUNT, &[])),
        ("CID of 1", cid(1, 0)),
        ("CID of 20, Retire Prior To", cid(20, 1)),
        (
            "delay",
            with(&[0x40, 0xaf, 0, 0], MAX_ACK_DELAY_LIMIT_MICROS - 1, &[0]),
        ),
    ] {
        assert!(only(&bytes).is_ok(), "{what}");
    }
    let empty = check_not_empty(&[]).expect_err("no frames");
    assert_eq!(empty.code, Code::PROTOCOL_VIOLATION);
    assert_eq!(check_not_empty(&[0]), Ok(()));
}

#[test]
fn iteration_ends_after_error() {
    let mut frames = Frames::new(&[0x01, 0x21, 0x01]);
    assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
    assert!(frames.next().is_some_and(|frame| frame.is_err()));
    assert_eq!(frames.next(), None);
}

#[test]
fn consecutive_padding_is_one_frame() {
    let frames: Result<Vec<_>, _> = Frames::new(&[0, 0, 0, 1, 0]).collect();
    assert_eq!(
        frames.unwrap(),
        [
            Frame::Padding { len: 3 },
            Frame::Ping,
            Frame::Padding { len: 1 }
        ]
    );
}

#[test]
fn frame_without_length_extends_to_end_of_packet() {
    let id = StreamId::from_wire(4);
    let mut buffer = [0; 64];
    let mut w = Writer::new(&mut buffer);
    data::encode_stream_header(&mut w, id, 9, None, true);
    assert_eq!(w.written(), data::stream_header_size(id, 9, None));
    w.bytes(b"rest");
    let expected = Frame::Stream {
        id,
        offset: 9,
        fin: true,
        data: b"rest",
    };
    assert_eq!(only(w.filled()), Ok(expected));

    let mut w = Writer::new(&mut buffer);
    data::encode_datagram_header(&mut w, None);
    w.bytes(b"rest");
    assert_eq!(only(w.filled()), Ok(Frame::Datagram(b"rest")));
}

#[test]
fn ack_delay_overflow_saturates() {
    let ack = Ack::decode(&mut Reader::new(&[9, 5, 0, 0]), false).unwrap();
    assert_eq!(ack.delay_micros(3), 40);
    assert_eq!(ack.delay_micros(20), 5 << 20);
    assert_eq!(ack.delay_micros(63), u64::MAX);
    assert_eq!(ack.delay_micros(64), u64::MAX);
}

#[test]
fn close_reason_is_truncated_to_fit() {
    let reason = "ä".repeat(60);
    let error = TransportError::new(Code::PROTOCOL_VIOLATION, reason.clone()).in_frame(6);
    let mut buffer = [0; 200];
    for room in 0..buffer.len() {
        let mut w = Writer::new(&mut buffer[..room]);
        if !close::encode_transport(&mut w, &error) {
            assert!(room < 4 && w.written() == 0);
            continue;
        }
        assert!(room < 4 + 1 + reason.len() || w.written() == 4 + 1 + reason.len());
        // Nothing is wasted but a torn character and a longer length field.
        assert!(w.remaining() <= 2 || w.written() == 5 + reason.len());
        let Ok(Frame::ConnectionClose {
            code,
            frame_type,
            reason: read,
        }) = only(w.filled())
        else {
            panic!("a close");
        };
        assert_eq!((code, frame_type), (Code::PROTOCOL_VIOLATION, 6));
        assert!(reason.starts_with(core::str::from_utf8(read).unwrap()));
    }
}

#[test]
fn padding_of_any_length_is_one_frame() {
    for len in 1..200 {
        for more in [&[][..], &[0x01]] {
            let bytes = [&vec![0; len], more].concat();
            let frames: Result<Vec<_>, _> = Frames::new(&bytes).collect();
            let frames = frames.unwrap();
            assert_eq!(frames[0], Frame::Padding { len });
            assert_eq!(frames.len(), 1 + more.len());
        }
    }
}
