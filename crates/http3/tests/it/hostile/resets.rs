//! Requests that end early because of the client: it resets them ("rapid reset", CVE-2023-44487),
//! or makes the server reset them ("MadeYouReset", CVE-2025-8671). Both are counted and allowed up
//! to a rate; beyond it the connection is closed with `H3_EXCESSIVE_LOAD`.

use bytes::Bytes;
use clearway_http3::{Body, BodyError, Code, Event, Request, Response};
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use crate::common::Setup;
use crate::hostile::hostile_peer::*;
use crate::memory::{MemoryEndpoint, request as stream};

fn strict() -> Setup {
    let mut setup = Setup::default();
    setup.server.limits.abandoned_burst = 20;
    setup.server.limits.abandoned_per_second = 10;
    setup
}

/// Returns the streams of the requests that the server's application has received.
fn asked(test: &mut HostileTest) -> Vec<StreamId> {
    let events = test.events();
    let requests = events.iter().filter_map(|event| match event {
        Event::Request { stream, .. } => Some(*stream),
        _ => None,
    });
    let mut requests: Vec<StreamId> = requests.collect();
    requests.sort_unstable();
    requests
}

fn post(length: &'static str) -> Vec<u8> {
    headers(&[&request("POST")[..], &[("content-length", length)]].concat())
}

#[test]
fn endless_malformed_requests_are_excessive_load() {
    for (what, bytes) in [
        ("no pseudo-header fields", headers(&[("a", "b")])),
        ("a body that is too short", post("5")),
        ("no header section", frame(RESERVED, b"x")),
    ] {
        let mut test = HostileTest::with(Role::Client, strict());
        for _ in 0..30 {
            test.bidi_with_end(&bytes);
        }
        assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD), "{what}");
    }
}

#[test]
fn endless_malformed_bodies_are_excessive_load() {
    for (what, body) in [
        ("more content than content-length", frame(DATA, b"123456")),
        (
            "malformed trailers",
            [frame(DATA, b"12345"), headers(&[(":path", "/")])].concat(),
        ),
    ] {
        let mut test = HostileTest::with(Role::Client, strict());
        let ids: Vec<StreamId> = (0..30)
            .map(|_| test.bidi_with_end(&[post("5"), body.clone()].concat()))
            .collect();
        test.run();
        let (http, quic) = test.world.server.split();
        for id in ids {
            while let Ok(Body::Data(_)) = http.read_body(quic, id) {}
        }
        assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD), "{what}");
    }
}

#[test]
fn endless_requests_above_the_limit_are_excessive_load() {
    let mut setup = strict();
    setup.server.limits.max_requests = 1;
    let mut test = HostileTest::with(Role::Client, setup);
    for _ in 0..30 {
        test.bidi_with_end(&get());
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn endless_oversized_header_sections_are_excessive_load() {
    let mut setup = strict();
    setup.server.limits.max_field_section = 200;
    let mut test = HostileTest::with(Role::Client, setup);
    let many = [("x-many", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); 10];
    let large = headers(&[&request("GET")[..], &many[..]].concat());
    for _ in 0..30 {
        test.bidi_with_end(&large);
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

/// The server has responded to each request, and nothing was acknowledged, when the client stops
/// it: that is not useful work.
#[test]
fn responses_stopped_in_flight_are_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    let ids: Vec<StreamId> = (0..30).map(|_| test.bidi_with_end(&get())).collect();
    assert_eq!(asked(&mut test), ids);
    for id in ids {
        let (http, quic) = test.world.server.split();
        let body = Bytes::from_static(&[7; 3000]);
        http.respond_with_body(quic, id, &Response::new(200), body)
            .expect("responds");
        let quic = test.world.client.connection();
        quic.stop(id, 0x10c).expect("stops");
    }
    assert_eq!(test.world.server.app.open_requests(), 0);
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
    assert_eq!(test.world.server.app.counters().abandoned, 21);
}

/// Only acknowledged responses make up for abandoned requests.
#[test]
fn completed_requests_make_up_for_abandoned_ones() {
    let mut test = HostileTest::with(Role::Client, strict());
    for _ in 0..100 {
        let id = test.bidi_with_end(&get());
        test.world.run_for(core::time::Duration::from_millis(21));
        let (http, quic) = test.world.server.split();
        http.respond(quic, id, &Response::new(200), true)
            .expect("responds");
        let id = test.bidi(&get());
        test.world.flush();
        test.reset(id, 0x10c);
        test.world.run_for(core::time::Duration::from_millis(21));
        let (http, quic) = test.world.server.split();
        http.cancel(quic, id);
    }
    assert_eq!(test.world.server.app.counters().abandoned, 100);
    assert_eq!(test.world.server.app.closed, None);
    test.assert_serves();
}

/// RESET_STREAM without STOP_SENDING, while the application prepares a response and does not read.
#[test]
fn requests_reset_while_in_progress_are_excessive_load() {
    let mut test = HostileTest::with(Role::Client, strict());
    let ids: Vec<StreamId> = (0..30).map(|_| test.bidi(&get())).collect();
    assert_eq!(asked(&mut test).len(), 30);
    for id in ids {
        test.reset(id, 0x10c);
    }
    assert_eq!(test.close_code(), Some(Code::EXCESSIVE_LOAD));
}

/// A reset that arrives with the request: the application does not see the request.
#[test]
fn request_reset_before_it_was_reported_is_not_reported() {
    let mut test = HostileTest::new(Role::Client);
    let id = test.bidi(&get());
    test.reset(id, 0x10c);
    assert_eq!(asked(&mut test), []);
    test.assert_serves();
}

/// An endpoint over a transport that reports a reset after the data that arrived before it.
fn endpoint_with_data_before_reset(role: Role) -> MemoryEndpoint {
    let mut end = MemoryEndpoint::new(role);
    end.transport.data_before_reset = true;
    end
}

#[test]
fn request_reset_after_its_header_section_is_rejected_and_not_reported() {
    for data in [false, true] {
        let mut server = endpoint_with_data_before_reset(Role::Server);
        server.transport.feed(stream(0), &get());
        if data {
            server.transport.feed(stream(0), &[DATA as u8]);
        }
        server.transport.feed_reset(stream(0), 0x10c);
        assert_eq!(server.process(), [], "{data}");
        let refusal = server.transport.reset_and_stop_codes(stream(0));
        assert_eq!(refusal, (Some(Code::REQUEST_REJECTED.0), None));
        let counters = server.http.counters();
        assert_eq!((counters.abandoned, counters.requests), (1, 0));
        assert_eq!(server.http.open_requests(), 0);
    }
}

/// With content before the reset, the request is reported, and its body ends early.
#[test]
fn request_reset_after_content_is_reported_with_content_and_reset() {
    let mut server = endpoint_with_data_before_reset(Role::Server);
    server.transport.feed(stream(0), &headers(&request("POST")));
    server.transport.feed(stream(0), &frame(DATA, &[7; 5])[..2]);
    server.transport.feed(stream(0), &[7; 2]);
    server.transport.feed_reset(stream(0), 0x10c);
    let events = server.process();
    assert!(matches!(events[0], Event::Request { end: false, .. }));
    let (http, transport) = (&mut server.http, &mut server.transport);
    let body = http.read_body(transport, stream(0));
    assert_eq!(body, Ok(Body::Data(Bytes::from_static(&[7, 7]))));
    let body = http.read_body(transport, stream(0));
    assert_eq!(body, Err(BodyError::Reset(Code(0x10c))));
    assert_eq!(http.counters().abandoned, 1);
}

#[test]
fn response_reset_after_its_header_section_is_reported_with_the_reset() {
    for data in [false, true] {
        let mut client = endpoint_with_data_before_reset(Role::Client);
        let get = Request::get("h", "/");
        let (http, transport) = (&mut client.http, &mut client.transport);
        let id = http.request(transport, &get, true).expect("a request");
        client.transport.feed(id, &ok());
        if data {
            client.transport.feed(id, &frame(DATA, &[7; 5])[..2]);
        }
        client.transport.feed_reset(id, 0x10c);
        let events = client.process();
        assert!(
            matches!(
                events[..],
                [
                    Event::Response { end: false, .. },
                    Event::Reset {
                        code: Code(0x10c),
                        ..
                    }
                ]
            ),
            "{events:?}"
        );
        assert_eq!(client.http.open_requests(), 0);
    }
}
