//! Messages that are malformed or cut short: the stream fails with the exact code,
//! the connection goes on (RFC 9114 §4.1.2).

use clearway_http3::{BodyError, Code, Event, Request};
use clearway_quic::Role;

use crate::common::Setup;
use crate::hostile::forger::*;

/// The stream is refused both ways with this code, nobody hears of a request, and
/// the connection goes on.
fn refused(bytes: &[u8], code: Code, what: &str) {
    let mut duel = Duel::new(Role::Client);
    let id = duel.whole(bytes);
    let (reset, _) = duel.refusal(id);
    assert_eq!(reset, Some(code), "{what}");
    let events = duel.events();
    let heard = events
        .iter()
        .any(|event| matches!(event, Event::Request { .. }));
    assert!(!heard, "{what}: {events:?}");
    assert_eq!(duel.world.server.app.counters().malformed, 1, "{what}");
    assert_eq!(duel.world.server.app.open_requests(), 0, "{what}");
    duel.assert_serves();
}

#[test]
fn malformed_requests() {
    let get = request("GET");
    let with = |more: &[(&'static str, &'static str)]| headers(&[&get[..], more].concat());
    let cases = [
        ("no pseudo-header fields", headers(&[("a", "b")])),
        ("nothing", headers(&[])),
        ("no :path", headers(&get[..3])),
        ("one twice", with(&[(":path", "/")])),
        (
            "one after a field",
            with(&[("a", "b"), (":scheme", "https")]),
        ),
        (
            "an unknown one",
            headers(&[&[(":what", "x")], &get[..]].concat()),
        ),
        (
            "a response's",
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
        ("another host", with(&[("host", "elsewhere")])),
        (
            "two lengths",
            with(&[("content-length", "1"), ("content-length", "2")]),
        ),
        ("no length", with(&[("content-length", "x")])),
        ("an unannounced body", with(&[("content-length", "1")])),
        (
            "extended CONNECT unasked",
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
        refused(&bytes, Code::MESSAGE_ERROR, what);
    }
}

#[test]
fn a_stream_without_a_request() {
    refused(&[], Code::REQUEST_INCOMPLETE, "nothing at all");
    refused(
        &frame(RESERVED, b"x"),
        Code::REQUEST_INCOMPLETE,
        "only grease",
    );
}

#[test]
fn bodies_that_contradict_their_length() {
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
        let mut duel = Duel::new(Role::Client);
        let id = duel.whole(&[post("5"), body].concat());
        let read = duel.read_all(id);
        assert!(
            matches!(read, Err(BodyError::Failed(error)) if error.code == Code::MESSAGE_ERROR),
            "{what}: {read:?}"
        );
        let (reset, _) = duel.refusal(id);
        assert_eq!(reset, Some(Code::MESSAGE_ERROR), "{what}");
        duel.assert_serves();
    }
    let mut duel = Duel::new(Role::Client);
    let exact = [
        post("5"),
        frame(DATA, b"123"),
        frame(RESERVED, b"9"),
        frame(DATA, b"45"),
    ];
    let id = duel.whole(&exact.concat());
    assert_eq!(duel.read_all(id), Ok(b"12345".to_vec()));
}

#[test]
fn malformed_trailers() {
    for trailers in [
        headers(&[(":path", "/")]),
        headers(&[(":status", "200")]),
        headers(&[("content-length", "0")]),
        headers(&[("Upper", "x")]),
    ] {
        let mut duel = Duel::new(Role::Client);
        let id = duel.whole(&[get(), frame(DATA, b"x"), trailers].concat());
        let read = duel.read_all(id);
        assert!(
            matches!(read, Err(BodyError::Failed(error)) if error.code == Code::MESSAGE_ERROR),
            "{read:?}"
        );
        duel.assert_serves();
    }
}

/// What a client makes of a response.
fn answered(request: &Request, bytes: &[u8]) -> (Vec<Event>, Result<Vec<u8>, BodyError>) {
    let mut duel = Duel::new(Role::Server);
    let id = duel.ask(request);
    duel.write(id, bytes);
    duel.finish(id);
    let mut events = duel.events();
    let read = duel.read_all(id);
    events.extend(duel.events());
    assert_eq!(duel.world.client.app.closed, None);
    (events, read)
}

#[test]
fn malformed_responses() {
    let get = Request::get("localhost", "/");
    let head = Request::new("HEAD", "localhost", "/");
    let data = || frame(DATA, b"x");
    let no_content = |status| [headers(&[(":status", status)]), data()].concat();
    let cases: [(&str, &Request, Vec<u8>); 12] = [
        ("no status", &get, headers(&[("a", "b")])),
        ("a request", &get, headers(&request("GET"))),
        ("status 20", &get, headers(&[(":status", "20")])),
        ("status 101", &get, headers(&[(":status", "101")])),
        ("status 99", &get, headers(&[(":status", "099")])),
        (
            "two",
            &get,
            headers(&[(":status", "200"), (":status", "200")]),
        ),
        (
            "te",
            &get,
            headers(&[(":status", "200"), ("te", "trailers")]),
        ),
        ("interim only", &get, headers(&[(":status", "103")])),
        ("nothing", &get, vec![]),
        ("204 with content", &get, no_content("204")),
        ("304 with content", &get, no_content("304")),
        ("HEAD with content", &head, [ok(), data()].concat()),
    ];
    for (what, request, bytes) in cases {
        let (events, read) = answered(request, &bytes);
        let failed = events.iter().any(|event| {
            matches!(event, Event::Failed { error, .. } if error.code == Code::MESSAGE_ERROR)
        });
        let unread = matches!(read, Err(BodyError::Failed(e)) if e.code == Code::MESSAGE_ERROR);
        assert!(failed || unread, "{what}: {events:?}, {read:?}");
    }
}

#[test]
fn a_second_final_response_is_malformed_trailers() {
    let get = Request::get("localhost", "/");
    let (_, read) = answered(&get, &[ok(), ok()].concat());
    assert!(matches!(read, Err(BodyError::Failed(e)) if e.code == Code::MESSAGE_ERROR));
}

#[test]
fn lengths_of_responses_without_content_say_nothing() {
    let head = Request::new("HEAD", "localhost", "/");
    let length = [(":status", "200"), ("content-length", "1000")];
    let (events, _) = answered(&head, &headers(&length));
    let whole = |event: &Event| matches!(event, Event::Response { end: true, .. });
    assert!(events.iter().any(whole), "{events:?}");
    let get = Request::get("localhost", "/");
    let (events, read) = answered(&get, &headers(&length));
    let failed = events
        .iter()
        .any(|event| matches!(event, Event::Failed { .. }));
    assert!(failed, "{events:?}, {read:?}");
}

#[test]
fn endless_interim_responses() {
    let mut duel = Duel::new(Role::Server);
    let id = duel.ask(&Request::get("localhost", "/"));
    for _ in 0..40 {
        duel.write(id, &headers(&[(":status", "103")]));
    }
    let events = duel.events();
    let limit = clearway_http3::Limits::default().max_informational;
    let told = events
        .iter()
        .filter(|e| matches!(e, Event::Informational { .. }));
    assert_eq!(told.count(), usize::from(limit));
    assert!(events.iter().any(|event| {
        matches!(event, Event::Failed { error, .. } if error.code == Code::EXCESSIVE_LOAD)
    }));
    assert_eq!(duel.refusal(id).1, Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn header_sections_beyond_the_limit() {
    let mut setup = Setup::default();
    setup.server.limits.max_field_section = 200;
    setup.client.limits.max_field_section = 200;
    let value: &'static str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    let many: Vec<(&str, &str)> = (0..10).map(|_| ("x-many", value)).collect();
    // Too many bytes to buffer, and too many only once decoded.
    for more in [&many[..], &[("accept", "*/*"); 2]] {
        let mut duel = Duel::with(Role::Client, setup.clone());
        let id = duel.whole(&headers(&[&request("GET")[..], more].concat()));
        let (bytes, ended) = duel.heard(id);
        assert!(ended && !bytes.is_empty(), "an answer");
        assert_eq!(duel.world.server.app.counters().too_large, 1);
        assert_eq!(duel.world.server.app.open_requests(), 0);
    }
    let mut duel = Duel::with(Role::Server, setup);
    let id = duel.ask(&Request::get("a", "/"));
    duel.write(id, &headers(&[&[(":status", "200")], &many[..]].concat()));
    let events = duel.events();
    assert!(events.iter().any(|event| {
        matches!(event, Event::Failed { error, .. } if error.code == Code::MESSAGE_ERROR)
    }));
}

/// A client that reads hears that its response is not whole, also when the end came
/// before it read.
#[test]
fn response_shorter_than_announced_fails_the_read() {
    let get = Request::get("localhost", "/");
    let head = headers(&[(":status", "200"), ("content-length", "5")]);
    for (what, bytes) in [
        ("in one", [head.clone(), frame(DATA, b"123")].concat()),
        (
            "in two",
            [head, frame(DATA, b"1"), frame(DATA, b"23")].concat(),
        ),
    ] {
        let mut duel = Duel::new(Role::Server);
        let id = duel.ask(&get);
        duel.write(id, &bytes);
        duel.run();
        duel.finish(id);
        duel.run();
        let read = duel.read_all(id);
        assert!(
            matches!(read, Err(BodyError::Failed(error)) if error.code == Code::MESSAGE_ERROR),
            "{what}: {read:?}"
        );
    }
    let mut duel = Duel::new(Role::Server);
    let id = duel.ask(&get);
    duel.write(id, &headers(&[(":status", "200"), ("content-length", "5")]));
    duel.run();
    duel.finish(id);
    let read = duel.read_all(id);
    assert!(matches!(read, Err(BodyError::Failed(_))), "{read:?}");
}
