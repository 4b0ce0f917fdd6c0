//! Requests that end before their answer has arrived, by the client's doing: resets of
//! its own ("rapid reset", CVE-2023-44487), and whatever makes the server reset
//! ("MadeYouReset", CVE-2025-8671). Both are counted, forgiven at a rate, and then
//! refused with `H3_EXCESSIVE_LOAD`.

use bytes::Bytes;
use clearway_http3::{Body, Code, Event, Response};
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use crate::common::Setup;
use crate::hostile::forger::*;

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
        http.respond_with(quic, id, &Response::new(200), body)
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
