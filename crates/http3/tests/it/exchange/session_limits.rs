//! Flow control of WebTransport sessions between two ends of ours.

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::webtransport::{SessionEnd, SessionLimits};
use clearway_http3::{Code, Event, Request, Response};
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};

use crate::common::{Setup, World};

const UNI: Directionality = Directionality::Unidirectional;
const BIDI: Directionality = Directionality::Bidirectional;

/// Both ends allow 10,000 bytes and two streams of each kind.
const LIMITS: SessionLimits = SessionLimits {
    data: 10_000,
    bidi_streams: 2,
    uni_streams: 2,
};

fn run(world: &mut World) {
    world.run_for(Duration::from_millis(200));
}

/// Two ends with these limits, and a session.
fn session(client: SessionLimits, server: SessionLimits) -> (World, StreamId) {
    let mut setup = Setup::for_sessions();
    setup.client.session_limits = client;
    setup.server.session_limits = server;
    // So that a session may take 10,000 bytes only: half of this is less.
    for quic in [&mut setup.client_quic, &mut setup.server_quic] {
        quic.streams.connection_window = 16_000;
        quic.streams.stream_window = 16_000;
        quic.streams.receive_budget = 16_000;
    }
    let mut world = World::connected(setup);
    let id = ask(&mut world);
    (world, id)
}

fn ask(world: &mut World) -> StreamId {
    let request = Request {
        protocol: "webtransport-h3".into(),
        path: "/".into(),
        scheme: "https".into(),
        ..Request::connect("localhost")
    };
    let (http, quic) = world.client.split();
    let id = http.request(quic, &request, false).expect("a request");
    run(world);
    let (http, quic) = world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    run(world);
    id
}

fn open(
    world: &mut World,
    role: Role,
    session: StreamId,
    kind: Directionality,
) -> Option<StreamId> {
    let (http, quic) = world.host(role).split();
    let (stream, header) = http.open_session_stream(quic, session, kind)?;
    assert!(header.is_empty());
    // Alone, so that nothing is read together with it.
    run(world);
    Some(stream)
}

/// Writes as much of `len` bytes as there is room for.
fn write(world: &mut World, role: Role, stream: StreamId, len: usize) -> usize {
    let mut data = Bytes::from(vec![7; len]);
    let quic = world.host(role).connection();
    while !data.is_empty() {
        match quic.write_chunk(stream, &mut data) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, WriteError::Blocked);
                break;
            }
        }
    }
    len - data.len()
}

/// Reads what there is to read.
fn read(world: &mut World, role: Role, stream: StreamId) -> usize {
    let mut bytes = 0;
    loop {
        match world.host(role).connection().read_chunk(stream, 1_000) {
            Ok(Some(data)) => bytes += data.len(),
            Ok(None) | Err(ReadError::Reset(_)) => return bytes,
            Err(error) => {
                assert_eq!(error, ReadError::Blocked);
                return bytes;
            }
        }
    }
}

fn accept(world: &mut World, role: Role, session: StreamId, kind: Directionality) -> StreamId {
    let (http, _) = world.host(role).split();
    let accepted = http.accept_session_stream(session, kind).expect("a stream");
    assert!(accepted.buffered.is_empty());
    accepted.id
}

#[test]
fn data_of_all_streams_of_a_session_is_limited_and_granted_as_it_is_read() {
    for role in [Role::Client, Role::Server] {
        let (mut world, session) = session(LIMITS, LIMITS);
        let first = open(&mut world, role, session, UNI).expect("a stream");
        let second = open(&mut world, role, session, UNI).expect("a stream");
        assert_eq!(write(&mut world, role, first, 6_000), 6_000);
        assert_eq!(write(&mut world, role, second, 6_000), 4_000);
        run(&mut world);
        assert_eq!(write(&mut world, role, first, 1), 0, "nothing was read");
        let peer = role.peer();
        let received = accept(&mut world, peer, session, UNI);
        assert_eq!(read(&mut world, peer, received), 6_000);
        run(&mut world);
        assert_eq!(write(&mut world, role, first, 9_000), 6_000);
        run(&mut world);
        assert_eq!(read(&mut world, peer, received), 6_000);
        assert!(world.host(peer).app.closed.is_none());
        assert!(world.host(peer).app.is_session_open(session));
    }
}

#[test]
fn blocked_writer_is_woken_by_a_new_limit() {
    let (mut world, session) = session(LIMITS, LIMITS);
    let stream = open(&mut world, Role::Client, session, UNI).expect("a stream");
    let mut sent = 0;
    let mut received = 0;
    let mut accepted = None;
    for _ in 0..100 {
        sent += write(&mut world, Role::Client, stream, 100_000 - sent);
        run(&mut world);
        let at = *accepted.get_or_insert_with(|| accept(&mut world, Role::Server, session, UNI));
        received += read(&mut world, Role::Server, at);
        run(&mut world);
    }
    assert_eq!((sent, received), (100_000, 100_000));
}

#[test]
fn session_that_reads_nothing_leaves_the_others_room() {
    let (mut world, first) = session(LIMITS, LIMITS);
    let second = ask(&mut world);
    let stuck = open(&mut world, Role::Client, first, UNI).expect("a stream");
    assert_eq!(write(&mut world, Role::Client, stuck, 50_000), 10_000);
    run(&mut world);
    let stream = open(&mut world, Role::Client, second, BIDI).expect("a stream");
    assert_eq!(write(&mut world, Role::Client, stream, 5_000), 5_000);
    run(&mut world);
    let accepted = accept(&mut world, Role::Server, second, BIDI);
    assert_eq!(read(&mut world, Role::Server, accepted), 5_000);
}

#[test]
fn credit_of_a_stream_that_is_reset_or_stopped_is_returned() {
    for stopped in [false, true] {
        let (mut world, session) = session(LIMITS, LIMITS);
        for _ in 0..20 {
            let stream = open(&mut world, Role::Client, session, UNI).expect("a stream");
            let written = write(&mut world, Role::Client, stream, 20_000);
            assert!(written > 8_000, "{written}");
            run(&mut world);
            let accepted = accept(&mut world, Role::Server, session, UNI);
            if stopped {
                let stopped = world.server.connection().stop(accepted, 1);
                stopped.expect("stops");
            } else {
                let reset = world.client.connection().reset(stream, 1);
                reset.expect("resets");
            }
            run(&mut world);
            if !stopped {
                read(&mut world, Role::Server, accepted);
            }
            for role in [Role::Client, Role::Server] {
                world.host(role).split().0.forget_session_stream(stream);
            }
            run(&mut world);
        }
        assert!(world.server.app.is_session_open(session));
    }
}

#[test]
fn number_of_streams_is_limited_until_earlier_ones_are_done() {
    for role in [Role::Client, Role::Server] {
        for kind in [UNI, BIDI] {
            let (mut world, session) = session(LIMITS, LIMITS);
            let first = open(&mut world, role, session, kind).expect("a stream");
            open(&mut world, role, session, kind).expect("a stream");
            assert_eq!(open(&mut world, role, session, kind), None);
            write(&mut world, role, first, 1);
            run(&mut world);
            assert_eq!(open(&mut world, role, session, kind), None);
            let peer = role.peer();
            let accepted = accept(&mut world, peer, session, kind);
            world.host(role).app.events.clear();
            world.host(peer).split().0.forget_session_stream(accepted);
            run(&mut world);
            let available = Event::SessionStreamsAvailable(kind);
            assert!(world.host(role).app.events.contains(&available));
            open(&mut world, role, session, kind).expect("one is done");
            assert_eq!(open(&mut world, role, session, kind), None);
        }
    }
}

#[test]
fn without_limits_at_one_end_there_is_no_flow_control_and_one_session() {
    let none = SessionLimits::default();
    for (client, server) in [(none, LIMITS), (LIMITS, none), (none, none)] {
        let (mut world, session) = session(client, server);
        for _ in 0..5 {
            open(&mut world, Role::Client, session, UNI).expect("a stream");
        }
        let stream = open(&mut world, Role::Client, session, UNI).expect("a stream");
        assert!(write(&mut world, Role::Client, stream, 12_000) > 10_000);
        let request = Request {
            protocol: "webtransport-h3".into(),
            path: "/".into(),
            scheme: "https".into(),
            ..Request::connect("localhost")
        };
        let (http, quic) = world.client.split();
        let second = http.request(quic, &request, false).expect("a request");
        run(&mut world);
        let rejected = Event::SessionEnded {
            session: second,
            end: SessionEnd::Reset(Code::REQUEST_REJECTED),
            streams: Vec::new(),
        };
        let events = &world.client.app.events;
        assert!(events.contains(&rejected), "{events:?}");
    }
}
