//! WebTransport sessions and streams of a hostile peer.

use std::sync::Arc;

use clearway_http3::frame::put_varint;
use clearway_http3::testing::MemoryTransport;
use clearway_http3::webtransport::{CloseSession, SessionEnd, SessionLimits};
use clearway_http3::{Code, Connection, Event, Response};
use clearway_quic::connection::{ConnectionError, Event as QuicEvent};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use super::hostile_peer::{DATA, HostileTest, frame, get, headers, varints};
use crate::common::Setup;

const CLOSE: u64 = 0x2843;
const DRAIN: u64 = 0x78ae;

fn session_request() -> Vec<u8> {
    headers(&[
        (":method", "CONNECT"),
        (":protocol", "webtransport"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/"),
    ])
}

fn capsule(kind: u64, value: &[u8]) -> Vec<u8> {
    let mut out = varints(&[kind, value.len() as u64]);
    out.extend_from_slice(value);
    frame(DATA, &out)
}

/// A hostile client with a session that the server has accepted.
fn accepted() -> (HostileTest, StreamId) {
    let mut test = HostileTest::with(Role::Client, Setup::for_sessions());
    let session = test.bidi(&session_request());
    test.run();
    let (http, quic) = test.world.server.split();
    http.respond(quic, session, &Response::new(200), false)
        .expect("responds");
    test.run();
    (test, session)
}

fn ended(test: &mut HostileTest) -> Vec<SessionEnd> {
    let events = test.events().into_iter();
    let ended = events.filter_map(|event| match event {
        Event::SessionEnded { end, .. } => Some(end),
        _ => None,
    });
    ended.collect()
}

#[test]
fn stream_for_a_session_that_is_no_request_stream_is_an_id_error() {
    for session in [1, 2, 3, 7] {
        for (kind, bidi) in [(0x41, true), (0x54, false)] {
            let (mut test, _) = accepted();
            let header = varints(&[kind, session]);
            if bidi {
                test.bidi(&header);
            } else {
                test.uni(&header);
            }
            assert_eq!(test.close_code(), Some(Code::ID_ERROR), "{session}");
        }
    }
}

#[test]
fn stream_for_a_session_beyond_the_stream_limit_is_an_id_error() {
    let (mut test, _) = accepted();
    test.uni(&varints(&[0x54, (1 << 62) - 4]));
    assert_eq!(test.close_code(), Some(Code::ID_ERROR));
}

#[test]
fn stream_for_a_request_that_is_no_session_is_rejected_as_gone() {
    let (mut test, _) = accepted();
    let request = test.bidi(&get());
    test.run();
    let stream = test.bidi(&varints(&[0x41, request.as_u64()]));
    let gone = Some(Code::WEBTRANSPORT_SESSION_GONE);
    assert_eq!(test.reset_and_stop_codes(stream), (gone, gone));
    let uni = test.uni(&varints(&[0x54, request.as_u64()]));
    assert_eq!(test.reset_and_stop_codes(uni), (None, gone));
    test.assert_serves();
}

#[test]
fn stream_for_an_ended_session_is_rejected_as_gone() {
    let (mut test, session) = accepted();
    test.write(session, &capsule(CLOSE, &[0, 0, 0, 9, b'x']));
    test.finish(session);
    assert_eq!(ended(&mut test).len(), 1);
    let stream = test.bidi(&varints(&[0x41, session.as_u64()]));
    let gone = Some(Code::WEBTRANSPORT_SESSION_GONE);
    assert_eq!(test.reset_and_stop_codes(stream), (gone, gone));
}

#[test]
fn streams_for_sessions_that_never_come_are_bounded() {
    let mut test = HostileTest::with(Role::Client, Setup::for_sessions());
    // A request stream far ahead, whose request is never sent.
    let session = 4 * 90;
    let streams: Vec<StreamId> = (0..60)
        .map(|_| test.bidi(&varints(&[0x41, session])))
        .collect();
    test.run();
    let rejected = test.world.server.app.counters().session_streams_rejected;
    assert_eq!(rejected, 60 - 32);
    let full = Some(Code::WEBTRANSPORT_BUFFERED_STREAM_REJECTED);
    let codes = streams.iter().map(|&id| test.reset_and_stop_codes(id));
    let full = codes.filter(|codes| *codes == (full, full)).count();
    assert_eq!(full as u64, rejected);
    assert!(test.world.server.app.memory() < 64 << 10);
    test.assert_serves();
}

#[test]
fn endless_rejected_streams_are_excessive_load() {
    let (mut test, session) = accepted();
    test.write(session, &capsule(CLOSE, &[0; 4]));
    test.run();
    for _ in 0..2_000 {
        if test.world.client.app.closed.is_some() {
            break;
        }
        let quic = test.world.client.connection();
        let Some(id) = quic.open(clearway_quic::stream::Directionality::Unidirectional) else {
            test.run();
            continue;
        };
        let _ = quic.write(id, &varints(&[0x54, session.as_u64()]));
        let _ = quic.finish(id);
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn headers_that_never_end_hold_little_memory() {
    let (mut test, _) = accepted();
    let before = test.world.server.app.memory();
    for _ in 0..90 {
        test.uni(&[0x40, 0x54, 0xc0, 0, 0]);
    }
    for _ in 0..90 {
        test.bidi(&[0x40, 0x41, 0xc0]);
    }
    test.run();
    let grown = test.world.server.app.memory() - before;
    assert!(grown < 90 * 1_000, "{grown}");
    assert!(test.world.server.app.closed.is_none());
}

#[test]
fn stream_that_ends_within_its_header_is_rejected() {
    let (mut test, _) = accepted();
    let id = test.uni(&[0x40, 0x54, 0xc0]);
    test.finish(id);
    test.run();
    assert_eq!(test.world.server.app.counters().useless_frames, 1);
    let bidi = test.bidi_with_end(&[0x40, 0x41, 0xc0]);
    test.run();
    let _ = bidi;
    assert_eq!(test.close_code(), Some(Code::FRAME_ERROR));
}

#[test]
fn session_stream_frame_behind_another_frame_is_a_frame_error() {
    let (mut test, session) = accepted();
    let mut bytes = frame(0x21, b"grease");
    bytes.extend(varints(&[0x41, session.as_u64()]));
    test.bidi(&bytes);
    assert_eq!(test.close_code(), Some(Code::FRAME_ERROR));
}

#[test]
fn capsule_of_any_announced_length_is_skipped_or_malformed() {
    for (kind, malformed) in [(CLOSE, true), (DRAIN, true), (0x1234, false), (0, false)] {
        let (mut test, session) = accepted();
        let mut header = Vec::new();
        put_varint(&mut header, kind);
        put_varint(&mut header, (1 << 62) - 1);
        test.write(session, &frame(DATA, &header));
        for _ in 0..20 {
            if !malformed {
                test.write(session, &frame(DATA, &[0; 10_000]));
                test.run();
            }
        }
        let memory = test.world.server.app.memory();
        assert!(memory < 40 << 10, "{memory}");
        let expected = malformed.then_some(Code::MESSAGE_ERROR);
        let codes = test.reset_and_stop_codes(session);
        assert_eq!(codes, (expected, expected), "{kind:#x}");
        assert_eq!(ended(&mut test).len(), usize::from(malformed));
        if !malformed {
            let skipped = test.world.server.app.counters().skipped;
            assert_eq!(skipped, 200_000);
        }
    }
}

#[test]
fn malformed_close_resets_the_session() {
    let long = [b'x'; 1_029];
    for value in [&[0_u8; 3][..], &[0, 0, 0, 0, 0xff], &long] {
        let (mut test, session) = accepted();
        test.write(session, &capsule(CLOSE, value));
        let malformed = Some(Code::MESSAGE_ERROR);
        let codes = test.reset_and_stop_codes(session);
        assert_eq!(codes, (malformed, malformed));
        assert!(matches!(ended(&mut test)[..], [SessionEnd::Failed(_)]));
        test.assert_serves();
    }
}

/// RFC 9297 §3.3: a truncated capsule makes the message malformed, whatever its type.
#[test]
fn stream_that_ends_within_a_capsule_is_malformed() {
    let close = capsule(CLOSE, &[0, 0, 0, 1]);
    for truncated in [
        &frame(DATA, &[0x40])[..],
        &frame(DATA, &[0x68, 0x43, 4, 0, 0]),
        &frame(DATA, &[0x21, 100, 0]),
        &frame(DATA, &[0x21]),
    ] {
        for stopped in [false, true] {
            let (mut test, session) = accepted();
            if stopped {
                // The server has no half left of which it could be told.
                let quic = test.world.client.connection();
                quic.stop(session, 0).expect("stops");
                test.run();
            }
            test.write(session, truncated);
            test.finish(session);
            let ended = ended(&mut test);
            assert!(matches!(ended[..], [SessionEnd::Failed(_)]), "{ended:?}");
            if !stopped {
                let (reset, _) = test.reset_and_stop_codes(session);
                assert_eq!(reset, Some(Code::MESSAGE_ERROR));
            }
            test.assert_serves();
        }
    }
    let (mut test, session) = accepted();
    test.write(session, &close);
    test.finish(session);
    assert!(matches!(ended(&mut test)[..], [SessionEnd::Closed(_)]));
}

#[test]
fn data_after_the_close_is_malformed() {
    for at_once in [true, false] {
        let (mut test, session) = accepted();
        let close = capsule(CLOSE, &[0, 0, 0, 1]);
        let more = frame(DATA, b"more");
        if at_once {
            test.write(session, &[close, more].concat());
        } else {
            test.write(session, &close);
            test.run();
            test.write(session, &more);
        }
        let (_, stopped) = test.reset_and_stop_codes(session);
        assert_eq!(stopped, Some(Code::MESSAGE_ERROR), "at once: {at_once}");
        assert!(matches!(ended(&mut test)[..], [SessionEnd::Closed(_)]));
    }
}

#[test]
fn endless_drain_capsules_are_excessive_load() {
    let (mut test, session) = accepted();
    let drains: Vec<u8> = (0..2_000).flat_map(|_| capsule(DRAIN, &[])).collect();
    for _ in 0..20 {
        if test.world.client.app.closed.is_some() {
            break;
        }
        let quic = test.world.client.connection();
        let _ = quic.write(session, &drains);
        test.run();
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn server_stream_without_a_session_is_a_connection_error_for_a_client() {
    let mut test = HostileTest::with(Role::Server, Setup::for_sessions());
    test.bidi(&varints(&[0x41, 0]));
    assert_eq!(test.close_code(), Some(Code::STREAM_CREATION_ERROR));
}

#[test]
fn half_open_sessions_are_limited_and_a_reset_frees_their_place() {
    let mut test = HostileTest::with(Role::Client, Setup::for_sessions());
    let mut sessions: Vec<StreamId> = (0..6).map(|_| test.bidi(&session_request())).collect();
    let rejected = Some(Code::REQUEST_REJECTED);
    sessions.retain(|&id| match test.reset_and_stop_codes(id) {
        (None, None) => true,
        codes => {
            assert_eq!(codes, (rejected, rejected));
            false
        }
    });
    assert_eq!(sessions.len(), 4);
    for &id in &sessions {
        test.reset(id, Code::REQUEST_CANCELLED.0);
        test.run();
        let (http, quic) = test.world.server.split();
        http.cancel(quic, id);
    }
    assert_eq!(ended(&mut test).len(), 4);
    let again = test.bidi(&session_request());
    assert_eq!(test.reset_and_stop_codes(again), (None, None));
}

#[test]
fn datagram_for_a_plain_connect_resets_it() {
    let mut test = HostileTest::with(Role::Client, Setup::for_sessions());
    let connect = headers(&[(":method", "CONNECT"), (":authority", "example.org:443")]);
    let id = test.bidi(&connect);
    test.run();
    let (http, quic) = test.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    let datagram = clearway_http3::datagram::encode(id, b"x");
    let quic = test.world.client.connection();
    quic.send_datagram(datagram).expect("sends");
    test.run();
    let (http, quic) = test.world.server.split();
    assert_eq!(http.recv_datagram(quic), None);
    let error = Some(Code::DATAGRAM_ERROR);
    assert_eq!(test.reset_and_stop_codes(id), (error, error));
}

const MAX_DATA: u64 = 0x190b_4d3d;
const MAX_STREAMS_BIDI: u64 = 0x190b_4d3f;
const DATA_BLOCKED: u64 = 0x190b_4d41;

/// A session with flow control: the client announces 1,000 bytes and 10 streams of each kind, the
/// server 512 KiB and 5 streams.
fn with_flow_control() -> (HostileTest, StreamId) {
    let mut setup = Setup::for_sessions();
    setup.client.session_limits = SessionLimits {
        data: 1_000,
        bidi_streams: 10,
        uni_streams: 10,
    };
    setup.server.session_limits.uni_streams = 5;
    setup.server.session_limits.bidi_streams = 5;
    let mut test = HostileTest::announcing(Role::Client, setup);
    let session = test.bidi(&session_request());
    test.run();
    let (http, quic) = test.world.server.split();
    http.respond(quic, session, &Response::new(200), false)
        .expect("responds");
    test.run();
    (test, session)
}

fn assert_violation(test: &mut HostileTest, session: StreamId) {
    let ended = ended(test);
    let [SessionEnd::Failed(error)] = &ended[..] else {
        panic!("{ended:?}");
    };
    let code = Code::WEBTRANSPORT_FLOW_CONTROL_ERROR;
    assert_eq!(error.code, code);
    assert_eq!(test.reset_and_stop_codes(session), (Some(code), Some(code)));
    test.assert_serves();
}

#[test]
fn limit_of_a_session_that_does_not_rise_ends_it() {
    for (kind, value) in [(MAX_DATA, 1_000), (MAX_DATA, 999), (MAX_STREAMS_BIDI, 10)] {
        let (mut test, session) = with_flow_control();
        test.write(session, &capsule(kind, &varints(&[value])));
        assert_violation(&mut test, session);
    }
}

#[test]
fn more_streams_than_a_session_allows_end_it() {
    let (mut test, session) = with_flow_control();
    for _ in 0..5 {
        let id = test.uni(&varints(&[0x54, session.as_u64()]));
        test.finish(id);
    }
    assert!(ended(&mut test).is_empty());
    // The application has read one to its end, but not let go of it.
    let (http, quic) = test.world.server.split();
    let stream = http.accept_session_stream(session, Directionality::Unidirectional);
    let stream = stream.expect("a stream").id;
    assert_eq!(quic.read_chunk(stream, 10), Ok(None));
    test.run();
    test.uni(&varints(&[0x54, session.as_u64()]));
    assert_violation(&mut test, session);
}

#[test]
fn more_data_than_a_session_allows_ends_it() {
    let (mut test, session) = with_flow_control();
    let header = varints(&[0x54, session.as_u64()]);
    for _ in 0..2 {
        let mut data = header.clone();
        data.resize(header.len() + (256 << 10), 0);
        test.uni(&data);
        test.run();
    }
    assert!(ended(&mut test).is_empty(), "512 KiB are allowed");
    let mut data = header;
    data.push(0);
    test.uni(&data);
    assert_violation(&mut test, session);
}

#[test]
fn final_size_counts_for_the_limit_of_a_session() {
    let (mut test, session) = with_flow_control();
    let mut data = varints(&[0x54, session.as_u64()]);
    data.resize(data.len() + (500 << 10), 0);
    let id = test.uni(&data);
    test.run();
    let quic = test.world.client.connection();
    quic.reset(id, 7).expect("resets");
    test.run();
    let mut data = varints(&[0x54, session.as_u64()]);
    data.resize(data.len() + (13 << 10), 0);
    test.uni(&data);
    // What was reset counts as read, so that there is credit again.
    assert!(ended(&mut test).is_empty());
}

#[test]
fn repeated_capsules_without_effect_are_excessive_load() {
    for (kind, step) in [(DATA_BLOCKED, 0), (MAX_DATA, 1), (MAX_STREAMS_BIDI, 1)] {
        let (mut test, session) = with_flow_control();
        for n in 0..20_000_u64 {
            if test.world.client.app.closed.is_some() {
                break;
            }
            let value = varints(&[2_000 + n * step]);
            test.write(session, &capsule(kind, &value));
            if n % 1_000 == 0 {
                test.run();
            }
        }
        assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD), "{kind:#x}");
    }
}

#[test]
fn capsules_of_flow_control_are_ignored_without_it() {
    let (mut test, session) = accepted();
    for kind in MAX_DATA..=0x190b_4d44 {
        test.write(session, &capsule(kind, &[]));
        test.write(session, &capsule(kind, &[0]));
    }
    assert!(ended(&mut test).is_empty());
    test.assert_serves();
}

/// The end of the connection is told before what arrived together with it.
#[test]
fn close_that_arrives_with_the_end_of_the_connection_is_reported() {
    let mut config = Setup::for_sessions().server;
    config.grease = false;
    let mut http = Connection::new(Role::Server, Arc::new(config), 1);
    let mut quic = MemoryTransport::new(Role::Server);
    http.start(&mut quic);
    let control = quic.peer_stream(Directionality::Unidirectional, 0);
    quic.feed(control, &[0, 4, 0]);
    let session = quic.peer_stream(Directionality::Bidirectional, 0);
    quic.feed(session, &session_request());
    while let Some(event) = quic.poll_event() {
        http.on_quic_event(&mut quic, &event);
    }
    let response = Response::new(200);
    http.respond(&mut quic, session, &response, false)
        .expect("responds");
    http.flush(Instant::ZERO, &mut quic);
    quic.feed(session, &capsule(CLOSE, &[0, 0, 0, 7, b'b', b'y', b'e']));
    let closed = ConnectionError::PeerApplication {
        code: Code::NO_ERROR.0,
        reason: Vec::new(),
    };
    http.on_quic_event(&mut quic, &QuicEvent::Closed(closed));
    let events = std::iter::from_fn(|| http.poll_event());
    let ended = events.filter_map(|event| match event {
        Event::SessionEnded { end, .. } => Some(end),
        _ => None,
    });
    let close = CloseSession::new(7, "bye");
    assert_eq!(ended.collect::<Vec<_>>(), [SessionEnd::Closed(close)]);
}
