//! How exchanges and connections end.

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{BodyError, Code, Event, Response, SendError};

use crate::common::{Peer, pattern};
use crate::exchange::talk::{Talk, get, post, respond};

#[test]
fn a_client_that_loses_interest() {
    let mut talk = Talk::calm();
    let id = talk.request(&get(), true);
    let started = |client: &mut Peer| !client.heard(id).body.is_empty();
    talk.serve(
        "the body to begin",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, (0..200).map(|_| pattern(50_000)).collect(), None);
        },
        |client, _| started(client),
    );
    let (http, quic) = talk.world.client.split();
    http.cancel(quic, id);
    assert_eq!(http.read_body(quic, id), Err(BodyError::Unknown));
    talk.serve(
        "the server to hear",
        |_, _, _, _| {},
        |_, server| server.heard(id).stopped == Some(Code::REQUEST_CANCELLED),
    );
    assert_eq!(talk.world.server.http().counters().abandoned, 1);
    let next = talk.request(&get(), true);
    let heard = talk.answer(next, |world, _, id, _| {
        respond(world, id, &Response::new(200), "still here");
    });
    assert_eq!(heard.body, b"still here");
    talk.settle();
}

#[test]
fn a_server_that_breaks_off() {
    let mut talk = Talk::calm();
    let id = talk.request(&get(), true);
    talk.serve(
        "the reset",
        |world, _, id, _| {
            let (http, quic) = world.server.split();
            let response = Response::new(200).with("content-length", "10");
            http.respond(quic, id, &response, false).expect("responds");
            let mut half = Bytes::from_static(b"12345");
            http.write_body(quic, id, &mut half).expect("writes");
            http.reset(quic, id, Code::INTERNAL_ERROR);
        },
        |client, _| client.heard(id).reset.is_some(),
    );
    assert_eq!(talk.client.heard(id).reset, Some(Code::INTERNAL_ERROR));
    talk.settle();
}

#[test]
fn an_early_response_needs_no_more_of_the_request() {
    let mut talk = Talk::calm();
    let id = talk.request(&post(), false);
    talk.client
        .write(id, (0..400).map(|_| pattern(50_000)).collect(), None);
    let heard = talk.answer(id, |world, _, id, _| {
        let (http, quic) = world.server.split();
        http.stop(quic, id, Code::NO_ERROR);
        http.respond_with(quic, id, &Response::new(413), Bytes::from_static(b"no"))
            .expect("responds");
    });
    assert_eq!(heard.body, b"no");
    assert_eq!(heard.stopped, Some(Code::NO_ERROR));
    talk.settle();
}

#[test]
fn a_graceful_shutdown_loses_nothing() {
    let mut talk = Talk::calm();
    let first = talk.request(&get(), true);
    talk.serve(
        "the first to arrive",
        |_, _, _, _| {},
        |_, server| server.heard(first).request.is_some(),
    );
    let (http, quic) = talk.world.server.split();
    http.shutdown(quic);
    // On its way while the server says that it will end.
    let second = talk.request(&get(), true);
    talk.serve(
        "the second to arrive",
        |_, _, _, _| {},
        |_, server| server.heard(second).request.is_some(),
    );
    talk.serve(
        "the warning",
        |_, _, _, _| {},
        |client, _| client.others.contains(&Event::GoAway { id: (1 << 62) - 4 }),
    );
    let (http, quic) = talk.world.client.split();
    assert_eq!(http.request(quic, &get(), true), Err(SendError::GoingAway));
    let (http, quic) = talk.world.server.split();
    http.shutdown(quic);
    http.shutdown(quic);
    for id in [first, second] {
        respond(&mut talk.world, id, &Response::new(200), "bye");
    }
    talk.serve(
        "the answers",
        |_, _, _, _| {},
        |client, _| {
            client.others.contains(&Event::GoAway { id: 8 })
                && client.heard(first).ended
                && client.heard(second).ended
        },
    );
    assert!(talk.world.server.http().is_going_away());
    talk.settle();
}

#[test]
fn requests_after_the_last_word_can_be_repeated_elsewhere() {
    let mut talk = Talk::calm();
    let (http, quic) = talk.world.server.split();
    http.shutdown(quic);
    http.shutdown(quic);
    let id = talk.request(&get(), true);
    talk.serve(
        "the rejection",
        |_, _, _, _| panic!("served"),
        |client, _| client.heard(id).rejected,
    );
    talk.settle();
    assert_eq!(talk.world.server.http().counters().rejected, 1);
}

#[test]
fn an_idle_connection_is_small() {
    let mut talk = Talk::calm();
    let id = talk.request(&get(), true);
    talk.answer(id, |world, _, id, _| {
        respond(world, id, &Response::new(200), "x");
    });
    talk.settle();
    // Longer than a connection waits before it rests.
    talk.world.run_for(Duration::from_secs(3));
    for end in [&mut talk.world.client, &mut talk.world.server] {
        let (http, quic) = end.split();
        assert!(quic.take_rested());
        http.release();
        let size = size_of::<clearway_http3::Connection>();
        assert!(size <= 1_192, "{size} bytes");
        assert!(http.memory() <= 1_450, "{} bytes", http.memory());
        // Six streams are open; keys and TLS are not in this.
        let transport = quic.memory_usage();
        assert!(transport.streams <= 1_330, "{transport:?}");
        let both = http.memory() + transport.total();
        assert!(both <= 9_100, "{both} bytes: {transport:?}");
    }
}
