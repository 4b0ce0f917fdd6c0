//! WebTransport sessions between two ends of ours.

use std::time::Duration;

use clearway_http3::webtransport::{CloseSession, SessionEnd, code_from_wire, code_to_wire};
use clearway_http3::{Code, Event, Request, Response, SendError};
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};

use crate::common::{Setup, World};

const BOTH: [Directionality; 2] = [
    Directionality::Unidirectional,
    Directionality::Bidirectional,
];

fn session_request() -> Request {
    Request {
        protocol: "webtransport".into(),
        path: "/chat".into(),
        scheme: "https".into(),
        ..Request::connect("localhost")
    }
}

fn ask(world: &mut World) -> StreamId {
    let (http, quic) = world.client.split();
    http.request(quic, &session_request(), false)
        .expect("a request")
}

fn run(world: &mut World) {
    world.run_for(Duration::from_millis(200));
}

fn respond(world: &mut World, id: StreamId, status: u16) {
    let (http, quic) = world.server.split();
    http.respond(quic, id, &Response::new(status), false)
        .expect("responds");
}

/// Opens a session between two ends.
fn session() -> (World, StreamId) {
    let mut world = World::connected(Setup::for_sessions());
    let id = ask(&mut world);
    run(&mut world);
    respond(&mut world, id, 200);
    run(&mut world);
    for role in [Role::Client, Role::Server] {
        assert!(world.host(role).app.is_session_open(id), "{role:?}");
    }
    (world, id)
}

fn open(world: &mut World, role: Role, session: StreamId, kind: Directionality) -> StreamId {
    let (http, quic) = world.host(role).split();
    let (stream, header) = http
        .open_session_stream(quic, session, kind)
        .expect("a stream");
    assert!(header.is_empty());
    stream
}

fn ends(world: &mut World, role: Role) -> Vec<(SessionEnd, Vec<StreamId>)> {
    run(world);
    let events = world.host(role).app.events.drain(..);
    let ended = events.filter_map(|event| match event {
        Event::SessionEnded { end, streams, .. } => Some((end, streams)),
        _ => None,
    });
    ended.collect()
}

#[test]
fn streams_of_both_kinds_pass_in_both_directions() {
    let (mut world, session) = session();
    for role in [Role::Client, Role::Server] {
        for kind in BOTH {
            let stream = open(&mut world, role, session, kind);
            let quic = world.host(role).connection();
            quic.write(stream, b"hello").expect("writes");
            quic.finish(stream).expect("finishes");
            run(&mut world);
            let peer = world.host(role.peer());
            let opened = Event::SessionStream {
                session,
                directionality: kind,
            };
            assert!(peer.app.events.drain(..).any(|event| event == opened));
            let (http, quic) = peer.split();
            let accepted = http.accept_session_stream(session, kind).expect("accepts");
            assert_eq!(accepted.id, stream);
            assert_eq!(http.accept_session_stream(session, kind), None);
            let mut received = accepted.buffered.to_vec();
            while let Ok(Some(more)) = quic.read_chunk(stream, 100) {
                received.extend_from_slice(&more);
            }
            assert_eq!(received, b"hello", "{role:?} {kind:?}");
            if kind == Directionality::Bidirectional {
                quic.write(stream, b"answer").expect("writes");
                quic.finish(stream).expect("finishes");
                run(&mut world);
                let quic = world.host(role).connection();
                let answer = quic.read_chunk(stream, 100).expect("reads");
                assert_eq!(answer.unwrap(), "answer");
            }
        }
    }
    assert_eq!(world.server.app.counters().session_streams_rejected, 0);
}

#[test]
fn close_arrives_with_code_and_reason_and_resets_streams() {
    for role in [Role::Client, Role::Server] {
        let (mut world, session) = session();
        let mut streams: Vec<StreamId> = BOTH
            .iter()
            .map(|&kind| open(&mut world, role, session, kind))
            .collect();
        streams.sort_unstable();
        run(&mut world);
        let (http, quic) = world.host(role).split();
        http.close_session(quic, session, 4_711, "enough");
        let own = ends(&mut world, role);
        assert_eq!(own, [(SessionEnd::Local, streams.clone())], "{role:?}");
        let close = CloseSession::new(4_711, "enough");
        let theirs = ends(&mut world, role.peer());
        assert_eq!(
            theirs,
            [(SessionEnd::Closed(close), streams.clone())],
            "{role:?}"
        );
        let quic = world.host(role.peer()).connection();
        let gone = Code::WEBTRANSPORT_SESSION_GONE.0;
        // Stopped here, before the reset arrived.
        for &stream in &streams {
            let read = quic.read_chunk(stream, 100);
            assert!(
                matches!(read, Err(ReadError::Unknown)) || read == Err(ReadError::Reset(gone)),
                "{read:?}"
            );
        }
        for host in [Role::Client, Role::Server] {
            assert_eq!(world.host(host).app.open_requests(), 0, "{host:?}");
            assert!(!world.host(host).app.is_session_open(session));
            assert!(world.host(host).app.closed.is_none());
        }
    }
}

#[test]
fn end_of_the_stream_is_a_close_without_an_error() {
    for role in [Role::Client, Role::Server] {
        let (mut world, session) = session();
        let (http, quic) = world.host(role).split();
        http.finish(quic, session).expect("finishes");
        let close = SessionEnd::Closed(CloseSession::default());
        assert_eq!(
            ends(&mut world, role.peer()),
            [(close.clone(), vec![])],
            "{role:?}"
        );
        assert_eq!(
            ends(&mut world, role),
            [(close, vec![])],
            "answered by the end"
        );
        assert_eq!(world.client.app.open_requests(), 0);
        assert_eq!(world.server.app.open_requests(), 0);
    }
}

#[test]
fn reset_of_the_session_ends_it_with_the_code() {
    for role in [Role::Client, Role::Server] {
        let (mut world, session) = session();
        let stream = open(&mut world, role, session, Directionality::Bidirectional);
        run(&mut world);
        let (http, quic) = world.host(role).split();
        http.reset(quic, session, Code::INTERNAL_ERROR);
        let ended = ends(&mut world, role.peer());
        let expected = SessionEnd::Reset(Code::INTERNAL_ERROR);
        assert_eq!(ended, [(expected, vec![stream])], "{role:?}");
        assert_eq!(
            world.host(role.peer()).connection().write(stream, b"x"),
            Err(WriteError::Unknown)
        );
    }
}

#[test]
fn drain_is_told_once_and_the_session_goes_on() {
    let (mut world, session) = session();
    let (http, quic) = world.server.split();
    http.drain_session(quic, session);
    http.drain_session(quic, session);
    run(&mut world);
    let events = world.client.app.events.drain(..);
    let draining = events.filter(|event| *event == Event::SessionDraining(session));
    assert_eq!(draining.count(), 1);
    open(
        &mut world,
        Role::Client,
        session,
        Directionality::Bidirectional,
    );
    let (http, quic) = world.client.split();
    http.close_session(quic, session, 0, "");
    let close = SessionEnd::Closed(CloseSession::default());
    assert_eq!(ends(&mut world, Role::Server).len(), 1);
    assert_eq!(close, SessionEnd::Closed(CloseSession::new(0, "")));
}

#[test]
fn stream_error_codes_are_the_applications() {
    let (mut world, session) = session();
    let stream = open(
        &mut world,
        Role::Client,
        session,
        Directionality::Bidirectional,
    );
    run(&mut world);
    let quic = world.client.connection();
    quic.reset(stream, code_to_wire(77)).expect("resets");
    quic.stop(stream, code_to_wire(u32::MAX)).expect("stops");
    run(&mut world);
    let (http, quic) = world.server.split();
    let accepted = http.accept_session_stream(session, Directionality::Bidirectional);
    assert_eq!(accepted.expect("accepts").id, stream);
    match quic.write(stream, b"x") {
        Err(WriteError::Stopped(code)) => assert_eq!(code_from_wire(code), Some(u32::MAX)),
        other => panic!("{other:?}"),
    }
    match quic.read_chunk(stream, 10) {
        Err(ReadError::Reset(code)) => assert_eq!(code_from_wire(code), Some(77)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refused_session_rejects_its_early_streams() {
    let mut world = World::connected(Setup::for_sessions());
    let id = ask(&mut world);
    let (_, quic) = world.client.split();
    let stream = quic.open(Directionality::Bidirectional).expect("a stream");
    quic.write(stream, &[0x40, 0x41, 0, b'x']).expect("writes");
    run(&mut world);
    respond(&mut world, id, 403);
    run(&mut world);
    assert_eq!(world.server.app.counters().session_streams_rejected, 1);
    let quic = world.client.connection();
    let gone = Code::WEBTRANSPORT_SESSION_GONE.0;
    assert_eq!(quic.read_chunk(stream, 1), Err(ReadError::Reset(gone)));
    assert!(!world.client.app.is_session_open(id));
    assert!(ends(&mut world, Role::Client).is_empty());
}

#[test]
fn streams_before_the_response_are_delivered_after_it() {
    let mut world = World::connected(Setup::for_sessions());
    let id = ask(&mut world);
    let (_, quic) = world.client.split();
    let bidi = quic.open(Directionality::Bidirectional).expect("a stream");
    quic.write(bidi, &[0x40, 0x41, 0, b'b']).expect("writes");
    let uni = quic.open(Directionality::Unidirectional).expect("a stream");
    quic.write(uni, &[0x40, 0x54, 0, b'u']).expect("writes");
    run(&mut world);
    respond(&mut world, id, 200);
    run(&mut world);
    let (http, quic) = world.server.split();
    for (kind, stream, data) in [
        (Directionality::Bidirectional, bidi, "b"),
        (Directionality::Unidirectional, uni, "u"),
    ] {
        let accepted = http.accept_session_stream(id, kind).expect("accepts");
        assert_eq!(accepted.id, stream);
        let mut received = accepted.buffered.to_vec();
        if let Ok(Some(more)) = quic.read_chunk(stream, 10) {
            received.extend_from_slice(&more);
        }
        assert_eq!(received, data.as_bytes());
    }
}

#[test]
fn sessions_beyond_the_limit_are_rejected_and_a_place_is_free_after_a_close() {
    let mut world = World::connected(Setup::for_sessions());
    let sessions: Vec<StreamId> = (0..5).map(|_| ask(&mut world)).collect();
    run(&mut world);
    let rejected = |event: &Event| match event {
        Event::Reset { stream, code } if *code == Code::REQUEST_REJECTED => Some(*stream),
        _ => None,
    };
    let rejected: Vec<StreamId> = world
        .client
        .app
        .events
        .iter()
        .filter_map(rejected)
        .collect();
    assert_eq!(rejected.len(), 1);
    let open = sessions.into_iter().filter(|id| !rejected.contains(id));
    let open: Vec<StreamId> = open.collect();
    for &id in &open {
        respond(&mut world, id, 200);
    }
    run(&mut world);
    let (http, quic) = world.client.split();
    http.close_session(quic, open[0], 0, "");
    run(&mut world);
    let again = ask(&mut world);
    run(&mut world);
    respond(&mut world, again, 200);
    run(&mut world);
    assert!(world.client.app.is_session_open(again));
}

#[test]
fn session_goes_on_after_goaway_and_a_new_one_is_rejected() {
    let (mut world, session) = session();
    for _ in 0..2 {
        let (http, quic) = world.server.split();
        http.shutdown(quic);
        run(&mut world);
    }
    let stream = open(
        &mut world,
        Role::Client,
        session,
        Directionality::Bidirectional,
    );
    world
        .client
        .connection()
        .write(stream, b"x")
        .expect("writes");
    run(&mut world);
    let accepted = (world.server.app).accept_session_stream(session, Directionality::Bidirectional);
    assert_eq!(accepted.expect("accepts").id, stream);
    let (http, quic) = world.client.split();
    let refused = http.request(quic, &session_request(), false);
    assert_eq!(refused, Err(SendError::GoingAway));
}

#[test]
fn client_asks_for_a_session_only_if_the_server_offers_them() {
    let mut setup = Setup::for_sessions();
    setup.server.webtransport_sessions = 0;
    let mut world = World::connected(setup);
    let (http, quic) = world.client.split();
    let refused = http.request(quic, &session_request(), false);
    assert_eq!(refused, Err(SendError::Unsupported("WebTransport")));
}

#[test]
fn close_before_the_response_cancels_the_request() {
    let mut world = World::connected(Setup::for_sessions());
    let id = ask(&mut world);
    run(&mut world);
    let (http, quic) = world.client.split();
    http.close_session(quic, id, 1, "");
    run(&mut world);
    assert_eq!(world.client.app.open_requests(), 0);
    let reset = Event::Reset {
        stream: id,
        code: Code::REQUEST_CANCELLED,
    };
    assert!(world.server.app.events.contains(&reset));
}
