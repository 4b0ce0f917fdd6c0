//! How requests and connections end.

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{BodyError, Code, Event, Response, SendError};

use clearway_quic::Role;

use crate::common::{TestApplication, pattern};
use crate::exchange::pair::{Pair, get, post, respond};

#[test]
fn cancelled_request_stops_the_server_and_keeps_the_connection() {
    let mut pair = Pair::connected();
    let id = pair.request(&get(), true);
    let started = |client: &mut TestApplication| !client.log(id).body.is_empty();
    pair.serve(
        "the body to begin",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, (0..200).map(|_| pattern(50_000)).collect(), None);
        },
        |client, _| started(client),
    );
    let (http, quic) = pair.world.client.split();
    http.cancel(quic, id);
    assert_eq!(http.read_body(quic, id), Err(BodyError::Unknown));
    pair.serve(
        "the server to hear",
        |_, _, _, _| {},
        |_, server| server.log(id).stopped == Some(Code::REQUEST_CANCELLED),
    );
    assert_eq!(pair.world.server.app.counters().abandoned, 1);
    let next = pair.request(&get(), true);
    let log = pair.run_until_response(next, |world, _, id, _| {
        respond(world, id, &Response::new(200), "still here");
    });
    assert_eq!(log.body, b"still here");
    pair.assert_idle();
}

#[test]
fn response_reset_by_the_server_is_reported_to_the_client() {
    let mut pair = Pair::connected();
    let id = pair.request(&get(), true);
    pair.serve(
        "the reset",
        |world, _, id, _| {
            let (http, quic) = world.server.split();
            let response = Response::new(200).with("content-length", "10");
            http.respond(quic, id, &response, false).expect("responds");
            let mut half = Bytes::from_static(b"12345");
            http.write_body(quic, id, &mut half).expect("writes");
            http.reset(quic, id, Code::INTERNAL_ERROR);
        },
        |client, _| client.log(id).reset.is_some(),
    );
    assert_eq!(pair.client.log(id).reset, Some(Code::INTERNAL_ERROR));
    pair.assert_idle();
}

#[test]
fn early_response_stops_the_request_body() {
    let mut pair = Pair::connected();
    let id = pair.request(&post(), false);
    pair.client
        .write(id, (0..400).map(|_| pattern(50_000)).collect(), None);
    let log = pair.run_until_response(id, |world, _, id, _| {
        let (http, quic) = world.server.split();
        http.stop(quic, id, Code::NO_ERROR);
        http.respond_with_body(quic, id, &Response::new(413), Bytes::from_static(b"no"))
            .expect("responds");
    });
    assert_eq!(log.body, b"no");
    assert_eq!(log.stopped, Some(Code::NO_ERROR));
    pair.assert_idle();
}

#[test]
fn graceful_shutdown_completes_open_requests() {
    let mut pair = Pair::connected();
    let first = pair.request(&get(), true);
    pair.serve(
        "the first to arrive",
        |_, _, _, _| {},
        |_, server| server.log(first).request.is_some(),
    );
    let (http, quic) = pair.world.server.split();
    http.shutdown(quic);
    // In flight while the server announces the shutdown.
    let second = pair.request(&get(), true);
    pair.serve(
        "the second to arrive",
        |_, _, _, _| {},
        |_, server| server.log(second).request.is_some(),
    );
    pair.serve(
        "the warning",
        |_, _, _, _| {},
        |client, _| client.others.contains(&Event::GoAway { id: (1 << 62) - 4 }),
    );
    let (http, quic) = pair.world.client.split();
    assert_eq!(http.request(quic, &get(), true), Err(SendError::GoingAway));
    let (http, quic) = pair.world.server.split();
    http.shutdown(quic);
    http.shutdown(quic);
    for id in [first, second] {
        respond(&mut pair.world, id, &Response::new(200), "bye");
    }
    pair.serve(
        "the answers",
        |_, _, _, _| {},
        |client, _| {
            client.others.contains(&Event::GoAway { id: 8 })
                && client.log(first).ended
                && client.log(second).ended
        },
    );
    assert!(pair.world.server.app.is_going_away());
    pair.assert_idle();
}

#[test]
fn request_after_the_final_goaway_is_rejected() {
    let mut pair = Pair::connected();
    let (http, quic) = pair.world.server.split();
    http.shutdown(quic);
    http.shutdown(quic);
    let id = pair.request(&get(), true);
    pair.serve(
        "the rejection",
        |_, _, _, _| panic!("served"),
        |client, _| client.log(id).rejected,
    );
    pair.assert_idle();
    assert_eq!(pair.world.server.app.counters().rejected, 1);
}

#[test]
fn idle_connection_takes_little_memory() {
    let mut pair = Pair::connected();
    let id = pair.request(&get(), true);
    pair.run_until_response(id, |world, _, id, _| {
        respond(world, id, &Response::new(200), "x");
    });
    pair.assert_idle();
    // Longer than a connection waits before it is considered idle.
    pair.world.run_for(Duration::from_secs(3));
    for role in [Role::Client, Role::Server] {
        let (http, quic) = pair.world.host(role).split();
        assert!(quic.take_rested());
        http.release();
        let size = size_of::<clearway_http3::Connection>();
        assert!(size <= 1_216, "{size} bytes");
        assert!(http.memory() <= 1_450, "{} bytes", http.memory());
        // Six streams are open; keys and TLS are not in this.
        let transport = quic.memory_usage();
        // Of each, a reset may say what is still to be delivered.
        assert!(transport.streams <= 1_370, "{transport:?}");
        let both = http.memory() + transport.total();
        assert!(both <= 9_216, "{both} bytes: {transport:?}");
    }
}
