//! Violations of flow control, stream limits and final sizes (RFC 9000 §4).

use clearway_quic::Role;
use clearway_quic::connection::Config;
use clearway_quic::error::Code;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::Frame;
use clearway_quic::wire::frame::kind;

use crate::hostile::pair::{HostilePair, bytes, client_bidi, fields};

fn stream(id: StreamId, offset: u64, fin: bool, data: &[u8]) -> Vec<u8> {
    bytes(&Frame::Stream {
        id,
        offset,
        fin,
        data,
    })
}

#[test]
fn data_over_stream_limit_is_flow_control_error() {
    let mut pair = HostilePair::new(Role::Client);
    let window = Config::default().streams.stream_window;
    pair.say(&stream(client_bidi(0), window - 1, false, b"x"));
    assert_eq!(pair.victim().error(), None, "the last byte allowed");
    pair.say(&stream(client_bidi(0), window, false, b"x"));
    pair.closed_with(
        Code::FLOW_CONTROL_ERROR,
        kind::STREAM,
        "more stream data than MAX_STREAM_DATA allows",
    );
}

#[test]
fn data_over_connection_limit_is_flow_control_error() {
    let mut pair = HostilePair::new(Role::Client);
    let streams = Config::default().streams;
    let each = streams.stream_window;
    for i in 0..streams.connection_window / each {
        pair.say(&stream(client_bidi(i), each - 1, false, b"x"));
        assert_eq!(pair.victim().error(), None);
    }
    pair.say(&stream(client_bidi(50), 0, false, b"x"));
    pair.closed_with(
        Code::FLOW_CONTROL_ERROR,
        kind::STREAM,
        "more data than MAX_DATA allows",
    );
}

#[test]
fn reset_with_final_size_over_limit_is_flow_control_error() {
    let mut pair = HostilePair::new(Role::Client);
    let window = Config::default().streams.stream_window;
    pair.say(&fields(&[kind::RESET_STREAM, 0, 1, window + 1]));
    pair.closed_with(
        Code::FLOW_CONTROL_ERROR,
        kind::RESET_STREAM,
        "more stream data than MAX_STREAM_DATA allows",
    );
}

#[test]
fn streams_over_limit_are_stream_limit_error() {
    for (directionality, allowed) in [
        (Directionality::Bidirectional, 100),
        (Directionality::Unidirectional, 100),
    ] {
        let mut pair = HostilePair::new(Role::Client);
        let id = |index| StreamId::new(Role::Client, directionality, index);
        pair.say(&stream(id(allowed - 1), 0, false, b"x"));
        assert_eq!(pair.victim().error(), None);
        pair.say(&stream(id(allowed), 0, false, b"x"));
        pair.closed_with(
            Code::STREAM_LIMIT_ERROR,
            kind::STREAM,
            "more streams than MAX_STREAMS allows",
        );
    }
}

#[test]
fn data_past_final_size_is_final_size_error() {
    let mut pair = HostilePair::new(Role::Client);
    pair.say(&stream(client_bidi(0), 0, true, b"all"));
    pair.say(&stream(client_bidi(0), 3, false, b"more"));
    pair.closed_with(
        Code::FINAL_SIZE_ERROR,
        kind::STREAM,
        "stream data past the final size",
    );
}

#[test]
fn changed_final_size_is_final_size_error() {
    let mut pair = HostilePair::new(Role::Client);
    pair.say(&stream(client_bidi(0), 10, true, b""));
    pair.say(&fields(&[kind::RESET_STREAM, 0, 1, 9]));
    pair.closed_with(
        Code::FINAL_SIZE_ERROR,
        kind::RESET_STREAM,
        "the final size changed",
    );

    let mut pair = HostilePair::new(Role::Client);
    pair.say(&stream(client_bidi(0), 0, false, b"0123456789"));
    pair.say(&stream(client_bidi(0), 0, true, b"01234"));
    pair.closed_with(
        Code::FINAL_SIZE_ERROR,
        kind::STREAM | kind::STREAM_FIN,
        "final size below data received",
    );
}

#[test]
fn stream_count_over_2_to_the_60_is_frame_encoding_error() {
    for (kind, frame) in [
        (kind::MAX_STREAMS_BIDI, kind::MAX_STREAMS_BIDI),
        (kind::MAX_STREAMS_UNI, kind::MAX_STREAMS_UNI),
        (kind::STREAMS_BLOCKED_BIDI, kind::STREAMS_BLOCKED_BIDI),
        (kind::STREAMS_BLOCKED_UNI, kind::STREAMS_BLOCKED_UNI),
    ] {
        let mut pair = HostilePair::new(Role::Client);
        pair.say(&fields(&[kind, 1 << 60]));
        assert_eq!(pair.victim().error(), None, "2^60 itself is allowed");
        pair.say(&fields(&[kind, (1 << 60) + 1]));
        pair.closed_with(Code::FRAME_ENCODING_ERROR, frame, "stream count above 2^60");
    }
}

#[test]
fn frame_for_unopened_local_stream_is_stream_state_error() {
    let ours = |index| StreamId::new(Role::Server, Directionality::Bidirectional, index);
    for (payload, frame) in [
        (stream(ours(0), 0, false, b"x"), kind::STREAM),
        (
            fields(&[kind::RESET_STREAM, ours(0).as_u64(), 1, 0]),
            kind::RESET_STREAM,
        ),
        (
            fields(&[kind::STOP_SENDING, ours(0).as_u64(), 1]),
            kind::STOP_SENDING,
        ),
        (
            fields(&[kind::MAX_STREAM_DATA, ours(0).as_u64(), 9]),
            kind::MAX_STREAM_DATA,
        ),
        (
            fields(&[kind::STREAM_DATA_BLOCKED, ours(0).as_u64(), 9]),
            kind::STREAM_DATA_BLOCKED,
        ),
    ] {
        let mut pair = HostilePair::new(Role::Client);
        pair.say(&payload);
        pair.closed_with(
            Code::STREAM_STATE_ERROR,
            frame,
            "frame for a locally initiated stream that was not opened",
        );
    }
}

#[test]
fn frame_for_missing_stream_half_is_stream_state_error() {
    let theirs = StreamId::new(Role::Client, Directionality::Unidirectional, 0).as_u64();
    for (payload, frame) in [
        (fields(&[kind::STOP_SENDING, theirs, 1]), kind::STOP_SENDING),
        (
            fields(&[kind::MAX_STREAM_DATA, theirs, 9]),
            kind::MAX_STREAM_DATA,
        ),
    ] {
        let mut pair = HostilePair::new(Role::Client);
        pair.say(&payload);
        pair.closed_with(
            Code::STREAM_STATE_ERROR,
            frame,
            "MAX_STREAM_DATA or STOP_SENDING for a receive-only stream",
        );
    }
    let mut pair = HostilePair::new(Role::Client);
    let ours = pair
        .victim()
        .open(Directionality::Unidirectional)
        .expect("credit");
    pair.say(&stream(ours, 0, false, b"x"));
    pair.closed_with(
        Code::STREAM_STATE_ERROR,
        kind::STREAM,
        "STREAM, RESET_STREAM or STREAM_DATA_BLOCKED for a send-only stream",
    );
}
