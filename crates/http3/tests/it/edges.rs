//! Unusual events and calls: each call and frame in a state in which it has no effect or ends
//! something.

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

use crate::hostile::hostile_peer::{
    CANCEL_PUSH, DATA, HEADERS, PRIORITY_UPDATE, frame, get, headers, ok, request as fields,
};
use crate::memory::{MemoryEndpoint, request};

/// A server that has received a POST whose body has begun.
fn server_with_body() -> MemoryEndpoint {
    let mut server = MemoryEndpoint::new(Role::Server);
    server.transport.feed(request(0), &headers(&fields("POST")));
    server
        .transport
        .feed(request(0), &frame(DATA, &[7; 50])[..22]);
    let events = server.process();
    assert!(matches!(events[0], Event::Request { end: false, .. }));
    server
}

#[test]
fn reset_within_a_data_frame_fails_the_read_with_its_code() {
    let mut server = server_with_body();
    let body = server.http.read_body(&mut server.transport, request(0));
    assert!(body.is_ok(), "{body:?}");
    // The application reads before the event is processed.
    server.transport.feed_reset(request(0), 0x10c);
    let body = server.http.read_body(&mut server.transport, request(0));
    assert_eq!(body, Err(BodyError::Reset(Code(0x10c))));
    server.process();
    assert_eq!(server.http.error(), None);
}

#[test]
fn read_of_an_unknown_stream_is_an_error() {
    let mut server = server_with_body();
    let body = server.http.read_body(&mut server.transport, request(9));
    assert_eq!(body, Err(BodyError::Unknown));
}

#[test]
fn calls_for_an_unknown_stream_have_no_effect() {
    let mut server = server_with_body();
    let (http, transport) = (&mut server.http, &mut server.transport);
    http.reset(transport, request(9), Code::NO_ERROR);
    http.stop(transport, request(9), Code::NO_ERROR);
    http.cancel(transport, request(9));
    assert_eq!(transport.reset_and_stop_codes(request(9)), (None, None));
    assert_eq!(http.finish(transport, request(9)), Err(SendError::Unknown));
    let priority = Priority::default();
    assert_eq!(
        http.set_priority(transport, request(9), priority),
        Err(SendError::Unknown)
    );
    assert_eq!((http.open_requests(), http.error()), (1, None));
}

#[test]
fn datagram_is_dropped_and_counted_if_not_enabled() {
    let mut server = server_with_body();
    server.transport.feed_datagram(b"\x00hello");
    server.process();
    assert_eq!(server.http.recv_datagram(&mut server.transport), None);
    assert_eq!(server.http.counters().datagrams_dropped, 1);
}

#[test]
fn datagram_is_not_received_after_the_connection_failed() {
    let config = Config {
        datagrams: true,
        ..Config::default()
    };
    let mut server = MemoryEndpoint::with(Role::Server, config);
    server.transport.feed(request(0), &get());
    server.process();
    server.transport.feed_datagram(b"\x00hello");
    let control = server.uni(0);
    server.transport.feed(control, &frame(CANCEL_PUSH, &[3]));
    server.receive();
    let code = server.http.error().map(|error| error.code);
    assert_eq!(code, Some(Code::ID_ERROR));
    assert_eq!(server.http.recv_datagram(&mut server.transport), None);
}

fn respond_early(server: &mut MemoryEndpoint) {
    let (http, transport) = (&mut server.http, &mut server.transport);
    http.respond(transport, request(0), &Response::new(200), true)
        .expect("a response");
    http.stop(transport, request(0), Code::NO_ERROR);
}

/// Lets deadlines pass for up to `seconds`. Returns when the client was asked to stop sending.
fn stopped_within(server: &mut MemoryEndpoint, id: StreamId, seconds: u64) -> Option<Duration> {
    let mut now = Instant::ZERO;
    server.http.flush(now, &mut server.transport);
    while let Some(at) = server.http.next_timeout() {
        now = now.max(at);
        let passed = now.saturating_since(Instant::ZERO);
        if passed > Duration::from_secs(seconds) {
            break;
        }
        server.http.handle_timeout(now, &mut server.transport);
        if server.transport.reset_and_stop_codes(id).1.is_some() {
            return Some(passed);
        }
    }
    None
}

/// The client neither ends its request nor sends a body: it has some seconds for it, also if the
/// connection releases its memory meanwhile.
#[test]
fn answered_request_that_never_ends_is_stopped_after_a_timeout() {
    for (delivered, released) in [(false, false), (true, false), (true, true)] {
        let mut server = MemoryEndpoint::new(Role::Server);
        server.transport.feed(request(0), &get());
        server.process();
        respond_early(&mut server);
        if delivered {
            server.transport.feed_ack(request(0));
        }
        server.process();
        if released {
            server.http.release();
        }
        assert_eq!(
            server.transport.reset_and_stop_codes(request(0)),
            (None, None)
        );
        let waited = stopped_within(&mut server, request(0), 30);
        let code = server.transport.reset_and_stop_codes(request(0)).1;
        assert_eq!(code, Some(Code::NO_ERROR.0), "{delivered} {released}");
        let waited = waited.expect("stopped").as_secs();
        assert!((5..=15).contains(&waited), "{waited} s");
    }
}

/// Only `NO_ERROR` gives the client time.
#[test]
fn stop_with_an_error_code_is_sent_immediately() {
    let mut server = MemoryEndpoint::new(Role::Server);
    server.transport.feed(request(0), &get());
    server.process();
    let (http, transport) = (&mut server.http, &mut server.transport);
    http.stop(transport, request(0), Code::REQUEST_CANCELLED);
    let code = Some(Code::REQUEST_CANCELLED.0);
    assert_eq!(transport.reset_and_stop_codes(request(0)), (None, code));
}

#[test]
fn reset_of_a_discarded_request_is_not_reported() {
    let mut server = MemoryEndpoint::new(Role::Server);
    server.transport.feed(request(0), &get());
    server.process();
    respond_early(&mut server);
    let mut trailers = frame(HEADERS, &[0; 800]);
    trailers.truncate(600);
    server.transport.feed(request(0), &trailers);
    server.process();
    server.transport.feed_reset(request(0), 0x10c);
    server.transport.feed_ack(request(0));
    let events = server.process();
    // The response was complete, so no work can be saved.
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(server.http.unacknowledged_messages(), 0);
    assert_eq!(stopped_within(&mut server, request(0), 30), None);
    assert_eq!(
        server.transport.reset_and_stop_codes(request(0)),
        (None, None)
    );
}

#[test]
fn oversized_trailers_of_a_discarded_request_keep_the_connection() {
    let mut server = MemoryEndpoint::new(Role::Server);
    server.transport.feed(request(0), &get());
    server.process();
    respond_early(&mut server);
    let section = vec![0; 200_000];
    server.transport.feed(request(0), &frame(HEADERS, &section));
    server.process();
    server.transport.feed(request(1), &get());
    assert_eq!(server.process().len(), 1);
}

#[test]
fn body_after_an_early_response_is_stopped_with_no_error() {
    let mut server = server_with_body();
    respond_early(&mut server);
    server.process();
    assert_eq!(
        server.transport.reset_and_stop_codes(request(0)),
        (None, Some(Code::NO_ERROR.0))
    );
}

#[test]
fn release_frees_the_memory_of_discarded_requests() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 0..50 {
        server.transport.feed(request(n), &get());
    }
    server.process();
    for n in 0..50 {
        let (http, transport) = (&mut server.http, &mut server.transport);
        http.respond(transport, request(n), &Response::new(200), true)
            .expect("a response");
        http.stop(transport, request(n), Code::NO_ERROR);
    }
    server.process();
    for n in 0..49 {
        server.transport.feed_end(request(n));
        server.transport.feed_ack(request(n));
    }
    server.process();
    let busy = server.http.memory();
    server.http.release();
    let rested = server.http.memory();
    assert!(rested + 2_000 < busy, "{busy} bytes, then {rested}");
    // The last one is still there.
    server.transport.feed_end(request(49));
    server.transport.feed_ack(request(49));
    server.process();
    assert_eq!(server.http.unacknowledged_messages(), 0);
}

/// RFC 9114 §7.2.4.1 and RFC 9297 §2.1.1: a flag may be sent although it is off.
#[test]
fn settings_with_a_flag_of_zero_are_accepted() {
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
fn extended_connect_with_an_invalid_protocol_is_malformed() {
    let config = Config {
        extended_connect: true,
        ..Config::default()
    };
    for (protocol, taken) in [("websocket", true), ("web socket", false)] {
        let mut server = MemoryEndpoint::with(Role::Server, config.clone());
        let connect = headers(&[
            (":method", "CONNECT"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            (":protocol", protocol),
        ]);
        server.transport.feed(request(0), &connect);
        let events = server.process();
        assert_eq!(events.len(), usize::from(taken), "{protocol}: {events:?}");
        assert_eq!(server.http.counters().malformed, u64::from(!taken));
    }
}

#[test]
fn priority_update_for_a_completed_request_is_ignored() {
    let mut server = MemoryEndpoint::new(Role::Server);
    server.transport.feed(request(0), &get());
    server.transport.feed_end(request(0));
    server.process();
    let (http, transport) = (&mut server.http, &mut server.transport);
    http.respond(transport, request(0), &Response::new(200), true)
        .expect("a response");
    transport.feed_ack(request(0));
    server.process();
    let mut update = Vec::new();
    put_varint(&mut update, request(0).as_u64());
    update.extend_from_slice(b"u=1");
    let control = server.uni(0);
    server
        .transport
        .feed(control, &frame(PRIORITY_UPDATE, &update));
    assert!(server.process().is_empty());
    assert_eq!(server.http.counters().priorities_dropped, 0);
}

#[test]
fn response_and_its_end_are_reported_together() {
    let mut client = MemoryEndpoint::new(Role::Client);
    let get = Request::get("localhost", "/");
    let (http, transport) = (&mut client.http, &mut client.transport);
    let id = http.request(transport, &get, true).expect("a request");
    client.process();
    client.transport.feed(id, &ok());
    // Both arrive before the client processes events.
    let mut events = Vec::new();
    client.transport.feed_end(id);
    events.extend(client.process());
    assert!(matches!(events[..], [Event::Response { end: true, .. }]));
}

#[test]
fn interim_responses_above_the_limit_fail_the_request() {
    let config = Config::default();
    let limit = config.limits.max_informational;
    let mut client = MemoryEndpoint::with(Role::Client, config);
    let get = Request::get("localhost", "/");
    let (http, transport) = (&mut client.http, &mut client.transport);
    let id = http.request(transport, &get, true).expect("a request");
    for _ in 0..limit {
        client.transport.feed(id, &headers(&[(":status", "103")]));
    }
    assert_eq!(client.process().len(), usize::from(limit));
    client.transport.feed(id, &headers(&[(":status", "103")]));
    let events = client.process();
    assert!(
        matches!(&events[..], [Event::Failed { error, .. }] if error.code == Code::EXCESSIVE_LOAD),
        "{events:?}"
    );
}

#[test]
fn final_response_with_an_interim_status_is_rejected() {
    let mut server = server_with_body();
    let early = Response::new(103);
    let (http, transport) = (&mut server.http, &mut server.transport);
    let refused = http.respond(transport, request(0), &early, true);
    assert!(
        matches!(refused, Err(SendError::Malformed(_))),
        "{refused:?}"
    );
    // Nothing was sent, so a valid response can be.
    http.respond(transport, request(0), &Response::new(200), true)
        .expect("a response");
}

#[test]
fn urgency_above_seven_is_rejected() {
    let mut server = server_with_body();
    let (http, transport) = (&mut server.http, &mut server.transport);
    for (urgency, taken) in [(7, true), (8, false)] {
        let priority = Priority {
            urgency,
            ..Priority::default()
        };
        let set = http.set_priority(transport, request(0), priority);
        assert_eq!(set.is_ok(), taken, "{urgency}");
    }
    let set = http.priority(request(0)).map(|priority| priority.urgency);
    assert_eq!(set, Some(7));
}

#[test]
fn server_cannot_send_requests() {
    let mut server = server_with_body();
    let (http, transport) = (&mut server.http, &mut server.transport);
    let refused = http.request(transport, &Request::get("localhost", "/"), true);
    assert!(matches!(refused, Err(SendError::OutOfOrder(_))));
}

#[test]
fn body_that_differs_from_its_content_length_is_rejected() {
    let mut server = server_with_body();
    let (http, transport) = (&mut server.http, &mut server.transport);
    let five = Response::new(200).with("content-length", "5");
    let body = Bytes::from_static(b"1234");
    let refused = http.respond_with_body(transport, request(0), &five, body);
    assert_eq!(refused.map(drop), Err(SendError::WrongLength));
    let body = Bytes::from_static(b"12345");
    http.respond_with_body(transport, request(0), &five, body)
        .expect("a response");
}

#[test]
fn calls_fail_after_the_connection_has_failed() {
    let mut client = MemoryEndpoint::new(Role::Client);
    let get = Request::get("localhost", "/");
    let (http, transport) = (&mut client.http, &mut client.transport);
    let id = http.request(transport, &get, false).expect("a request");
    let control = client.uni(0);
    client.transport.feed(control, &frame(CANCEL_PUSH, &[3]));
    client.receive();
    let (http, transport) = (&mut client.http, &mut client.transport);
    assert_eq!(http.request(transport, &get, true), Err(SendError::Closed));
    assert_eq!(http.finish(transport, id), Err(SendError::Closed));
    let set = http.set_priority(transport, id, Priority::default());
    assert_eq!(set, Err(SendError::Closed));
    assert_eq!(http.read_body(transport, id), Err(BodyError::Closed));
}

#[test]
fn write_on_a_stopped_stream_returns_the_peers_code() {
    let mut client = MemoryEndpoint::new(Role::Client);
    let post = Request::new("POST", "localhost", "/");
    let (http, transport) = (&mut client.http, &mut client.transport);
    let id = http.request(transport, &post, false).expect("a request");
    client.process();
    client.transport.feed_stop(id, Code::NO_ERROR.0);
    // Before the event is processed.
    let mut body = Bytes::from_static(b"body");
    let (http, transport) = (&mut client.http, &mut client.transport);
    let stopped = http.write_body(transport, id, &mut body);
    assert_eq!(stopped, Err(SendError::Stopped(Code::NO_ERROR)));
    client.process();
    let (http, transport) = (&mut client.http, &mut client.transport);
    let again = http.write_body(transport, id, &mut body);
    assert!(
        matches!(again, Err(SendError::Unknown | SendError::Stopped(_))),
        "{again:?}"
    );
}

#[test]
fn deadlines_are_described_in_words() {
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
fn no_deadline_is_set_without_timeouts() {
    let config = Config {
        timeouts: Timeouts::none(),
        ..Config::default()
    };
    let mut server = MemoryEndpoint::with(Role::Server, config);
    server.process();
    assert_eq!(server.http.next_timeout(), None);
    assert_eq!(server.http.role(), Role::Server);
}

/// The limits of header sections apply to trailer sections too.
#[test]
fn trailers_above_the_limit_fail_the_request_and_are_counted() {
    let mut server = MemoryEndpoint::new(Role::Server);
    server.transport.feed(request(0), &headers(&fields("POST")));
    server.process();
    server
        .transport
        .feed(request(0), &headers(&[("t", &"v".repeat(70_000))]));
    server.process();
    let body = server.http.read_body(&mut server.transport, request(0));
    assert!(matches!(body, Err(BodyError::Failed(_))), "{body:?}");
    assert_eq!(server.http.counters().too_large, 1);
    assert!(
        server
            .transport
            .reset_and_stop_codes(request(0))
            .0
            .is_some()
    );
}

/// RFC 8941 §3.3.1: integers may have several digits.
#[test]
fn urgency_with_several_digits_is_parsed_as_one_integer() {
    for (value, urgency) in [("u=12", 3), ("u=10", 3), ("u=005", 5), ("u=-0", 0)] {
        let parsed = Priority::parse(value.as_bytes());
        assert_eq!(parsed.urgency, urgency, "{value}");
    }
}

/// RFC 9114 §7.2.4: SETTINGS is the first frame, even if a request is sent first.
#[test]
fn request_before_start_sends_settings_first() {
    let config = Config {
        grease: false,
        ..Config::default()
    };
    let mut http = Connection::new(Role::Client, config.into(), 1);
    let mut transport = MemoryTransport::new(Role::Client);
    let get = Request::get("localhost", "/");
    http.request(&mut transport, &get, true).expect("a request");
    let control = StreamId::new(Role::Client, Directionality::Unidirectional, 0);
    let (sent, _) = transport.sent(control);
    // The type of the stream, and of the frame.
    assert_eq!(sent.get(..2), Some(&[0, 4][..]));
}

/// RFC 9114 §6.2.3: a stream of a reserved type, if that is configured.
#[test]
fn reserved_stream_is_opened_only_with_grease() {
    for grease in [false, true] {
        let config = Config {
            grease,
            ..Config::default()
        };
        let mut http = Connection::new(Role::Client, config.into(), 0x1234_5678_9abc);
        let mut transport = MemoryTransport::new(Role::Client);
        http.start(&mut transport);
        let fourth = StreamId::new(Role::Client, Directionality::Unidirectional, 3);
        let (sent, ended) = transport.sent(fourth);
        assert_eq!((!sent.is_empty(), ended), (grease, grease));
        if grease {
            let mut kind = clearway_quic::wire::Reader::new(sent);
            let kind = kind.varint().expect("a type");
            assert_eq!(kind.checked_sub(0x21).map(|n| n % 0x1f), Some(0), "{kind}");
        }
    }
}

/// The client abandons one of two requests and waits for the other response: completed requests
/// make up for abandoned ones.
#[test]
fn completed_request_makes_up_for_an_abandoned_one() {
    let mut config = Config::default();
    config.limits.abandoned_burst = 2;
    config.limits.abandoned_per_second = 0;
    let mut server = MemoryEndpoint::with(Role::Server, config);
    let abandon = |server: &mut MemoryEndpoint, n| {
        server.transport.feed(request(n), &get());
        server.process();
        server.transport.feed_reset(request(n), 0x10c);
        server.transport.feed_stop(request(n), 0x10c);
        server.receive();
        while server.http.poll_event().is_some() {}
    };
    for n in 0..10 {
        abandon(&mut server, 2 * n);
        let id = request(2 * n + 1);
        server.transport.feed(id, &get());
        // Every other response is acknowledged before its request has ended.
        if n % 2 == 0 {
            server.transport.feed_end(id);
        }
        server.process();
        let (http, transport) = (&mut server.http, &mut server.transport);
        http.respond(transport, id, &Response::new(200), true)
            .expect("a response");
        server.transport.feed_ack(id);
        server.process();
    }
    for n in 20..23 {
        abandon(&mut server, n);
    }
    let code = server.http.error().map(|error| error.code);
    assert_eq!(code, Some(Code::EXCESSIVE_LOAD));
}

/// The deadline of an idle connection is set until the final GOAWAY.
#[test]
fn idle_deadline_is_set_until_the_final_goaway() {
    let mut server = MemoryEndpoint::new(Role::Server);
    let idle = Timeouts::default().idle.expect("a deadline by default");
    assert_eq!(server.http.next_timeout(), Some(Instant::ZERO + idle));
    for deadline in [Some(Instant::ZERO + idle), None] {
        server.http.shutdown(&mut server.transport);
        server.http.flush(Instant::ZERO, &mut server.transport);
        assert_eq!(server.http.next_timeout(), deadline);
    }
}

/// A client that accepts no field section at all sends one that is too large: the 431 response
/// cannot be sent, so the request is reset.
#[test]
fn oversized_request_is_reset_if_431_cannot_be_sent() {
    let mut server = MemoryEndpoint::new(Role::Server);
    let mut transport = MemoryTransport::new(Role::Server);
    let config = Config {
        grease: false,
        ..Config::default()
    };
    server.http = Connection::new(Role::Server, config.into(), 1);
    server.http.start(&mut transport);
    server.transport = transport;
    let control = server.uni(0);
    // SETTINGS_MAX_FIELD_SECTION_SIZE = 0.
    server
        .transport
        .feed(control, &[0x00, 0x04, 0x02, 0x06, 0x00]);
    server.process();
    server
        .transport
        .feed(request(0), &frame(HEADERS, &[0; 70_000]));
    server.process();
    assert_eq!(server.http.counters().too_large, 1);
    let refused = server.transport.reset_and_stop_codes(request(0)).0;
    assert_eq!(refused, Some(Code::MESSAGE_ERROR.0));
    assert_eq!(server.transport.sent(request(0)), (&[][..], false));
}
