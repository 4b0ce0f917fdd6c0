//! Malformed and incomplete messages: the stream fails with the exact code, and the connection
//! stays open (RFC 9114 §4.1.2).

use clearway_http3::{BodyError, Code, Event, Request};
use clearway_quic::Role;

use crate::common::Setup;
use crate::hostile::hostile_peer::*;

/// Checks that the stream is reset with this code, that no request is reported, and that the
/// connection stays open.
fn assert_rejected(bytes: &[u8], code: Code, what: &str) {
    let mut test = HostileTest::new(Role::Client);
    let id = test.bidi_with_end(bytes);
    let (reset, _) = test.reset_and_stop_codes(id);
    assert_eq!(reset, Some(code), "{what}");
    let events = test.events();
    let reported = events
        .iter()
        .any(|event| matches!(event, Event::Request { .. }));
    assert!(!reported, "{what}: {events:?}");
    assert_eq!(test.world.server.app.counters().malformed, 1, "{what}");
    assert_eq!(test.world.server.app.open_requests(), 0, "{what}");
    test.assert_serves();
}

#[test]
fn malformed_requests_are_reset_with_message_error() {
    let get = request("GET");
    let with = |more: &[(&'static str, &'static str)]| headers(&[&get[..], more].concat());
    let cases = [
        ("no pseudo-header fields", headers(&[("a", "b")])),
        ("no fields", headers(&[])),
        ("no :path", headers(&get[..3])),
        ("a duplicate pseudo-header field", with(&[(":path", "/")])),
        (
            "a pseudo-header field after a field",
            with(&[("a", "b"), (":scheme", "https")]),
        ),
        (
            "an undefined pseudo-header field",
            headers(&[&[(":what", "x")], &get[..]].concat()),
        ),
        (
            "a pseudo-header field of responses",
            headers(&[&[(":status", "200")], &get[..]].concat()),
        ),
        ("an uppercase name", with(&[("Accept", "x")])),
        ("connection", with(&[("connection", "close")])),
        (
            "transfer-encoding",
            with(&[("transfer-encoding", "chunked")]),
        ),
        ("te", with(&[("te", "gzip")])),
        ("a line break", with(&[("a", "b\r\nc: d")])),
        ("a host field that differs", with(&[("host", "elsewhere")])),
        (
            "two lengths",
            with(&[("content-length", "1"), ("content-length", "2")]),
        ),
        (
            "a length twice",
            with(&[("content-length", "0"), ("content-length", "0")]),
        ),
        (
            "an invalid content-length",
            with(&[("content-length", "x")]),
        ),
        (
            "a content-length without a body",
            with(&[("content-length", "1")]),
        ),
        (
            "extended CONNECT that was not offered",
            headers(&[
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":authority", "localhost"),
                (":path", "/"),
            ]),
        ),
    ];
    for (what, bytes) in cases {
        assert_rejected(&bytes, Code::MESSAGE_ERROR, what);
    }
}

#[test]
fn stream_without_a_request_is_request_incomplete() {
    assert_rejected(&[], Code::REQUEST_INCOMPLETE, "no frame");
    assert_rejected(
        &frame(RESERVED, b"x"),
        Code::REQUEST_INCOMPLETE,
        "only a reserved frame",
    );
}

#[test]
fn body_that_contradicts_content_length_fails_the_read() {
    let post = |length: &'static str| {
        headers(&[&request("POST")[..], &[("content-length", length)]].concat())
    };
    for (what, body) in [
        ("longer", frame(DATA, b"123456")),
        (
            "longer in two",
            [frame(DATA, b"123"), frame(DATA, b"456")].concat(),
        ),
        ("shorter", frame(DATA, b"1234")),
        (
            "shorter, then trailers",
            [frame(DATA, b"1234"), headers(&[("a", "b")])].concat(),
        ),
    ] {
        let mut test = HostileTest::new(Role::Client);
        let id = test.bidi_with_end(&[post("5"), body].concat());
        let read = test.read_all(id);
        assert!(
            matches!(read, Err(BodyError::Failed(error)) if error.code == Code::MESSAGE_ERROR),
            "{what}: {read:?}"
        );
        let (reset, _) = test.reset_and_stop_codes(id);
        assert_eq!(reset, Some(Code::MESSAGE_ERROR), "{what}");
        test.assert_serves();
    }
    let mut test = HostileTest::new(Role::Client);
    let exact = [
        post("5"),
        frame(DATA, b"123"),
        frame(RESERVED, b"9"),
        frame(DATA, b"45"),
    ];
    let id = test.bidi_with_end(&exact.concat());
    assert_eq!(test.read_all(id), Ok(b"12345".to_vec()));
}

#[test]
fn malformed_trailers_fail_the_read() {
    for trailers in [
        headers(&[(":path", "/")]),
        headers(&[(":status", "200")]),
        headers(&[("content-length", "0")]),
        headers(&[("Upper", "x")]),
    ] {
        let mut test = HostileTest::new(Role::Client);
        let id = test.bidi_with_end(&[get(), frame(DATA, b"x"), trailers].concat());
        let read = test.read_all(id);
        assert!(
            matches!(read, Err(BodyError::Failed(error)) if error.code == Code::MESSAGE_ERROR),
            "{read:?}"
        );
        test.assert_serves();
    }
}

/// Sends `bytes` in response to a request, and returns what the client reports and reads.
fn response_outcome(request: &Request, bytes: &[u8]) -> (Vec<Event>, Result<Vec<u8>, BodyError>) {
    let mut test = HostileTest::new(Role::Server);
    let id = test.send_request(request);
    test.write(id, bytes);
    test.finish(id);
    let mut events = test.events();
    let read = test.read_all(id);
    events.extend(test.events());
    assert_eq!(test.world.client.app.closed, None);
    (events, read)
}

#[test]
fn malformed_responses_fail_with_message_error() {
    let get = Request::get("localhost", "/");
    let head = Request::new("HEAD", "localhost", "/");
    let data = || frame(DATA, b"x");
    let no_content = |status| [headers(&[(":status", status)]), data()].concat();
    let twice = [("content-length", "1"), ("content-length", "1")];
    let twice = headers(&[&[(":status", "200")], &twice[..]].concat());
    let cases: [(&str, &Request, Vec<u8>); 13] = [
        ("a length twice", &get, [twice, data()].concat()),
        ("no status", &get, headers(&[("a", "b")])),
        ("a request", &get, headers(&request("GET"))),
        ("status 20", &get, headers(&[(":status", "20")])),
        ("status 101", &get, headers(&[(":status", "101")])),
        ("status 99", &get, headers(&[(":status", "099")])),
        (
            "two :status fields",
            &get,
            headers(&[(":status", "200"), (":status", "200")]),
        ),
        (
            "te",
            &get,
            headers(&[(":status", "200"), ("te", "trailers")]),
        ),
        ("interim only", &get, headers(&[(":status", "103")])),
        ("no fields", &get, vec![]),
        ("204 with content", &get, no_content("204")),
        ("304 with content", &get, no_content("304")),
        ("HEAD with content", &head, [ok(), data()].concat()),
    ];
    for (what, request, bytes) in cases {
        let (events, read) = response_outcome(request, &bytes);
        let failed = events.iter().any(|event| {
            matches!(event, Event::Failed { error, .. } if error.code == Code::MESSAGE_ERROR)
        });
        let unread = matches!(read, Err(BodyError::Failed(e)) if e.code == Code::MESSAGE_ERROR);
        assert!(failed || unread, "{what}: {events:?}, {read:?}");
    }
}

#[test]
fn second_final_response_is_treated_as_malformed_trailers() {
    let get = Request::get("localhost", "/");
    let (_, read) = response_outcome(&get, &[ok(), ok()].concat());
    assert!(matches!(read, Err(BodyError::Failed(e)) if e.code == Code::MESSAGE_ERROR));
}

#[test]
fn content_length_of_a_head_response_is_ignored() {
    let head = Request::new("HEAD", "localhost", "/");
    let length = [(":status", "200"), ("content-length", "1000")];
    let (events, _) = response_outcome(&head, &headers(&length));
    let whole = |event: &Event| matches!(event, Event::Response { end: true, .. });
    assert!(events.iter().any(whole), "{events:?}");
    let get = Request::get("localhost", "/");
    let (events, read) = response_outcome(&get, &headers(&length));
    let failed = events
        .iter()
        .any(|event| matches!(event, Event::Failed { .. }));
    assert!(failed, "{events:?}, {read:?}");
}

#[test]
fn endless_interim_responses_fail_the_request() {
    let mut test = HostileTest::new(Role::Server);
    let id = test.send_request(&Request::get("localhost", "/"));
    for _ in 0..40 {
        test.write(id, &headers(&[(":status", "103")]));
    }
    let events = test.events();
    let limit = clearway_http3::Limits::default().max_informational;
    let told = events
        .iter()
        .filter(|e| matches!(e, Event::Informational { .. }));
    assert_eq!(told.count(), usize::from(limit));
    assert!(events.iter().any(|event| {
        matches!(event, Event::Failed { error, .. } if error.code == Code::EXCESSIVE_LOAD)
    }));
    assert_eq!(test.reset_and_stop_codes(id).1, Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn oversized_request_is_answered_with_431_and_oversized_response_fails() {
    let mut setup = Setup::default();
    setup.server.limits.max_field_section = 200;
    setup.client.limits.max_field_section = 200;
    let value: &'static str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    let many: Vec<(&str, &str)> = (0..10).map(|_| ("x-many", value)).collect();
    // Too many bytes to buffer, and too many only once decoded.
    for more in [&many[..], &[("accept", "*/*"); 2]] {
        let mut test = HostileTest::with(Role::Client, setup.clone());
        let id = test.bidi_with_end(&headers(&[&request("GET")[..], more].concat()));
        let (bytes, ended) = test.received(id);
        assert!(ended && !bytes.is_empty(), "an answer");
        assert_eq!(test.world.server.app.counters().too_large, 1);
        assert_eq!(test.world.server.app.open_requests(), 0);
    }
    let mut test = HostileTest::with(Role::Server, setup);
    let id = test.send_request(&Request::get("a", "/"));
    test.write(id, &headers(&[&[(":status", "200")], &many[..]].concat()));
    let events = test.events();
    assert!(events.iter().any(|event| {
        matches!(event, Event::Failed { error, .. } if error.code == Code::MESSAGE_ERROR)
    }));
}

/// A read fails if the response is incomplete, even if the end arrived before the read.
#[test]
fn response_shorter_than_content_length_fails_the_read() {
    let get = Request::get("localhost", "/");
    let head = headers(&[(":status", "200"), ("content-length", "5")]);
    for (what, bytes) in [
        ("in one", [head.clone(), frame(DATA, b"123")].concat()),
        (
            "in two",
            [head, frame(DATA, b"1"), frame(DATA, b"23")].concat(),
        ),
    ] {
        let mut test = HostileTest::new(Role::Server);
        let id = test.send_request(&get);
        test.write(id, &bytes);
        test.run();
        test.finish(id);
        test.run();
        let read = test.read_all(id);
        assert!(
            matches!(read, Err(BodyError::Failed(error)) if error.code == Code::MESSAGE_ERROR),
            "{what}: {read:?}"
        );
    }
    let mut test = HostileTest::new(Role::Server);
    let id = test.send_request(&get);
    test.write(id, &headers(&[(":status", "200"), ("content-length", "5")]));
    test.run();
    test.finish(id);
    let read = test.read_all(id);
    assert!(matches!(read, Err(BodyError::Failed(_))), "{read:?}");
}
