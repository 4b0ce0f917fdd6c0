//! What a peer or an application may do and seldom does: each call and frame at a moment
//! when it comes to nothing, or ends something.

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::frame::put_varint;
use clearway_http3::testing::MemoryTransport;
use clearway_http3::{
    BodyError, Code, Config, Connection, Deadline, Event, Priority, Request, Response, SendError,
    Timeouts,
};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use crate::hostile::forger::{
    CANCEL_PUSH, DATA, HEADERS, PRIORITY_UPDATE, frame, get, headers, ok, request as fields,
};
use crate::memory::{End, request};

/// A server that has heard a POST whose body has begun.
fn server_with_body() -> End {
    let mut server = End::new(Role::Server);
    server.wire.feed(request(0), &headers(&fields("POST")));
    server.wire.feed(request(0), &frame(DATA, &[7; 50])[..22]);
    let heard = server.turn();
    assert!(matches!(heard[0], Event::Request { end: false, .. }));
    server
}

#[test]
fn reset_within_data_that_is_being_read_ends_the_body_with_its_code() {
    let mut server = server_with_body();
    let body = server.http.read_body(&mut server.wire, request(0));
    assert!(body.is_ok(), "{body:?}");
    // Read before the event is.
    server.wire.feed_reset(request(0), 0x10c);
    let body = server.http.read_body(&mut server.wire, request(0));
    assert_eq!(body, Err(BodyError::Reset(Code(0x10c))));
    server.turn();
    assert_eq!(server.http.error(), None);
}

#[test]
fn body_of_an_unknown_request_is_an_error() {
    let mut server = server_with_body();
    let body = server.http.read_body(&mut server.wire, request(9));
    assert_eq!(body, Err(BodyError::Unknown));
}

#[test]
fn calls_on_an_unknown_request_do_nothing() {
    let mut server = server_with_body();
    let (http, wire) = (&mut server.http, &mut server.wire);
    http.reset(wire, request(9), Code::NO_ERROR);
    http.stop(wire, request(9), Code::NO_ERROR);
    http.cancel(wire, request(9));
    assert_eq!(wire.reset_and_stop_codes(request(9)), (None, None));
    assert_eq!(http.finish(wire, request(9)), Err(SendError::Unknown));
    let priority = Priority::default();
    assert_eq!(
        http.set_priority(wire, request(9), priority),
        Err(SendError::Unknown)
    );
    assert_eq!((http.open_requests(), http.error()), (1, None));
}

#[test]
fn datagram_without_datagrams_agreed_is_dropped_and_counted() {
    let mut server = server_with_body();
    server.wire.feed_datagram(b"\x00hello");
    server.turn();
    assert_eq!(server.http.recv_datagram(&mut server.wire), None);
    assert_eq!(server.http.counters().datagrams_dropped, 1);
}

#[test]
fn datagram_after_the_connection_failed_is_not_received() {
    let config = Config {
        datagrams: true,
        ..Config::default()
    };
    let mut server = End::with(Role::Server, config);
    server.wire.feed(request(0), &get());
    server.turn();
    server.wire.feed_datagram(b"\x00hello");
    let control = server.uni(0);
    server.wire.feed(control, &frame(CANCEL_PUSH, &[3]));
    while let Some(event) = server.wire.poll_event() {
        server.http.on_quic_event(&mut server.wire, &event);
    }
    let code = server.http.error().map(|error| error.code);
    assert_eq!(code, Some(Code::ID_ERROR));
    assert_eq!(server.http.recv_datagram(&mut server.wire), None);
}

fn answer_early(server: &mut End) {
    let (http, wire) = (&mut server.http, &mut server.wire);
    http.respond(wire, request(0), &Response::new(200), true)
        .expect("a response");
    http.stop(wire, request(0), Code::NO_ERROR);
}

/// Lets all deadlines pass that run for so long; answers when the client was told to stop.
fn stopped_within(server: &mut End, id: StreamId, seconds: u64) -> Option<Duration> {
    let mut now = Instant::ZERO;
    server.http.flush(now, &mut server.wire);
    while let Some(at) = server.http.next_timeout() {
        now = now.max(at);
        let passed = now.saturating_since(Instant::ZERO);
        if passed > Duration::from_secs(seconds) {
            break;
        }
        server.http.handle_timeout(now, &mut server.wire);
        if server.wire.reset_and_stop_codes(id).1.is_some() {
            return Some(passed);
        }
    }
    None
}

/// The client neither ends its request nor sends a body: some seconds it has, also
/// while the connection rests.
#[test]
fn rest_of_a_request_that_never_ends_is_stopped_in_the_end() {
    for (delivered, released) in [(false, false), (true, false), (true, true)] {
        let mut server = End::new(Role::Server);
        server.wire.feed(request(0), &get());
        server.turn();
        answer_early(&mut server);
        if delivered {
            server.wire.feed_ack(request(0));
        }
        server.turn();
        if released {
            server.http.release();
        }
        assert_eq!(server.wire.reset_and_stop_codes(request(0)), (None, None));
        let waited = stopped_within(&mut server, request(0), 30);
        let code = server.wire.reset_and_stop_codes(request(0)).1;
        assert_eq!(code, Some(Code::NO_ERROR.0), "{delivered} {released}");
        let waited = waited.expect("stopped").as_secs();
        assert!((5..=15).contains(&waited), "{waited} s");
    }
}

/// Only `NO_ERROR` leaves the client time.
#[test]
fn stop_with_an_error_is_told_at_once() {
    let mut server = End::new(Role::Server);
    server.wire.feed(request(0), &get());
    server.turn();
    let (http, wire) = (&mut server.http, &mut server.wire);
    http.stop(wire, request(0), Code::REQUEST_CANCELLED);
    let code = Some(Code::REQUEST_CANCELLED.0);
    assert_eq!(wire.reset_and_stop_codes(request(0)), (None, code));
}

#[test]
fn rest_of_a_request_that_is_reset_is_forgotten() {
    let mut server = End::new(Role::Server);
    server.wire.feed(request(0), &get());
    server.turn();
    answer_early(&mut server);
    let mut trailers = frame(HEADERS, &[0; 800]);
    trailers.truncate(600);
    server.wire.feed(request(0), &trailers);
    server.turn();
    server.wire.feed_reset(request(0), 0x10c);
    server.wire.feed_ack(request(0));
    let heard = server.turn();
    // The answer was complete: no work can be spared.
    assert!(heard.is_empty(), "{heard:?}");
    assert_eq!(server.http.unacknowledged_messages(), 0);
    assert_eq!(stopped_within(&mut server, request(0), 30), None);
    assert_eq!(server.wire.reset_and_stop_codes(request(0)), (None, None));
}

#[test]
fn rest_of_a_request_with_a_section_too_large_is_malformed_without_harm() {
    let mut server = End::new(Role::Server);
    server.wire.feed(request(0), &get());
    server.turn();
    answer_early(&mut server);
    let section = vec![0; 200_000];
    server.wire.feed(request(0), &frame(HEADERS, &section));
    server.turn();
    server.wire.feed(request(1), &get());
    assert_eq!(server.turn().len(), 1);
}

#[test]
fn body_behind_an_early_answer_is_stopped_with_no_error() {
    let mut server = server_with_body();
    answer_early(&mut server);
    server.turn();
    assert_eq!(
        server.wire.reset_and_stop_codes(request(0)),
        (None, Some(Code::NO_ERROR.0))
    );
}

#[test]
fn memory_of_rests_is_given_back_by_release() {
    let mut server = End::new(Role::Server);
    for n in 0..50 {
        server.wire.feed(request(n), &get());
    }
    server.turn();
    for n in 0..50 {
        let (http, wire) = (&mut server.http, &mut server.wire);
        http.respond(wire, request(n), &Response::new(200), true)
            .expect("a response");
        http.stop(wire, request(n), Code::NO_ERROR);
    }
    server.turn();
    for n in 0..49 {
        server.wire.feed_end(request(n));
        server.wire.feed_ack(request(n));
    }
    server.turn();
    let busy = server.http.memory();
    server.http.release();
    let rested = server.http.memory();
    assert!(rested + 2_000 < busy, "{busy} bytes, then {rested}");
    // The last one is still there.
    server.wire.feed_end(request(49));
    server.wire.feed_ack(request(49));
    server.turn();
    assert_eq!(server.http.unacknowledged_messages(), 0);
}

/// RFC 9114 §7.2.4.1 and RFC 9297 §2.1.1: a flag that is off may be said.
#[test]
fn settings_that_say_a_flag_is_off_are_taken() {
    let settings = [0x33, 0x00, 0x08, 0x00];
    let decoded = clearway_http3::Settings::decode(&settings).expect("settings");
    assert!(!decoded.h3_datagram && !decoded.enable_connect_protocol);
    for value in [2, 0x3f] {
        let wrong = clearway_http3::Settings::decode(&[0x33, value]);
        assert_eq!(wrong.map_err(|e| e.code), Err(Code::SETTINGS_ERROR));
    }
}

/// RFC 9220 §3, RFC 9110 §7.8: a protocol is a token.
#[test]
fn extended_connect_for_a_protocol_that_is_no_token_is_malformed() {
    let config = Config {
        extended_connect: true,
        ..Config::default()
    };
    for (protocol, taken) in [("websocket", true), ("web socket", false)] {
        let mut server = End::with(Role::Server, config.clone());
        let connect = headers(&[
            (":method", "CONNECT"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            (":protocol", protocol),
        ]);
        server.wire.feed(request(0), &connect);
        let heard = server.turn();
        assert_eq!(heard.len(), usize::from(taken), "{protocol}: {heard:?}");
        assert_eq!(server.http.counters().malformed, u64::from(!taken));
    }
}

#[test]
fn priority_update_for_a_request_that_is_over_is_ignored() {
    let mut server = End::new(Role::Server);
    server.wire.feed(request(0), &get());
    server.wire.feed_end(request(0));
    server.turn();
    let (http, wire) = (&mut server.http, &mut server.wire);
    http.respond(wire, request(0), &Response::new(200), true)
        .expect("a response");
    wire.feed_ack(request(0));
    server.turn();
    let mut update = Vec::new();
    put_varint(&mut update, request(0).as_u64());
    update.extend_from_slice(b"u=1");
    let control = server.uni(0);
    server.wire.feed(control, &frame(PRIORITY_UPDATE, &update));
    assert!(server.turn().is_empty());
    assert_eq!(server.http.counters().priorities_dropped, 0);
}

#[test]
fn response_followed_by_a_reset_is_told_with_both() {
    let mut client = End::new(Role::Client);
    let get = Request::get("localhost", "/");
    let (http, wire) = (&mut client.http, &mut client.wire);
    let id = http.request(wire, &get, true).expect("a request");
    client.turn();
    client.wire.feed(id, &ok());
    // Both before the client looks.
    let mut heard = Vec::new();
    client.wire.feed_end(id);
    heard.extend(client.turn());
    assert!(matches!(heard[..], [Event::Response { end: true, .. }]));
}

#[test]
fn more_interim_responses_than_the_limit_fail_the_request() {
    let config = Config::default();
    let limit = config.limits.max_informational;
    let mut client = End::with(Role::Client, config);
    let get = Request::get("localhost", "/");
    let (http, wire) = (&mut client.http, &mut client.wire);
    let id = http.request(wire, &get, true).expect("a request");
    for _ in 0..limit {
        client.wire.feed(id, &headers(&[(":status", "103")]));
    }
    assert_eq!(client.turn().len(), usize::from(limit));
    client.wire.feed(id, &headers(&[(":status", "103")]));
    let heard = client.turn();
    assert!(
        matches!(&heard[..], [Event::Failed { error, .. }] if error.code == Code::EXCESSIVE_LOAD),
        "{heard:?}"
    );
}

#[test]
fn final_response_with_an_interim_status_is_refused() {
    let mut server = server_with_body();
    let early = Response::new(103);
    let (http, wire) = (&mut server.http, &mut server.wire);
    let refused = http.respond(wire, request(0), &early, true);
    assert!(
        matches!(refused, Err(SendError::Malformed(_))),
        "{refused:?}"
    );
    // Nothing was sent, and the right one can be.
    http.respond(wire, request(0), &Response::new(200), true)
        .expect("a response");
}

#[test]
fn priority_beyond_the_last_urgency_is_refused() {
    let mut server = server_with_body();
    let (http, wire) = (&mut server.http, &mut server.wire);
    for (urgency, taken) in [(7, true), (8, false)] {
        let priority = Priority {
            urgency,
            ..Priority::default()
        };
        let set = http.set_priority(wire, request(0), priority);
        assert_eq!(set.is_ok(), taken, "{urgency}");
    }
    let set = http.priority(request(0)).map(|priority| priority.urgency);
    assert_eq!(set, Some(7));
}

#[test]
fn server_makes_no_requests() {
    let mut server = server_with_body();
    let (http, wire) = (&mut server.http, &mut server.wire);
    let refused = http.request(wire, &Request::get("localhost", "/"), true);
    assert!(matches!(refused, Err(SendError::OutOfOrder(_))));
}

#[test]
fn body_that_differs_from_its_content_length_is_refused() {
    let mut server = server_with_body();
    let (http, wire) = (&mut server.http, &mut server.wire);
    let five = Response::new(200).with("content-length", "5");
    let body = Bytes::from_static(b"1234");
    let refused = http.respond_with_body(wire, request(0), &five, body);
    assert_eq!(refused.map(drop), Err(SendError::WrongLength));
    let body = Bytes::from_static(b"12345");
    http.respond_with_body(wire, request(0), &five, body)
        .expect("a response");
}

#[test]
fn nothing_can_be_sent_once_the_connection_has_failed() {
    let mut client = End::new(Role::Client);
    let get = Request::get("localhost", "/");
    let (http, wire) = (&mut client.http, &mut client.wire);
    let id = http.request(wire, &get, false).expect("a request");
    let control = client.uni(0);
    client.wire.feed(control, &frame(CANCEL_PUSH, &[3]));
    while let Some(event) = client.wire.poll_event() {
        client.http.on_quic_event(&mut client.wire, &event);
    }
    let (http, wire) = (&mut client.http, &mut client.wire);
    assert_eq!(http.request(wire, &get, true), Err(SendError::Closed));
    assert_eq!(http.finish(wire, id), Err(SendError::Closed));
    let set = http.set_priority(wire, id, Priority::default());
    assert_eq!(set, Err(SendError::Closed));
    assert_eq!(http.read_body(wire, id), Err(BodyError::Closed));
}

#[test]
fn a_write_that_the_peer_has_stopped_says_with_which_code() {
    let mut client = End::new(Role::Client);
    let post = Request::new("POST", "localhost", "/");
    let (http, wire) = (&mut client.http, &mut client.wire);
    let id = http.request(wire, &post, false).expect("a request");
    client.turn();
    client.wire.feed_stop(id, Code::NO_ERROR.0);
    // Before the event is heard.
    let mut body = Bytes::from_static(b"body");
    let (http, wire) = (&mut client.http, &mut client.wire);
    let stopped = http.write_body(wire, id, &mut body);
    assert_eq!(stopped, Err(SendError::Stopped(Code::NO_ERROR)));
    client.turn();
    let (http, wire) = (&mut client.http, &mut client.wire);
    let again = http.write_body(wire, id, &mut body);
    assert!(
        matches!(again, Err(SendError::Unknown | SendError::Stopped(_))),
        "{again:?}"
    );
}

#[test]
fn deadlines_say_what_was_missed() {
    let words = [
        Deadline::RequestHeaders,
        Deadline::RequestBody,
        Deadline::Response,
    ]
    .map(|deadline| deadline.to_string());
    assert!(words[0].contains("headers"), "{}", words[0]);
    assert!(words[1].contains("body"), "{}", words[1]);
    assert!(words[2].contains("response"), "{}", words[2]);
}

#[test]
fn no_timeouts_means_that_no_deadline_runs() {
    let config = Config {
        timeouts: Timeouts::none(),
        ..Config::default()
    };
    let mut server = End::with(Role::Server, config);
    server.turn();
    assert_eq!(server.http.next_timeout(), None);
    assert_eq!(server.http.role(), Role::Server);
}

/// A trailer section is bounded as a header section is.
#[test]
fn trailers_beyond_the_limit_fail_the_request_and_are_counted() {
    let mut server = End::new(Role::Server);
    server.wire.feed(request(0), &headers(&fields("POST")));
    server.turn();
    server
        .wire
        .feed(request(0), &headers(&[("t", &"v".repeat(70_000))]));
    server.turn();
    let body = server.http.read_body(&mut server.wire, request(0));
    assert!(matches!(body, Err(BodyError::Failed(_))), "{body:?}");
    assert_eq!(server.http.counters().too_large, 1);
    assert!(server.wire.reset_and_stop_codes(request(0)).0.is_some());
}

/// RFC 8941 §3.3.1: an integer of several digits is that integer.
#[test]
fn urgency_of_several_digits_is_read_as_a_whole() {
    for (value, urgency) in [("u=12", 3), ("u=10", 3), ("u=005", 5), ("u=-0", 0)] {
        let parsed = Priority::parse(value.as_bytes());
        assert_eq!(parsed.urgency, urgency, "{value}");
    }
}

/// RFC 9114 §7.2.4: SETTINGS are the first frame, also where a request comes first.
#[test]
fn request_before_the_start_sends_settings_first() {
    let config = Config {
        grease: false,
        ..Config::default()
    };
    let mut http = Connection::new(Role::Client, config.into(), 1);
    let mut wire = MemoryTransport::new(Role::Client);
    let get = Request::get("localhost", "/");
    http.request(&mut wire, &get, true).expect("a request");
    let control = StreamId::new(Role::Client, Directionality::Unidirectional, 0);
    let (sent, _) = wire.sent(control);
    // The type of the stream, and of the frame.
    assert_eq!(sent.get(..2), Some(&[0, 4][..]));
}

/// RFC 9114 §6.2.3: a stream without meaning, if that is configured.
#[test]
fn stream_without_meaning_is_sent_only_where_grease_is_configured() {
    for grease in [false, true] {
        let config = Config {
            grease,
            ..Config::default()
        };
        let mut http = Connection::new(Role::Client, config.into(), 0x1234_5678_9abc);
        let mut wire = MemoryTransport::new(Role::Client);
        http.start(&mut wire);
        let fourth = StreamId::new(Role::Client, Directionality::Unidirectional, 3);
        let (sent, ended) = wire.sent(fourth);
        assert_eq!((!sent.is_empty(), ended), (grease, grease));
        if grease {
            let mut kind = clearway_quic::wire::Reader::new(sent);
            let kind = kind.varint().expect("a type");
            assert_eq!(kind.checked_sub(0x21).map(|n| n % 0x1f), Some(0), "{kind}");
        }
    }
}

/// The client waits for the answer of one of two: none of its requests is held against it
/// for longer than it takes to have another one answered.
#[test]
fn request_answered_to_its_end_makes_up_for_one_abandoned() {
    let mut config = Config::default();
    config.limits.abandoned_burst = 2;
    config.limits.abandoned_per_second = 0;
    let mut server = End::with(Role::Server, config);
    let abandon = |server: &mut End, n| {
        server.wire.feed(request(n), &get());
        server.turn();
        server.wire.feed_reset(request(n), 0x10c);
        server.wire.feed_stop(request(n), 0x10c);
        while let Some(event) = server.wire.poll_event() {
            server.http.on_quic_event(&mut server.wire, &event);
        }
        while server.http.poll_event().is_some() {}
    };
    for n in 0..10 {
        abandon(&mut server, 2 * n);
        let id = request(2 * n + 1);
        server.wire.feed(id, &get());
        server.wire.feed_end(id);
        server.turn();
        let (http, wire) = (&mut server.http, &mut server.wire);
        http.respond(wire, id, &Response::new(200), true)
            .expect("a response");
        server.wire.feed_ack(id);
        server.turn();
    }
    for n in 20..23 {
        abandon(&mut server, n);
    }
    let code = server.http.error().map(|error| error.code);
    assert_eq!(code, Some(Code::EXCESSIVE_LOAD));
}

/// The deadline of an idle connection runs until it has said which requests are its last.
#[test]
fn idle_deadline_runs_until_the_last_goaway() {
    let mut server = End::new(Role::Server);
    let idle = Timeouts::default().idle.expect("a deadline by default");
    assert_eq!(server.http.next_timeout(), Some(Instant::ZERO + idle));
    for deadline in [Some(Instant::ZERO + idle), None] {
        server.http.shutdown(&mut server.wire);
        server.http.flush(Instant::ZERO, &mut server.wire);
        assert_eq!(server.http.next_timeout(), deadline);
    }
}

/// A client that takes no field section of any size, and sends one that is too large:
/// the answer 431 cannot be sent, so the request is reset.
#[test]
fn section_too_large_from_a_client_that_takes_no_answer_is_reset() {
    let mut server = End::new(Role::Server);
    let mut wire = MemoryTransport::new(Role::Server);
    let config = Config {
        grease: false,
        ..Config::default()
    };
    server.http = Connection::new(Role::Server, config.into(), 1);
    server.http.start(&mut wire);
    server.wire = wire;
    let control = server.uni(0);
    // SETTINGS_MAX_FIELD_SECTION_SIZE = 0.
    server.wire.feed(control, &[0x00, 0x04, 0x02, 0x06, 0x00]);
    server.turn();
    server.wire.feed(request(0), &frame(HEADERS, &[0; 70_000]));
    server.turn();
    assert_eq!(server.http.counters().too_large, 1);
    let refused = server.wire.reset_and_stop_codes(request(0)).0;
    assert_eq!(refused, Some(Code::MESSAGE_ERROR.0));
    assert_eq!(server.wire.sent(request(0)), (&[][..], false));
}
