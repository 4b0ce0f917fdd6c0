//! Extended CONNECT before the peer's SETTINGS, and SETTINGS that do not allow it.

use clearway_http3::frame::put_varint;
use clearway_http3::webtransport::SessionEnd;
use clearway_http3::{Code, Event, Request, Response, SendError};
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId};

use super::hostile_peer::{HostileTest, SETTINGS, frame, headers, varints};
use crate::common::Setup;

const ENABLE_CONNECT_PROTOCOL: u64 = 0x08;
const H3_DATAGRAM: u64 = 0x33;
const WEBTRANSPORT: u64 = 0x2c7c_f000;
const MAX_DATA: u64 = 0x2b61;

fn connect(protocol: &'static str) -> Vec<u8> {
    headers(&[
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/"),
    ])
}

/// Sends the hostile peer's SETTINGS.
fn settings(test: &mut HostileTest, pairs: &[u64]) {
    let settings = [varints(&[0]), frame(SETTINGS, &varints(pairs))].concat();
    test.control = test.uni(&settings);
}

/// The requests that the server's application has got.
fn requests(test: &mut HostileTest) -> Vec<StreamId> {
    let events = test.events().into_iter();
    let requests = events.filter_map(|event| match event {
        Event::Request { stream, .. } => Some(stream),
        _ => None,
    });
    requests.collect()
}

fn client_without_settings() -> HostileTest {
    HostileTest::without_settings(Role::Client, Setup::for_sessions())
}

/// It is the server's SETTINGS that allow it (RFC 9220 §3, RFC 8441 §3).
#[test]
fn server_takes_an_extended_connect_before_the_clients_settings() {
    let mut test = client_without_settings();
    let id = test.bidi(&connect("websocket"));
    assert_eq!(requests(&mut test), [id]);
    let (http, quic) = test.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    settings(&mut test, &[]);
    assert_eq!(requests(&mut test), []);
    assert_eq!(test.reset_and_stop_codes(id), (None, None));
}

#[test]
fn server_holds_a_session_until_the_clients_settings() {
    for protocol in ["webtransport", "webtransport-h3"] {
        let mut test = client_without_settings();
        let id = test.bidi(&connect(protocol));
        assert_eq!(requests(&mut test), [], "{protocol}");
        settings(&mut test, &[H3_DATAGRAM, 1, MAX_DATA, 1_000]);
        assert_eq!(requests(&mut test), [id], "{protocol}");
        let (http, quic) = test.world.server.split();
        http.respond(quic, id, &Response::new(200), false)
            .expect("responds");
        assert!(http.is_session_open(id));
    }
}

/// They are kept for it, as those are that come before their request (RFC 9297 §2.1).
#[test]
fn datagrams_of_a_held_session_are_kept_until_the_clients_settings() {
    let mut test = client_without_settings();
    let id = test.bidi(&connect("webtransport"));
    test.run();
    for payload in [b"a", b"b"] {
        let datagram = clearway_http3::datagram::encode(id, payload);
        let quic = test.world.client.connection();
        quic.send_datagram(datagram).expect("sends");
    }
    test.run();
    let (http, quic) = test.world.server.split();
    assert_eq!(http.recv_datagram(quic), None);
    settings(&mut test, &[H3_DATAGRAM, 1]);
    let events = test.events();
    let asked = events
        .iter()
        .position(|it| matches!(it, Event::Request { .. }));
    let told = events.iter().rposition(|it| *it == Event::DatagramReceived);
    assert!(asked.is_some() && told > asked, "{events:?}");
    let (http, quic) = test.world.server.split();
    let received = std::iter::from_fn(|| http.recv_datagram(quic));
    let received: Vec<_> = received.collect();
    assert_eq!(received, [(id, "a".into()), (id, "b".into())]);
}

/// Whether or not SETTINGS come first, there is one session at most without flow control
/// (draft-ietf-webtrans-http3-16 §5.1).
#[test]
fn settings_that_allow_one_session_reject_the_others_that_were_held() {
    for late in [false, true] {
        let mut test = client_without_settings();
        if !late {
            settings(&mut test, &[H3_DATAGRAM, 1]);
            test.run();
        }
        let ids: Vec<StreamId> = (0..3)
            .map(|_| test.bidi(&connect("webtransport-h3")))
            .collect();
        // A stream of the second one came with it.
        let stream = test.uni(&varints(&[0x54, ids[1].as_u64()]));
        if late {
            assert_eq!(requests(&mut test), []);
            settings(&mut test, &[H3_DATAGRAM, 1]);
        }
        // The first that has arrived, whichever that is.
        let admitted = requests(&mut test);
        assert_eq!(admitted.len(), 1, "late: {late}");
        let rejected = Some(Code::REQUEST_REJECTED);
        for id in &ids {
            let codes = test.reset_and_stop_codes(*id);
            let expected = match admitted.contains(id) {
                true => (None, None),
                false => (rejected, rejected),
            };
            assert_eq!(codes, expected, "late: {late}");
        }
        let gone = Some(Code::WEBTRANSPORT_SESSION_GONE).filter(|_| !admitted.contains(&ids[1]));
        assert_eq!(test.reset_and_stop_codes(stream), (None, gone));
        assert_eq!(test.world.server.app.counters().rejected, 2);
        test.assert_serves();
    }
}

#[test]
fn settings_with_flow_control_release_all_sessions_in_order() {
    let mut test = client_without_settings();
    let ids: Vec<StreamId> = (0..4)
        .map(|_| test.bidi(&connect("webtransport-h3")))
        .collect();
    // One more than the server allows is not held.
    let fifth = test.bidi(&connect("webtransport-h3"));
    let rejected = Some(Code::REQUEST_REJECTED);
    assert_eq!(test.reset_and_stop_codes(fifth), (rejected, rejected));
    settings(&mut test, &[H3_DATAGRAM, 1, MAX_DATA, 1_000]);
    assert_eq!(requests(&mut test), ids);
}

#[test]
fn held_session_that_is_reset_never_reaches_the_application() {
    let mut test = client_without_settings();
    let first = test.bidi(&connect("webtransport-h3"));
    let second = test.bidi(&connect("webtransport-h3"));
    test.run();
    test.reset(first, Code::REQUEST_CANCELLED.0);
    test.run();
    settings(&mut test, &[H3_DATAGRAM, 1]);
    // The place of the first is free again.
    assert_eq!(requests(&mut test), [second]);
}

#[test]
fn session_of_a_client_without_datagrams_has_streams_only() {
    let mut test = client_without_settings();
    let id = test.bidi(&connect("webtransport"));
    settings(&mut test, &[]);
    assert_eq!(requests(&mut test), [id]);
    let (http, quic) = test.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    assert!(http.send_datagram(quic, id, b"x").is_err());
    let uni = Directionality::Unidirectional;
    assert!(http.open_session_stream(quic, id, uni).is_some());
}

fn request(protocol: &'static str) -> Request {
    Request {
        protocol: protocol.into(),
        path: "/".into(),
        scheme: "https".into(),
        ..Request::connect("localhost")
    }
}

/// Asks from the client. Returns why nothing was sent, if nothing was.
fn ask(test: &mut HostileTest, protocol: &'static str) -> Option<SendError> {
    let (http, quic) = test.world.client.split();
    http.request(quic, &request(protocol), false).err()
}

/// RFC 9220 §3, draft-ietf-webtrans-http3-16 §3.1.
#[test]
fn client_asks_for_nothing_that_the_servers_settings_do_not_allow() {
    let tunnel = || Some(SendError::Unsupported("extended CONNECT"));
    let session = || Some(SendError::Unsupported("WebTransport"));
    for (pairs, websocket, webtransport) in [
        (&[][..], tunnel(), tunnel()),
        (&[ENABLE_CONNECT_PROTOCOL, 0], tunnel(), tunnel()),
        (&[WEBTRANSPORT, 1], tunnel(), tunnel()),
        (&[ENABLE_CONNECT_PROTOCOL, 1], None, session()),
        (
            &[ENABLE_CONNECT_PROTOCOL, 1, WEBTRANSPORT, 0],
            None,
            session(),
        ),
        (&[ENABLE_CONNECT_PROTOCOL, 1, WEBTRANSPORT, 1], None, None),
    ] {
        let mut test = HostileTest::without_settings(Role::Server, Setup::for_sessions());
        // Before SETTINGS nothing is allowed.
        assert_eq!(ask(&mut test, "websocket"), tunnel(), "{pairs:?}");
        assert_eq!(ask(&mut test, "webtransport"), tunnel(), "{pairs:?}");
        settings(&mut test, pairs);
        test.run();
        assert_eq!(ask(&mut test, "websocket"), websocket, "{pairs:?}");
        assert_eq!(ask(&mut test, "webtransport"), webtransport, "{pairs:?}");
    }
}

/// A server that answers a session before it has told that it supports datagrams or limits: none of
/// them apply.
#[test]
fn session_ends_cleanly_if_the_server_never_wanted_one() {
    let mut test = HostileTest::without_settings(Role::Server, Setup::for_sessions());
    settings(&mut test, &[ENABLE_CONNECT_PROTOCOL, 1, WEBTRANSPORT, 1]);
    test.run();
    assert_eq!(ask(&mut test, "webtransport"), None);
    test.run();
    let quic = test.world.host(Role::Server).connection();
    let id = quic
        .accept(Directionality::Bidirectional)
        .expect("a request");
    test.write(id, &headers(&[(":status", "404")]));
    test.finish(id);
    let events = test.events();
    let answered = events
        .iter()
        .any(|event| matches!(event, Event::Response { response, .. } if response.status == 404));
    assert!(answered, "{events:?}");
    let opened = |event: &Event| matches!(event, Event::SessionEnded { end, .. } if *end != SessionEnd::Refused);
    assert!(!events.iter().any(opened), "{events:?}");
    // A stream for it is refused.
    let mut header = Vec::new();
    put_varint(&mut header, 0x54);
    put_varint(&mut header, id.as_u64());
    let stream = test.uni(&header);
    let gone = Some(Code::WEBTRANSPORT_SESSION_GONE);
    assert_eq!(test.reset_and_stop_codes(stream), (None, gone));
}
