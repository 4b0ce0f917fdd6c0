//! Clients that keep a server waiting, and show all the while that they are there: each
//! deadline strikes in its time, and only whom it is for ([`clearway_http3::Timeouts`]).

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use clearway_http3::testing::Wire;
use clearway_http3::{
    Body, BodyError, Code, Config, Connection, Deadline, Event, Request, Response, Timeouts,
};
use clearway_quic::connection::ConnectionError;
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use crate::common::{CALM, Setup, World, pattern};
use crate::exchange::talk::{Talk, get as plain_get};
use crate::hostile::forger::*;

/// What a sampled deadline of a minute may take.
const MINUTE: core::ops::Range<u64> = 60..69;

/// A setup whose client sends PINGs, so that the transport stays up.
fn alive() -> Setup {
    let mut setup = Setup::default();
    setup.client_quic.keep_alive = Some(Duration::from_secs(10));
    setup
}

fn duel() -> Duel {
    Duel::with(Role::Client, alive())
}

/// Seconds until the server's HTTP tells of something, while `each` happens every
/// second; `None`: not within a quarter of an hour.
fn wait_for(
    duel: &mut Duel,
    mut each: impl FnMut(&mut Duel, u64),
    mut done: impl FnMut(&Event) -> bool,
) -> Option<u64> {
    let begun = duel.world.now;
    (0..900).find(|&second| {
        each(duel, second);
        duel.world.run_for(Duration::from_secs(1));
        duel.world.server.events.drain(..).any(|event| done(&event))
    })?;
    Some(duel.world.now.saturating_since(begun).as_secs())
}

/// The same until the server resets a stream.
fn wait_for_refusal(
    duel: &mut Duel,
    id: StreamId,
    mut each: impl FnMut(&mut Duel, u64),
) -> (Option<Code>, Option<u64>) {
    let mut code = None;
    let begun = duel.world.now;
    for second in 0..900 {
        each(duel, second);
        duel.world.run_for(Duration::from_millis(900));
        code = duel.refusal(id).0;
        if code.is_some() {
            break;
        }
    }
    (code, Some(duel.world.now.saturating_since(begun).as_secs()))
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

/// The server begins a response of so many bytes and goes on as it can.
fn respond(duel: &mut Duel, id: StreamId, len: usize) {
    let (http, quic) = duel.world.server.split();
    http.respond_with(quic, id, &Response::new(200), pattern(len))
        .expect("responds");
}

/// Two well-behaved ends over a link.
fn talk_over(setup: Setup, link: &str) -> Talk {
    let mut world = World::new(setup, link, 1);
    world.handshake();
    Talk::new(world)
}

#[test]
fn header_section_that_dribbles_in_is_rejected() {
    let mut duel = duel();
    let bytes = get();
    let id = duel.bidi(&bytes[..1]);
    let mut rest = bytes[1..].iter();
    let (code, second) = wait_for_refusal(&mut duel, id, |duel, second| {
        if second % 10 == 0
            && let Some(byte) = rest.next()
        {
            duel.write(id, &[*byte]);
        }
    });
    assert_eq!(code, Some(Code::REQUEST_REJECTED));
    assert_within(MINUTE, second);
    assert_eq!(duel.world.server.http().counters().timed_out, 1);
    assert_eq!(duel.world.server.http().open_requests(), 0);
    duel.assert_serves();
}

#[test]
fn header_section_that_waits_for_the_table_is_rejected() {
    let mut duel = duel();
    duel.uni(&[2, 0x3f, 0xe1, 0x1f]);
    let section = [0x02, 0x00, 0xd1, 0xd7, 0x50, 0x01, b'h', 0xc1, 0x80];
    let id = duel.whole(&frame(HEADERS, &section));
    let (code, second) = wait_for_refusal(&mut duel, id, |_, _| {});
    assert_eq!(code, Some(Code::REQUEST_REJECTED));
    assert_within(MINUTE, second);
    duel.assert_serves();
}

/// RFC 9000 §2.1: a stream opens those before it. Without a byte it is no request.
#[test]
fn stream_without_a_byte_is_not_timed_and_not_a_request() {
    let mut duel = duel();
    let silent = duel.open(Directionality::Bidirectional);
    duel.assert_serves();
    duel.world.run_for(Duration::from_secs(70));
    assert_eq!(duel.refusal(silent), (None, None));
    assert_eq!(duel.world.server.http().counters().timed_out, 0);
    duel.world.run_for(Duration::from_secs(15));
    assert_eq!(duel.closed(), Some(Code::NO_ERROR), "idle");
}

#[test]
fn body_that_stays_away_fails_the_read() {
    let mut duel = duel();
    let id = duel.bidi(&[headers(&request("POST")), frame(DATA, b"begun")].concat());
    assert_eq!(duel.read_all(id), Ok(b"begun".to_vec()));
    let hears = timed_out(Deadline::RequestBody);
    let second = wait_for(&mut duel, |_, _| {}, hears);
    assert_within(MINUTE, second);
    assert_eq!(duel.read_all(id), Err(BodyError::Unknown));
    let refusal = Some(Code::REQUEST_INCOMPLETE);
    assert_eq!(duel.refusal(id), (refusal, refusal));
    duel.assert_serves();
}

#[test]
fn body_that_dribbles_in_fails_the_read_after_five_minutes() {
    let mut duel = duel();
    let id = duel.bidi(&headers(&request("POST")));
    let second = wait_for(
        &mut duel,
        |duel, second| {
            if second % 20 == 0 {
                duel.write(id, &frame(DATA, b"x"));
            }
            let (http, quic) = duel.world.server.split();
            while let Ok(Body::Data(_)) = http.read_body(quic, id) {}
        },
        timed_out(Deadline::RequestBody),
    );
    assert_within(300..340, second);
}

#[test]
fn body_that_is_slow_enough_is_read() {
    let mut duel = duel();
    let id = duel.bidi(&headers(&request("POST")));
    let second = wait_for(
        &mut duel,
        |duel, second| {
            if second % 30 == 0 {
                duel.write(id, &frame(DATA, &[7; 7_500]));
            }
            let (http, quic) = duel.world.server.split();
            while let Ok(Body::Data(_)) = http.read_body(quic, id) {}
        },
        timed_out(Deadline::RequestBody),
    );
    assert_eq!(second, None);
}

/// What the application does not ask for, the client need not send.
#[test]
fn body_that_nobody_reads_is_not_timed() {
    let mut duel = duel();
    duel.bidi(&headers(&request("POST")));
    duel.bidi(&[headers(&request("POST")), frame(DATA, b"unread")].concat());
    let second = wait_for(
        &mut duel,
        |_, _| {},
        |event| matches!(event, Event::TimedOut { .. } | Event::Closed(_)),
    );
    assert_eq!((second, duel.world.server.closed), (None, None));
}

#[test]
fn tunnel_may_be_silent() {
    let mut duel = duel();
    let connect = headers(&[(":method", "CONNECT"), (":authority", "h:1")]);
    let id = duel.bidi(&connect);
    duel.run();
    let (http, quic) = duel.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    assert_eq!(http.read_body(quic, id), Ok(Body::Blocked));
    let second = wait_for(
        &mut duel,
        |_, _| {},
        |event| matches!(event, Event::TimedOut { .. } | Event::Closed(_)),
    );
    assert_eq!(second, None);
    duel.write(id, &frame(DATA, b"at last"));
    assert_eq!(duel.read_all(id), Ok(b"at last".to_vec()));
}

/// A client that grants a stream nothing, or all streams together nothing: what its
/// responses hold is given back.
#[test]
fn responses_that_get_no_credit_are_cut() {
    for (stream, connection) in [(0, 1 << 20), (1 << 20, 0), (100, 1 << 20), (1 << 20, 100)] {
        let mut setup = alive();
        setup.client_quic.streams.stream_window = stream;
        setup.client_quic.streams.connection_window = connection;
        let mut duel = Duel::with(Role::Client, setup);
        let ids: Vec<StreamId> = (0..20).map(|_| duel.whole(&get())).collect();
        duel.run();
        for &id in &ids {
            respond(&mut duel, id, 100_000);
        }
        duel.run();
        let held = duel.world.server.quic().memory_usage().streams;
        assert!(held > 100_000, "{held} bytes");
        duel.world.run_for(Duration::from_secs(58));
        assert_eq!(duel.world.server.http().counters().timed_out, 0);
        duel.world.run_for(Duration::from_secs(10));
        let what = format!("stream {stream}, connection {connection}");
        assert_eq!(duel.world.server.http().counters().timed_out, 20, "{what}");
        assert_eq!(duel.world.server.http().open_requests(), 0, "{what}");
        assert_eq!(duel.world.server.http().undelivered(), 0, "{what}");
        for id in ids {
            let cancelled = Some(Code::REQUEST_CANCELLED);
            assert_eq!(duel.refusal(id), (cancelled, None), "{what}");
        }
        duel.run();
        let held = duel.world.server.quic().memory_usage().streams;
        assert!(held < 16_000, "{what}: {held} bytes");
        assert_eq!(duel.world.server.closed, None, "{what}");
    }
}

/// The application hears of it, so that it can drop what it has not written.
#[test]
fn response_that_is_cut_is_told() {
    let mut setup = alive();
    setup.client_quic.streams.stream_window = 100;
    let mut duel = Duel::with(Role::Client, setup);
    let id = duel.whole(&get());
    duel.run();
    let (http, quic) = duel.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    let mut written = 0;
    while http.write_body(quic, id, &mut pattern(50_000)).is_ok() {
        written += 50_000;
        assert!(written < 1 << 20, "never blocked");
    }
    let hears = timed_out(Deadline::Response);
    let second = wait_for(&mut duel, |_, _| {}, hears);
    assert_within(MINUTE, second);
    let (http, quic) = duel.world.server.split();
    assert!(
        http.write_body(quic, id, &mut Bytes::from_static(b"x"))
            .is_err()
    );
    assert_eq!(http.open_requests(), 0);
}

/// A byte of credit now and then does not hold a response for ever.
#[test]
fn response_that_is_taken_by_the_byte_is_cut_after_five_minutes() {
    let mut setup = alive();
    setup.client_quic.streams.stream_window = 20;
    let mut duel = Duel::with(Role::Client, setup);
    let id = duel.whole(&get());
    duel.run();
    respond(&mut duel, id, 100_000);
    let mut taken = 0;
    let mut refused = None;
    for second in 0..900 {
        if second % 20 == 0 {
            let read = duel.world.client.quic().read_chunk(id, 20);
            taken += read.ok().flatten().map_or(0, |bytes| bytes.len());
        }
        duel.world.run_for(Duration::from_secs(1));
        if duel.world.server.http().counters().timed_out > 0 {
            refused = Some(second);
            break;
        }
    }
    assert!(taken > 100, "{taken} bytes taken");
    assert_within(300..345, refused);
}

/// The same client, who takes enough.
#[test]
fn response_that_is_taken_slowly_is_sent_to_its_end() {
    let mut setup = alive();
    setup.client_quic.streams.stream_window = 2_000;
    let mut duel = Duel::with(Role::Client, setup);
    let id = duel.whole(&get());
    duel.run();
    respond(&mut duel, id, 100_000);
    let mut taken = 0;
    for second in 0..1_200 {
        if second % 4 == 0 {
            let read = duel.world.client.quic().read_chunk(id, 2_000);
            taken += read.ok().flatten().map_or(0, |bytes| bytes.len());
        }
        duel.world.run_for(Duration::from_secs(1));
    }
    assert_eq!(duel.world.server.http().counters().timed_out, 0);
    assert!(taken > 100_000, "{taken} bytes taken");
}

/// Responses are sent one after the other (RFC 9218 §10): the last of them wait for
/// minutes, by no fault of the client's.
#[test]
fn responses_that_wait_for_others_are_not_cut() {
    let mut setup = Setup::default();
    setup.client_quic.streams.stream_window = 4 << 20;
    let mut talk = talk_over(setup, "rate=200k delay=50ms queue=50");
    let ids: Vec<StreamId> = (0..12).map(|_| talk.request(&plain_get(), true)).collect();
    let started = talk.world.now;
    let all = ids.clone();
    talk.serve(
        "all responses",
        |world, server, id, _| {
            let (http, quic) = world.server.split();
            http.respond(quic, id, &Response::new(200), false)
                .expect("responds");
            server.write(id, (0..4).map(|_| pattern(100_000)).collect(), None);
        },
        move |client, _| all.iter().all(|id| client.heard(*id).ended),
    );
    let took = talk.world.now.saturating_since(started);
    assert!(took > Duration::from_secs(120), "{took:?}");
    assert_eq!(talk.world.server.http().counters().timed_out, 0);
    for id in ids {
        assert_eq!(talk.client.heard(id).body.len(), 400_000);
    }
}

/// A client that takes one response and lets another wait for credit.
#[test]
fn response_without_credit_is_cut_beside_one_that_gets_on() {
    let mut setup = alive();
    setup.client_quic.streams.stream_window = 20_000;
    let mut duel = Duel::with(Role::Client, setup);
    let [taken, left] = [(); 2].map(|()| duel.whole(&get()));
    duel.run();
    for id in [taken, left] {
        respond(&mut duel, id, 2 << 20);
    }
    let mut read = 0;
    for _ in 0..70 {
        let chunk = duel.world.client.quic().read_chunk(taken, 4_000);
        read += chunk.ok().flatten().map_or(0, |bytes| bytes.len());
        duel.world.run_for(Duration::from_secs(1));
    }
    assert!(read > 100_000, "{read} bytes");
    assert_eq!(duel.world.server.http().counters().timed_out, 1);
    assert_eq!(duel.world.server.http().undelivered(), 0);
    assert_eq!(duel.world.server.http().open_requests(), 1);
    assert_eq!(duel.refusal(left).0, Some(Code::REQUEST_CANCELLED));
    assert_eq!(duel.refusal(taken).0, None);
}

/// A host that slept, or had no time for the connection, does not hold it against the
/// client; then the deadline runs as ever.
#[test]
fn time_that_nobody_looked_does_not_count() {
    let mut wire = Wire::new(Role::Server);
    let mut config = Config::default();
    config.timeouts.idle = None;
    let mut http = Connection::new(Role::Server, Arc::new(config), 1);
    http.start(&mut wire);
    let id = wire.of_peer(Directionality::Bidirectional, 0);
    wire.feed(id, &get()[..3]);
    while let Some(event) = wire.poll_event() {
        http.on_quic_event(&mut wire, &event);
    }
    let mut now = Instant::ZERO;
    http.flush(now, &mut wire);
    for hour in 1..5 {
        now = Instant::ZERO + Duration::from_secs(3_600 * hour);
        http.handle_timeout(now, &mut wire);
        assert_eq!(http.open_requests(), 1, "{hour} hours");
    }
    let begun = now;
    while http.open_requests() > 0 {
        now = http.next_timeout().expect("a deadline");
        http.handle_timeout(now, &mut wire);
    }
    let took = now.saturating_since(begun).as_secs();
    assert!((30..69).contains(&took), "{took} s");
    assert_eq!(wire.refusal(id).0, Some(Code::REQUEST_REJECTED.0));
}

/// Neither the server's silence nor a slow handler is the client's fault.
#[test]
fn handler_may_take_its_time() {
    let mut duel = duel();
    let id = duel.whole(&get());
    duel.run();
    let second = wait_for(
        &mut duel,
        |_, _| {},
        |event| matches!(event, Event::TimedOut { .. } | Event::Closed(_)),
    );
    assert_eq!((second, duel.world.server.closed.clone()), (None, None));
    let (http, quic) = duel.world.server.split();
    http.respond(quic, id, &Response::new(200), false)
        .expect("responds");
    let second = wait_for(
        &mut duel,
        |duel, second| {
            if second % 100 == 0 {
                let (http, quic) = duel.world.server.split();
                let _ = http.write_body(quic, id, &mut Bytes::from_static(b"an event"));
            }
        },
        |event| matches!(event, Event::TimedOut { .. } | Event::Closed(_)),
    );
    assert_eq!((second, duel.world.server.closed), (None, None));
}

#[test]
fn idle_connection_says_goaway_and_closes_without_an_error() {
    let mut duel = duel();
    duel.assert_serves();
    duel.world.run_for(Duration::from_secs(73));
    assert_eq!(duel.world.server.closed, None);
    let going = (0..200).any(|_| {
        duel.world.run_for(Duration::from_millis(50));
        duel.world.server.http().is_going_away()
    });
    assert!(going, "no GOAWAY");
    // Too late, and told so: it can be sent elsewhere.
    let late = duel.whole(&get());
    assert_eq!(duel.refusal(late).0, Some(Code::REQUEST_REJECTED));
    assert_eq!(duel.closed(), Some(Code::NO_ERROR));
}

/// Header sections that are never completed are no requests, however many there are.
#[test]
fn connection_that_only_dribbles_is_idle() {
    let mut duel = duel();
    let mut second = 0;
    while duel.world.server.closed.is_none() {
        if second % 10 == 0
            && let Some(id) = duel.world.client.quic().open(Directionality::Bidirectional)
        {
            duel.write(id, &get()[..3]);
        }
        duel.world.run_for(Duration::from_secs(1));
        second += 1;
        assert!(second < 200, "still open");
    }
    assert!((75..90).contains(&second), "after {second} s");
    assert_eq!(duel.closed(), Some(Code::NO_ERROR));
}

/// Two minutes of requests with a minute between them.
#[test]
fn connection_in_use_is_not_idle() {
    let mut duel = duel();
    for _ in 0..5 {
        duel.assert_serves();
        duel.world.run_for(Duration::from_secs(60));
    }
    duel.assert_serves();
}

#[test]
fn drain_has_its_deadline() {
    let mut setup = alive();
    setup.server.timeouts.drain = Some(Duration::from_secs(20));
    let mut duel = Duel::with(Role::Client, setup);
    duel.whole(&get());
    duel.run();
    let (http, quic) = duel.world.server.split();
    http.shutdown(quic);
    http.shutdown(quic);
    duel.world.run_for(Duration::from_secs(19));
    assert_eq!(duel.world.server.closed, None);
    duel.world.run_for(Duration::from_secs(2));
    assert_eq!(duel.closed(), Some(Code::NO_ERROR));
}

#[test]
fn deadlines_can_be_turned_off() {
    let mut setup = alive();
    setup.server.timeouts = Timeouts::none();
    setup.client_quic.streams.stream_window = 100;
    let mut duel = Duel::with(Role::Client, setup);
    let dribbled = duel.bidi(&get()[..3]);
    let body = duel.bidi(&headers(&request("POST")));
    let stalled = duel.whole(&get());
    duel.run();
    let (http, quic) = duel.world.server.split();
    assert_eq!(http.read_body(quic, body), Ok(Body::Blocked));
    respond(&mut duel, stalled, 100_000);
    duel.world.run_for(Duration::from_secs(3_600));
    for id in [dribbled, body, stalled] {
        assert_eq!(duel.refusal(id), (None, None));
    }
    assert_eq!(duel.world.server.http().counters().timed_out, 0);
    assert_eq!(duel.world.server.closed, None);
}

/// A client has no deadlines: it may wait for a server as long as it likes.
#[test]
fn client_waits_for_ever() {
    let mut world = World::new(alive(), CALM, 3);
    world.raw = Some(Role::Server);
    world.handshake();
    let (http, quic) = world.client.split();
    let id = http
        .request(quic, &Request::get("localhost", "/"), true)
        .expect("a request");
    world.run_for(Duration::from_secs(3_600));
    assert_eq!(world.client.http().next_timeout(), None);
    assert_eq!(world.client.http().open_requests(), 1);
    assert_ne!(world.client.closed, Some(ConnectionError::IdleTimeout));
    let (http, quic) = world.client.split();
    http.cancel(quic, id);
}
