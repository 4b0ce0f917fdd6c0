//! What follows a header section is checked as soon as it arrives, whether or not the application
//! reads it: a frame that is not allowed closes the connection with the exact code, even after the
//! response (RFC 9114 §4.1, §7.1, §7.2).

use bytes::Bytes;
use clearway_http3::{BodyError, Code, Event, Response};
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use crate::common::Setup;
use crate::hostile::hostile_peer::*;

/// Frames that are not allowed after the header section of a request, and the expected codes.
fn invalid_after_headers() -> Vec<(&'static str, Vec<u8>, Code)> {
    let unexpected = Code::FRAME_UNEXPECTED;
    let trailers = || headers(&[("a", "b")]);
    let mut cases: Vec<(&'static str, Vec<u8>, Code)> = [
        ("CANCEL_PUSH", CANCEL_PUSH),
        ("SETTINGS", SETTINGS),
        ("PUSH_PROMISE", PUSH_PROMISE),
        ("GOAWAY", GOAWAY),
        ("MAX_PUSH_ID", MAX_PUSH_ID),
        ("PRIORITY_UPDATE", PRIORITY_UPDATE),
        ("PRIORITY_UPDATE of a push", PRIORITY_UPDATE_PUSH),
        ("HTTP/2's PRIORITY", 0x02),
        ("HTTP/2's PING", 0x06),
        ("HTTP/2's WINDOW_UPDATE", 0x08),
        ("HTTP/2's CONTINUATION", 0x09),
    ]
    .into_iter()
    .map(|(what, kind)| (what, frame(kind, &[0]), unexpected))
    .collect();
    cases.extend([
        (
            "a third HEADERS",
            [trailers(), trailers()].concat(),
            unexpected,
        ),
        (
            "DATA after trailers",
            [trailers(), frame(DATA, b"x")].concat(),
            unexpected,
        ),
        (
            "PRIORITY after an unknown frame",
            [frame(RESERVED, b"x"), frame(0x02, &[0])].concat(),
            unexpected,
        ),
        (
            "trailers that cannot be decoded",
            frame(HEADERS, &[0, 0, 0xff, 0x40]),
            Code::QPACK_DECOMPRESSION_FAILED,
        ),
        (
            "trailers that refer to a missing dynamic table entry",
            frame(HEADERS, &[0, 0, 0x80]),
            Code::QPACK_DECOMPRESSION_FAILED,
        ),
    ]);
    cases
}

/// Frames that are incomplete at the end of the stream.
fn truncated_frames() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("half a type", vec![0x40]),
        ("a type without a length", vec![0x01]),
        ("half of the trailers", headers(&[("a", "b")])[..3].to_vec()),
        (
            "half an unknown frame",
            frame(RESERVED, b"four")[..3].to_vec(),
        ),
    ]
}

/// Sends a response from the server's application, which does not read the rest of the request.
fn respond(test: &mut HostileTest, id: StreamId) {
    let (http, quic) = test.world.server.split();
    let body = Bytes::from_static(b"fine");
    http.respond_with_body(quic, id, &Response::new(200), body)
        .expect("responds");
    http.stop(quic, id, Code::NO_ERROR);
}

#[test]
fn invalid_frame_after_unread_headers_closes_the_connection() {
    for (what, bytes, code) in invalid_after_headers() {
        let mut test = HostileTest::new(Role::Client);
        test.bidi(&[get(), bytes].concat());
        assert_eq!(test.close_code(), Some(code), "{what}");
    }
}

#[test]
fn invalid_frame_that_arrives_later_closes_the_connection_without_a_read() {
    for (what, bytes, code) in invalid_after_headers() {
        let mut test = HostileTest::new(Role::Client);
        let id = test.bidi(&get());
        test.run();
        test.write(id, &bytes);
        assert_eq!(test.close_code(), Some(code), "{what}");
    }
}

#[test]
fn invalid_frame_after_the_response_closes_the_connection() {
    for (what, bytes, code) in invalid_after_headers() {
        let mut test = HostileTest::new(Role::Client);
        let id = test.bidi(&get());
        test.run();
        respond(&mut test, id);
        test.run();
        assert_eq!(test.world.server.app.open_requests(), 0, "{what}");
        test.write(id, &bytes);
        assert_eq!(test.close_code(), Some(code), "{what}");
    }
}

#[test]
fn invalid_frame_after_an_unread_body_closes_the_connection_once_it_is_discarded() {
    for (what, bytes, code) in invalid_after_headers() {
        let mut test = HostileTest::new(Role::Client);
        let body = frame(DATA, &[7; 3000]);
        let id = test.bidi(&[get(), body.clone(), body, bytes].concat());
        test.run();
        respond(&mut test, id);
        assert_eq!(test.close_code(), Some(code), "{what}");
    }
}

#[test]
fn end_within_a_frame_closes_the_connection_without_a_read() {
    for (what, bytes) in truncated_frames() {
        let error = Some(Code::FRAME_ERROR);
        let mut test = HostileTest::new(Role::Client);
        test.bidi_with_end(&[get(), bytes.clone()].concat());
        assert_eq!(test.close_code(), error, "{what}");
        let mut test = HostileTest::new(Role::Client);
        let id = test.bidi(&get());
        test.run();
        respond(&mut test, id);
        test.write(id, &bytes);
        test.finish(id);
        assert_eq!(test.close_code(), error, "{what}, after the response");
    }
    let mut test = HostileTest::new(Role::Client);
    let half = &frame(DATA, b"four")[..4];
    let id = test.bidi_with_end(&[&get()[..], half].concat());
    test.run();
    respond(&mut test, id);
    let error = Some(Code::FRAME_ERROR);
    assert_eq!(test.close_code(), error, "half a DATA frame, discarded");
}

#[test]
fn invalid_frame_in_a_response_closes_the_connection_without_a_read() {
    for (what, bytes, code) in invalid_after_headers() {
        let is_push = bytes[0] == PUSH_PROMISE as u8;
        let code = if is_push { Code::ID_ERROR } else { code };
        let mut test = HostileTest::new(Role::Server);
        let id = test.send_request(&clearway_http3::Request::get("localhost", "/"));
        test.write(id, &[ok(), bytes].concat());
        assert_eq!(test.close_code(), Some(code), "{what}");
    }
}

/// The rest of a request is discarded to its end, without STOP_SENDING and at no cost for the
/// client.
#[test]
fn rest_of_an_answered_request_is_discarded() {
    let mut test = HostileTest::new(Role::Client);
    let id = test.bidi(&get());
    test.run();
    respond(&mut test, id);
    let rest = [
        frame(DATA, &[7; 1000]),
        frame(RESERVED, b"x"),
        headers(&[("a", "b")]),
    ];
    test.write(id, &rest.concat());
    test.finish(id);
    let (reset, stopped) = test.reset_and_stop_codes(id);
    assert_eq!((reset, stopped), (None, None));
    assert_eq!(test.world.server.app.open_requests(), 0);
    test.assert_serves();
}

/// An unwanted body is stopped before much of it was sent.
#[test]
fn body_of_an_answered_request_is_stopped() {
    let mut test = HostileTest::new(Role::Client);
    let mut post = headers(&request("POST"));
    post.extend(frame(DATA, &[])[..1].iter());
    post.extend(varints(&[10 << 20]));
    let id = test.bidi(&post);
    test.run();
    respond(&mut test, id);
    let mut written = 0;
    while test.reset_and_stop_codes(id).1.is_none() {
        assert!(written < 1 << 20, "never stopped");
        let quic = test.world.client.connection();
        written += quic.write(id, &[0; 8192]).unwrap_or(0);
    }
    assert!(written <= 128 << 10, "stopped after {written} bytes");
    let memory = test.world.server.app.memory();
    assert!(memory < 16 << 10, "{memory} bytes");
    test.assert_serves();
}

/// A reset is reported at once, even if there is unread data, and an incomplete body never seems
/// complete.
#[test]
fn reset_is_reported_without_a_read() {
    for body in [vec![], frame(DATA, &[7; 3000]), vec![0, 10, 1]] {
        let mut test = HostileTest::new(Role::Client);
        let id = test.bidi(&[get(), body].concat());
        test.run();
        let requests = test.events();
        assert!(
            matches!(requests[..], [.., Event::Request { .. }]),
            "{requests:?}"
        );
        test.reset(id, 0x10c);
        let events = test.events();
        let code = Code::REQUEST_CANCELLED;
        assert!(
            events.contains(&Event::Reset { stream: id, code }),
            "{events:?}"
        );
        assert_eq!(test.world.server.app.counters().abandoned, 1);
        for _ in 0..2 {
            assert_eq!(test.read_all(id), Err(BodyError::Reset(code)));
        }
    }
}

/// Back-pressure works: data after an unread body is not read from the transport.
#[test]
fn unread_body_is_limited_by_flow_control() {
    let mut test = HostileTest::with(Role::Client, Setup::default());
    let mut post = headers(&request("POST"));
    post.extend(frame(DATA, &[])[..1].iter());
    post.extend(varints(&[100 << 20]));
    let id = test.bidi(&post);
    let mut written = 0;
    for _ in 0..400 {
        let quic = test.world.client.connection();
        written += quic.write(id, &[0; 16_384]).unwrap_or(0);
        test.world.run_for(core::time::Duration::from_millis(5));
    }
    let memory = test.world.server.app.memory();
    assert!(memory < 16 << 10, "{memory} bytes");
    let window = Setup::default().server_quic.streams.stream_window;
    let limit = usize::try_from(window).expect("a size") + (64 << 10);
    assert!(written < limit, "{written} bytes taken");
}
