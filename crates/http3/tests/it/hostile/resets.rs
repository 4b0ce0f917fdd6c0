//! Requests that end before their answer has arrived, by the client's doing: resets of
//! its own ("rapid reset", CVE-2023-44487), and whatever makes the server reset
//! ("MadeYouReset", CVE-2025-8671). Both are counted, forgiven at a rate, and then
//! refused with `H3_EXCESSIVE_LOAD`.

use bytes::Bytes;
use clearway_http3::{Body, BodyError, Code, Event, Request, Response};
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use crate::common::Setup;
use crate::hostile::forger::*;
use crate::memory::{End, request as stream};

fn strict() -> Setup {
    let mut setup = Setup::default();
    setup.server.limits.abandoned_burst = 20;
    setup.server.limits.abandoned_per_second = 10;
    setup
}

/// The requests that the server's application hears of.
fn asked(duel: &mut Duel) -> Vec<StreamId> {
    let events = duel.events();
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
fn malformed_requests_are_charged() {
    for (what, bytes) in [
        ("no pseudo-header fields", headers(&[("a", "b")])),
        ("an end too early", post("5")),
        ("no header section", frame(RESERVED, b"x")),
    ] {
        let mut duel = Duel::with(Role::Client, strict());
        for _ in 0..30 {
            duel.whole(&bytes);
        }
        assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD), "{what}");
    }
}

#[test]
fn bodies_found_malformed_while_read_are_charged() {
    for (what, body) in [
        ("more than announced", frame(DATA, b"123456")),
        (
            "malformed trailers",
            [frame(DATA, b"12345"), headers(&[(":path", "/")])].concat(),
        ),
    ] {
        let mut duel = Duel::with(Role::Client, strict());
        let ids: Vec<StreamId> = (0..30)
            .map(|_| duel.whole(&[post("5"), body.clone()].concat()))
            .collect();
        duel.run();
        let (http, quic) = duel.world.server.split();
        for id in ids {
            while let Ok(Body::Data(_)) = http.read_body(quic, id) {}
        }
        assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD), "{what}");
    }
}

#[test]
fn requests_beyond_the_limit_are_charged() {
    let mut setup = strict();
    setup.server.limits.max_requests = 1;
    let mut duel = Duel::with(Role::Client, setup);
    for _ in 0..30 {
        duel.whole(&get());
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn header_sections_beyond_the_limit_are_charged() {
    let mut setup = strict();
    setup.server.limits.max_field_section = 200;
    let mut duel = Duel::with(Role::Client, setup);
    let many = [("x-many", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); 10];
    let large = headers(&[&request("GET")[..], &many[..]].concat());
    for _ in 0..30 {
        duel.whole(&large);
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

/// The server has answered and let go of each request, and nothing of it was
/// acknowledged, when the client stops it: that is no useful work.
#[test]
fn answers_stopped_on_their_way_are_charged() {
    let mut duel = Duel::with(Role::Client, strict());
    let ids: Vec<StreamId> = (0..30).map(|_| duel.whole(&get())).collect();
    assert_eq!(asked(&mut duel), ids);
    for id in ids {
        let (http, quic) = duel.world.server.split();
        let body = Bytes::from_static(&[7; 3000]);
        http.respond_with_body(quic, id, &Response::new(200), body)
            .expect("responds");
        let quic = duel.world.client.quic();
        quic.stop(id, 0x10c).expect("stops");
    }
    assert_eq!(duel.world.server.http().open_requests(), 0);
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
    assert_eq!(duel.world.server.http().counters().abandoned, 21);
}

/// Only what was delivered makes up for what was abandoned.
#[test]
fn answered_requests_make_up_for_as_many_abandoned_ones() {
    let mut duel = Duel::with(Role::Client, strict());
    for _ in 0..100 {
        let id = duel.whole(&get());
        duel.world.run_for(core::time::Duration::from_millis(21));
        let (http, quic) = duel.world.server.split();
        http.respond(quic, id, &Response::new(200), true)
            .expect("responds");
        let id = duel.bidi(&get());
        duel.world.flush();
        duel.reset(id, 0x10c);
        duel.world.run_for(core::time::Duration::from_millis(21));
        let (http, quic) = duel.world.server.split();
        http.cancel(quic, id);
    }
    assert_eq!(duel.world.server.http().counters().abandoned, 100);
    assert_eq!(duel.world.server.closed, None);
    duel.assert_serves();
}

/// RESET_STREAM alone, without STOP_SENDING, while the application works on an answer
/// and does not read.
#[test]
fn requests_reset_while_they_are_answered_are_charged() {
    let mut duel = Duel::with(Role::Client, strict());
    let ids: Vec<StreamId> = (0..30).map(|_| duel.bidi(&get())).collect();
    assert_eq!(asked(&mut duel).len(), 30);
    for id in ids {
        duel.reset(id, 0x10c);
    }
    assert_eq!(duel.closed(), Some(Code::EXCESSIVE_LOAD));
}

/// A reset that comes with the request: the application never hears of it.
#[test]
fn request_reset_before_it_was_told_is_not_told() {
    let mut duel = Duel::new(Role::Client);
    let id = duel.bidi(&get());
    duel.reset(id, 0x10c);
    assert_eq!(asked(&mut duel), []);
    duel.assert_serves();
}

/// An end over a transport that tells of a reset behind what had arrived before it.
fn end_told_of_data_first(role: Role) -> End {
    let mut end = End::new(role);
    end.wire.data_before_reset = true;
    end
}

#[test]
fn request_that_is_reset_behind_its_header_section_is_rejected_unseen() {
    for data in [false, true] {
        let mut server = end_told_of_data_first(Role::Server);
        server.wire.feed(stream(0), &get());
        if data {
            server.wire.feed(stream(0), &[DATA as u8]);
        }
        server.wire.feed_reset(stream(0), 0x10c);
        assert_eq!(server.turn(), [], "{data}");
        let refusal = server.wire.reset_and_stop_codes(stream(0));
        assert_eq!(refusal, (Some(Code::REQUEST_REJECTED.0), None));
        let counters = server.http.counters();
        assert_eq!((counters.abandoned, counters.requests), (1, 0));
        assert_eq!(server.http.open_requests(), 0);
    }
}

/// With content before the reset the request is one, whose body ends early.
#[test]
fn request_that_is_reset_behind_content_is_told_of_both() {
    let mut server = end_told_of_data_first(Role::Server);
    server.wire.feed(stream(0), &headers(&request("POST")));
    server.wire.feed(stream(0), &frame(DATA, &[7; 5])[..2]);
    server.wire.feed(stream(0), &[7; 2]);
    server.wire.feed_reset(stream(0), 0x10c);
    let heard = server.turn();
    assert!(matches!(heard[0], Event::Request { end: false, .. }));
    let (http, wire) = (&mut server.http, &mut server.wire);
    let body = http.read_body(wire, stream(0));
    assert_eq!(body, Ok(Body::Data(Bytes::from_static(&[7, 7]))));
    let body = http.read_body(wire, stream(0));
    assert_eq!(body, Err(BodyError::Reset(Code(0x10c))));
    assert_eq!(http.counters().abandoned, 1);
}

#[test]
fn response_that_is_reset_behind_its_header_section_is_told_with_the_reset() {
    for data in [false, true] {
        let mut client = end_told_of_data_first(Role::Client);
        let get = Request::get("h", "/");
        let (http, wire) = (&mut client.http, &mut client.wire);
        let id = http.request(wire, &get, true).expect("a request");
        client.wire.feed(id, &ok());
        if data {
            client.wire.feed(id, &frame(DATA, &[7; 5])[..2]);
        }
        client.wire.feed_reset(id, 0x10c);
        let heard = client.turn();
        assert!(
            matches!(
                heard[..],
                [
                    Event::Response { end: false, .. },
                    Event::Reset {
                        code: Code(0x10c),
                        ..
                    }
                ]
            ),
            "{heard:?}"
        );
        assert_eq!(client.http.open_requests(), 0);
    }
}
