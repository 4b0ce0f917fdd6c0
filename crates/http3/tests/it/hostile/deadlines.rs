//! Clients that keep a server waiting while their transport stays active: each deadline acts in
//! time, and only on the stream that it is for ([`clearway_http3::Timeouts`]).

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use clearway_http3::testing::MemoryTransport;
use clearway_http3::{
    Body, BodyError, Code, Config, Connection, Deadline, Event, Request, Response, Timeouts,
};
use clearway_quic::connection::ConnectionError;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use crate::common::{CLEAN_PATH, Setup, World, pattern};
use crate::exchange::pair::{Pair, get as plain_get};
use crate::hostile::hostile_peer::*;

/// When a sampled deadline of a minute may act, in seconds.
const MINUTE: core::ops::Range<u64> = 60..69;

/// A setup whose client sends PINGs, so that the transport does not time out.
fn setup_with_keep_alive() -> Setup {
    let mut setup = Setup::default();
    setup.client_quic.keep_alive = Some(Duration::from_secs(10));
    setup
}

fn test_with_keep_alive() -> HostileTest {
    HostileTest::with(Role::Client, setup_with_keep_alive())
}

/// Returns how many seconds pass until the server reports an event for which `done` is true, while
/// `each` is called every second. `None` means not within a quarter of an hour.
fn wait_for(
    test: &mut HostileTest,
    mut each: impl FnMut(&mut HostileTest, u64),
    mut done: impl FnMut(&Event) -> bool,
) -> Option<u64> {
    let begun = test.world.now;
    (0..900).find(|&second| {
        each(test, second);
        test.world.run_for(Duration::from_secs(1));
        test.world
            .server
            .app
            .events
            .drain(..)
            .any(|event| done(&event))
    })?;
    Some(test.world.now.saturating_since(begun).as_secs())
}

/// Waits until the server resets a stream.
fn wait_for_reset(
    test: &mut HostileTest,
    id: StreamId,
    mut each: impl FnMut(&mut HostileTest, u64),
) -> (Option<Code>, Option<u64>) {
    let mut code = None;
    let begun = test.world.now;
    for second in 0..900 {
        each(test, second);
        test.world.run_for(Duration::from_millis(900));
        code = test.reset_and_stop_codes(id).0;
        if code.is_some() {
            break;
        }
    }
    (code, Some(test.world.now.saturating_since(begun).as_secs()))
}

fn assert_within(range: core::ops::Range<u64>, second: Option<u64>) {
    assert!(
        second.is_some_and(|second| range.contains(&second)),
        "after {second:?} s, expected {range:?}"
    );
}

fn timed_out(deadline: Deadline) -> impl FnMut(&Event) -> bool {
    move |event| matches!(event, Event::TimedOut { deadline: it, .. } if *it == deadline)
}

/// Sends a response of `len` bytes, as the client accepts it.
fn respond(test: &mut HostileTest, id: StreamId, len: usize) {
    let (http, quic) = test.world.server.split();
    http.respond_with_body(quic, id, &Response::new(200), pattern(len))
        .expect("responds");
}

/// Connects two regular endpoints over a link.
fn pair_over(setup: Setup, link: &str) -> Pair {
    let mut world = World::new(setup, link, 1);
    world.handshake();
    Pair::new(world)
}

#[test]
fn header_section_sent_byte_by_byte_is_rejected() {
    let mut test = test_with_keep_alive();
    let bytes = get();
    let id = test.bidi(&bytes[..1]);
    let mut rest = bytes[1..].iter();
    let (code, second) = wait_for_reset(&mut test, id, |test, second| {
        if second % 10 == 0
            && let Some(byte) = rest.next()
        {
            test.write(id, &[*byte]);
        }
    });
    assert_eq!(code, Some(Code::REQUEST_REJECTED));
    assert_within(MINUTE, second);
    assert_eq!(test.world.server.app.counters().timed_out, 1);
    assert_eq!(test.world.server.app.open_requests(), 0);
    test.assert_serves();
}

#[test]
fn header_section_blocked_on_the_dynamic_table_is_rejected() {
    let mut test = test_with_keep_alive();
    test.uni(&[2, 0x3f, 0xe1, 0x1f]);
    let section = [0x02, 0x00, 0xd1, 0xd7, 0x50, 0x01, b'h', 0xc1, 0x80];
    let id = test.bidi_with_end(&frame(HEADERS, &section));
    let (code, second) = wait_for_reset(&mut test, id, |_, _| {});
    assert_eq!(code, Some(Code::REQUEST_REJECTED));
    assert_within(MINUTE, second);
    test.assert_serves();
}

/// RFC 9000 §2.1: a stream opens those before it. Without a byte it is not a request.
/// The request of a session waits for the client's SETTINGS, but not for ever.
#[test]
fn session_of_a_client_without_settings_is_rejected_and_the_connection_becomes_idle() {
    let mut setup = Setup::for_sessions();
    setup.client_quic.keep_alive = Some(Duration::from_secs(10));
    let mut test = HostileTest::without_settings(Role::Client, setup);
    let connect = headers(&[
        (":method", "CONNECT"),
        (":protocol", "webtransport"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/"),
    ]);
    let id = test.bidi(&connect);
    // Whatever arrives on its stream meanwhile.
    let (code, second) =
        wait_for_reset(&mut test, id, |test, _| test.write(id, &frame(DATA, b"x")));
    assert_eq!(code, Some(Code::REQUEST_REJECTED));
    assert_within(MINUTE, second);
    let server = &test.world.server.app;
    assert_eq!(
        (server.counters().timed_out, server.open_requests()),
        (1, 0)
    );
    let requests = server.events.iter();
    let requests = requests.filter(|event| matches!(event, Event::Request { .. }));
    assert_eq!(requests.count(), 0);
    test.world.run_for(Duration::from_secs(90));
    assert_eq!(test.close_code(), Some(Code::NO_ERROR));
}

#[test]
fn empty_stream_has_no_deadline_and_is_not_a_request() {
    let mut test = test_with_keep_alive();
    let silent = test.open(Directionality::Bidirectional);
    test.assert_serves();
    test.world.run_for(Duration::from_secs(70));
    assert_eq!(test.reset_and_stop_codes(silent), (None, None));
    assert_eq!(test.world.server.app.counters().timed_out, 0);
    test.world.run_for(Duration::from_secs(15));
    assert_eq!(test.close_code(), Some(Code::NO_ERROR), "idle");
}

#[test]
fn silent_body_fails_the_read_after_the_timeout() {
    let mut test = test_with_keep_alive();
    let id = test.bidi(&[headers(&request("POST")), frame(DATA, b"begun")].concat());
    assert_eq!(test.read_all(id), Ok(b"begun".to_vec()));
    let reported = timed_out(Deadline::RequestBody);
    let second = wait_for(&mut test, |_, _| {}, reported);
    assert_within(MINUTE, second);
    assert_eq!(test.read_all(id), Err(BodyError::Unknown));
    let refusal = Some(Code::REQUEST_INCOMPLETE);
    assert_eq!(test.reset_and_stop_codes(id), (refusal, refusal));
    test.assert_serves();
}

#[test]
fn slow_body_fails_the_read_after_five_minutes() {
    let mut test = test_with_keep_alive();
    let id = test.bidi(&headers(&request("POST")));
    let second = wait_for(
        &mut test,
        |test, second| {
            if second % 20 == 0 {
                test.write(id, &frame(DATA, b"x"));
            }
            let (http, quic) = test.world.server.split();
            while let Ok(Body::Data(_)) = http.read_body(quic, id) {}
        },
        timed_out(Deadline::RequestBody),
    );
    assert_within(300..340, second);
}

#[test]
fn body_above_the_minimum_rate_is_read() {
    let mut test = test_with_keep_alive();
    let id = test.bidi(&headers(&request("POST")));
    let second = wait_for(
        &mut test,
        |test, second| {
            if second % 30 == 0 {
                test.write(id, &frame(DATA, &[7; 7_500]));
            }
            let (http, quic) = test.world.server.split();
            while let Ok(Body::Data(_)) = http.read_body(quic, id) {}
        },
        timed_out(Deadline::RequestBody),
    );
    assert_eq!(second, None);
}

/// The client need not send what the application does not read.
#[test]
fn unread_body_has_no_deadline() {
    let mut test = test_with_keep_alive();
    test.bidi(&headers(&request("POST")));
    test.bidi(&[headers(&request("POST")), frame(DATA, b"unread")].concat());
    let second = wait_for(
        &mut test,
        |_, _| {},
        |event| matches!(event, Event::TimedOut { .. } | Event::Closed(_)),
    );
    assert_eq!((second, test.world.server.app.closed.clone()), (None, None));
}

#[test]
fn silent_tunnel_has_no_deadline() {
    let mut test = test_with_keep_alive();
    let connect = headers(&[(":method", "CONNECT"), (":authority", "h:1")]);
    let id = test.bidi(&connect);
    test.run();
    let (http, quic) = test.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    assert_eq!(http.read_body(quic, id), Ok(Body::Blocked));
    let second = wait_for(
        &mut test,
        |_, _| {},
        |event| matches!(event, Event::TimedOut { .. } | Event::Closed(_)),
    );
    assert_eq!(second, None);
    test.write(id, &frame(DATA, b"at last"));
    assert_eq!(test.read_all(id), Ok(b"at last".to_vec()));
}

/// A client gives a stream, or all streams together, no flow control credit: the memory of its
/// responses is released.
#[test]
fn responses_without_flow_control_credit_are_reset() {
    for (stream, connection) in [(0, 1 << 20), (1 << 20, 0), (100, 1 << 20), (1 << 20, 100)] {
        let mut setup = setup_with_keep_alive();
        setup.client_quic.streams.stream_window = stream;
        setup.client_quic.streams.connection_window = connection;
        let mut test = HostileTest::with(Role::Client, setup);
        let ids: Vec<StreamId> = (0..20).map(|_| test.bidi_with_end(&get())).collect();
        test.run();
        for &id in &ids {
            respond(&mut test, id, 100_000);
        }
        test.run();
        let held = test.world.server.connection().memory_usage().streams;
        assert!(held > 100_000, "{held} bytes");
        test.world.run_for(Duration::from_secs(58));
        assert_eq!(test.world.server.app.counters().timed_out, 0);
        test.world.run_for(Duration::from_secs(10));
        let what = format!("stream {stream}, connection {connection}");
        assert_eq!(test.world.server.app.counters().timed_out, 20, "{what}");
        assert_eq!(test.world.server.app.open_requests(), 0, "{what}");
        assert_eq!(test.world.server.app.unacknowledged_messages(), 0, "{what}");
        for id in ids {
            let cancelled = Some(Code::REQUEST_CANCELLED);
            assert_eq!(test.reset_and_stop_codes(id), (cancelled, None), "{what}");
        }
        test.run();
        let held = test.world.server.connection().memory_usage().streams;
        assert!(held < 16_000, "{what}: {held} bytes");
        assert_eq!(test.world.server.app.closed, None, "{what}");
    }
}

/// The application is told, so that it can drop what it has not written.
#[test]
fn response_timeout_is_reported_to_the_application() {
    let mut setup = setup_with_keep_alive();
    setup.client_quic.streams.stream_window = 100;
    let mut test = HostileTest::with(Role::Client, setup);
    let id = test.bidi_with_end(&get());
    test.run();
    let (http, quic) = test.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    let mut written = 0;
    while http.write_body(quic, id, &mut pattern(50_000)).is_ok() {
        written += 50_000;
        assert!(written < 1 << 20, "never blocked");
    }
    let reported = timed_out(Deadline::Response);
    let second = wait_for(&mut test, |_, _| {}, reported);
    assert_within(MINUTE, second);
    let (http, quic) = test.world.server.split();
    assert!(
        http.write_body(quic, id, &mut Bytes::from_static(b"x"))
            .is_err()
    );
    assert_eq!(http.open_requests(), 0);
}

/// A little credit now and then does not keep a response open for ever.
#[test]
fn response_read_too_slowly_is_reset_after_five_minutes() {
    let mut setup = setup_with_keep_alive();
    setup.client_quic.streams.stream_window = 20;
    let mut test = HostileTest::with(Role::Client, setup);
    let id = test.bidi_with_end(&get());
    test.run();
    respond(&mut test, id, 100_000);
    let mut taken = 0;
    let mut refused = None;
    for second in 0..900 {
        if second % 20 == 0 {
            let read = test.world.client.connection().read_chunk(id, 20);
            taken += read.ok().flatten().map_or(0, |bytes| bytes.len());
        }
        test.world.run_for(Duration::from_secs(1));
        if test.world.server.app.counters().timed_out > 0 {
            refused = Some(second);
            break;
        }
    }
    assert!(taken > 100, "{taken} bytes taken");
    assert_within(300..345, refused);
}

/// The same client, reading fast enough.
#[test]
fn response_read_above_the_minimum_rate_is_completed() {
    let mut setup = setup_with_keep_alive();
    setup.client_quic.streams.stream_window = 2_000;
    let mut test = HostileTest::with(Role::Client, setup);
    let id = test.bidi_with_end(&get());
    test.run();
    respond(&mut test, id, 100_000);
    let mut taken = 0;
    for second in 0..1_200 {
        if second % 4 == 0 {
            let read = test.world.client.connection().read_chunk(id, 2_000);
            taken += read.ok().flatten().map_or(0, |bytes| bytes.len());
        }
        test.world.run_for(Duration::from_secs(1));
    }
    assert_eq!(test.world.server.app.counters().timed_out, 0);
    assert!(taken > 100_000, "{taken} bytes taken");
}

/// Responses are sent one after the other (RFC 9218 §10): the last of them wait for minutes, which
/// is not the client's fault.
#[test]
fn responses_that_wait_for_others_are_not_reset() {
    let mut setup = Setup::default();
    setup.client_quic.streams.stream_window = 4 << 20;
    let mut pair = pair_over(setup, "rate=200k delay=50ms queue=50");
    let ids: Vec<StreamId> = (0..12).map(|_| pair.request(&plain_get(), true)).collect();
    let started = pair.world.now;
    let all = ids.clone();
    pair.serve(
        "all responses",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, (0..4).map(|_| pattern(100_000)).collect(), None);
        },
        move |client, _| all.iter().all(|id| client.log(*id).ended),
    );
    let took = pair.world.now.saturating_since(started);
    assert!(took > Duration::from_secs(120), "{took:?}");
    assert_eq!(pair.world.server.app.counters().timed_out, 0);
    for id in ids {
        assert_eq!(pair.client.log(id).body.len(), 400_000);
    }
}

/// A client that reads one response and gives another no credit.
#[test]
fn response_without_credit_is_reset_beside_one_in_progress() {
    let mut setup = setup_with_keep_alive();
    setup.client_quic.streams.stream_window = 20_000;
    let mut test = HostileTest::with(Role::Client, setup);
    let [taken, left] = [(); 2].map(|()| test.bidi_with_end(&get()));
    test.run();
    for id in [taken, left] {
        respond(&mut test, id, 2 << 20);
    }
    let mut read = 0;
    for _ in 0..70 {
        let chunk = test.world.client.connection().read_chunk(taken, 4_000);
        read += chunk.ok().flatten().map_or(0, |bytes| bytes.len());
        test.world.run_for(Duration::from_secs(1));
    }
    assert!(read > 100_000, "{read} bytes");
    assert_eq!(test.world.server.app.counters().timed_out, 1);
    assert_eq!(test.world.server.app.unacknowledged_messages(), 0);
    assert_eq!(test.world.server.app.open_requests(), 1);
    assert_eq!(
        test.reset_and_stop_codes(left).0,
        Some(Code::REQUEST_CANCELLED)
    );
    assert_eq!(test.reset_and_stop_codes(taken).0, None);
}

/// A host that was suspended or overloaded does not blame the client for it; after that the
/// deadline runs as usual.
#[test]
fn time_without_samples_does_not_count() {
    let mut transport = MemoryTransport::new(Role::Server);
    let mut config = Config::default();
    config.timeouts.idle = None;
    let mut http = Connection::new(Role::Server, Arc::new(config), 1);
    http.start(&mut transport);
    let id = transport.peer_stream(Directionality::Bidirectional, 0);
    transport.feed(id, &get()[..3]);
    while let Some(event) = transport.poll_event() {
        http.on_quic_event(&mut transport, &event);
    }
    let mut now = Instant::ZERO;
    http.flush(now, &mut transport);
    for hour in 1..5 {
        now = Instant::ZERO + Duration::from_secs(3_600 * hour);
        http.handle_timeout(now, &mut transport);
        assert_eq!(http.open_requests(), 1, "{hour} hours");
    }
    let begun = now;
    while http.open_requests() > 0 {
        now = http.next_timeout().expect("a deadline");
        http.handle_timeout(now, &mut transport);
    }
    let took = now.saturating_since(begun).as_secs();
    assert!((30..69).contains(&took), "{took} s");
    assert_eq!(
        transport.reset_and_stop_codes(id).0,
        Some(Code::REQUEST_REJECTED.0)
    );
}

/// Neither a silent server nor a slow handler is the client's fault.
#[test]
fn slow_handler_has_no_deadline() {
    let mut test = test_with_keep_alive();
    let id = test.bidi_with_end(&get());
    test.run();
    let second = wait_for(
        &mut test,
        |_, _| {},
        |event| matches!(event, Event::TimedOut { .. } | Event::Closed(_)),
    );
    assert_eq!((second, test.world.server.app.closed.clone()), (None, None));
    let (http, quic) = test.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    let second = wait_for(
        &mut test,
        |test, second| {
            if second % 100 == 0 {
                let (http, quic) = test.world.server.split();
                let _ = http.write_body(quic, id, &mut Bytes::from_static(b"an event"));
            }
        },
        |event| matches!(event, Event::TimedOut { .. } | Event::Closed(_)),
    );
    assert_eq!((second, test.world.server.app.closed.clone()), (None, None));
}

#[test]
fn idle_connection_sends_goaway_and_closes_with_no_error() {
    let mut test = test_with_keep_alive();
    test.assert_serves();
    test.world.run_for(Duration::from_secs(73));
    assert_eq!(test.world.server.app.closed, None);
    let going = (0..200).any(|_| {
        test.world.run_for(Duration::from_millis(50));
        test.world.server.app.is_going_away()
    });
    assert!(going, "no GOAWAY");
    // Too late, and rejected: it can be retried on another connection.
    let late = test.bidi_with_end(&get());
    assert_eq!(
        test.reset_and_stop_codes(late).0,
        Some(Code::REQUEST_REJECTED)
    );
    assert_eq!(test.close_code(), Some(Code::NO_ERROR));
}

/// Header sections that are never complete are not requests, however many there are.
#[test]
fn connection_with_only_incomplete_header_sections_is_idle() {
    let mut test = test_with_keep_alive();
    let mut second = 0;
    while test.world.server.app.closed.is_none() {
        if second % 10 == 0
            && let Some(id) = test
                .world
                .client
                .connection()
                .open(Directionality::Bidirectional)
        {
            test.write(id, &get()[..3]);
        }
        test.world.run_for(Duration::from_secs(1));
        second += 1;
        assert!(second < 200, "still open");
    }
    assert!((75..90).contains(&second), "after {second} s");
    assert_eq!(test.close_code(), Some(Code::NO_ERROR));
}

/// Five minutes of requests with a minute between them.
#[test]
fn connection_in_use_is_not_idle() {
    let mut test = test_with_keep_alive();
    for _ in 0..5 {
        test.assert_serves();
        test.world.run_for(Duration::from_secs(60));
    }
    test.assert_serves();
}

#[test]
fn connection_closes_at_the_drain_deadline() {
    let mut setup = setup_with_keep_alive();
    setup.server.timeouts.drain = Some(Duration::from_secs(20));
    let mut test = HostileTest::with(Role::Client, setup);
    test.bidi_with_end(&get());
    test.run();
    let (http, quic) = test.world.server.split();
    http.shutdown(quic);
    http.shutdown(quic);
    test.world.run_for(Duration::from_secs(19));
    assert_eq!(test.world.server.app.closed, None);
    test.world.run_for(Duration::from_secs(2));
    assert_eq!(test.close_code(), Some(Code::NO_ERROR));
}

#[test]
fn disabled_deadlines_never_act() {
    let mut setup = setup_with_keep_alive();
    setup.server.timeouts = Timeouts::none();
    setup.client_quic.streams.stream_window = 100;
    let mut test = HostileTest::with(Role::Client, setup);
    let dribbled = test.bidi(&get()[..3]);
    let body = test.bidi(&headers(&request("POST")));
    let stalled = test.bidi_with_end(&get());
    test.run();
    let (http, quic) = test.world.server.split();
    assert_eq!(http.read_body(quic, body), Ok(Body::Blocked));
    respond(&mut test, stalled, 100_000);
    test.world.run_for(Duration::from_secs(3_600));
    for id in [dribbled, body, stalled] {
        assert_eq!(test.reset_and_stop_codes(id), (None, None));
    }
    assert_eq!(test.world.server.app.counters().timed_out, 0);
    assert_eq!(test.world.server.app.closed, None);
}

/// A client has no deadlines: it may wait for a server as long as it wants.
#[test]
fn client_has_no_deadlines() {
    let mut world = World::new(setup_with_keep_alive(), CLEAN_PATH, 3);
    world.set_raw(Role::Server);
    world.handshake();
    let (http, quic) = world.client.split();
    let id = http
        .request(quic, &Request::get("localhost", "/"), true)
        .expect("a request");
    world.run_for(Duration::from_secs(3_600));
    assert_eq!(world.client.app.next_timeout(), None);
    assert_eq!(world.client.app.open_requests(), 1);
    assert_ne!(world.client.app.closed, Some(ConnectionError::IdleTimeout));
    let (http, quic) = world.client.split();
    http.cancel(quic, id);
}
