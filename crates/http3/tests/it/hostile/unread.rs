//! What follows a header section is looked at as soon as it is there, whether or not
//! the application reads it: a frame that has no place ends the connection with the
//! exact code, also when the request was answered before (RFC 9114 §4.1, §7.1, §7.2).

use bytes::Bytes;
use clearway_http3::{BodyError, Code, Event, Response};
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use crate::common::Setup;
use crate::hostile::forger::*;

/// Frames with no place behind a request's header section, and what they are due.
fn wrong_after_headers() -> Vec<(&'static str, Vec<u8>, Code)> {
    let unexpected = Code::FRAME_UNEXPECTED;
    let trailers = || headers(&[("a", "b")]);
    let mut cases: Vec<(&'static str, Vec<u8>, Code)> = [
        ("CANCEL_PUSH", CANCEL_PUSH),
        ("SETTINGS", SETTINGS),
        ("PUSH_PROMISE", PUSH_PROMISE),
        ("GOAWAY", GOAWAY),
        ("MAX_PUSH_ID", MAX_PUSH_ID),
        ("PRIORITY_UPDATE", PRIORITY_UPDATE),
        ("PRIORITY_UPDATE of a push", PRIORITY_UPDATE_PUSH),
        ("HTTP/2's PRIORITY", 0x02),
        ("HTTP/2's PING", 0x06),
        ("HTTP/2's WINDOW_UPDATE", 0x08),
        ("HTTP/2's CONTINUATION", 0x09),
    ]
    .into_iter()
    .map(|(what, kind)| (what, frame(kind, &[0]), unexpected))
    .collect();
    cases.extend([
        (
            "a third HEADERS",
            [trailers(), trailers()].concat(),
            unexpected,
        ),
        (
            "DATA after trailers",
            [trailers(), frame(DATA, b"x")].concat(),
            unexpected,
        ),
        (
            "PRIORITY after an unknown frame",
            [frame(RESERVED, b"x"), frame(0x02, &[0])].concat(),
            unexpected,
        ),
        (
            "trailers that cannot be decoded",
            frame(HEADERS, &[0, 0, 0xff, 0x40]),
            Code::QPACK_DECOMPRESSION_FAILED,
        ),
        (
            "trailers that refer to a dynamic entry that is not",
            frame(HEADERS, &[0, 0, 0x80]),
            Code::QPACK_DECOMPRESSION_FAILED,
        ),
    ]);
    cases
}

/// A frame that the end of the stream cuts.
fn cut_by_the_end() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("half a type", vec![0x40]),
        ("a type without a length", vec![0x01]),
        ("half of the trailers", headers(&[("a", "b")])[..3].to_vec()),
        (
            "half an unknown frame",
            frame(RESERVED, b"four")[..3].to_vec(),
        ),
    ]
}

/// The server's application has answered without looking at the rest.
fn answer(duel: &mut Duel, id: StreamId) {
    let (http, quic) = duel.world.server.split();
    let body = Bytes::from_static(b"fine");
    http.respond_with_body(quic, id, &Response::new(200), body)
        .expect("responds");
    http.stop(quic, id, Code::NO_ERROR);
}

#[test]
fn wrong_frame_after_headers_closes_the_connection_while_nobody_reads() {
    for (what, bytes, code) in wrong_after_headers() {
        let mut duel = Duel::new(Role::Client);
        duel.bidi(&[get(), bytes].concat());
        assert_eq!(duel.closed(), Some(code), "{what}");
    }
}

#[test]
fn wrong_frame_that_comes_later_closes_the_connection_while_nobody_reads() {
    for (what, bytes, code) in wrong_after_headers() {
        let mut duel = Duel::new(Role::Client);
        let id = duel.bidi(&get());
        duel.run();
        duel.write(id, &bytes);
        assert_eq!(duel.closed(), Some(code), "{what}");
    }
}

#[test]
fn wrong_frame_after_the_answer_closes_the_connection() {
    for (what, bytes, code) in wrong_after_headers() {
        let mut duel = Duel::new(Role::Client);
        let id = duel.bidi(&get());
        duel.run();
        answer(&mut duel, id);
        duel.run();
        assert_eq!(duel.world.server.http().open_requests(), 0, "{what}");
        duel.write(id, &bytes);
        assert_eq!(duel.closed(), Some(code), "{what}");
    }
}

#[test]
fn wrong_frame_behind_an_unread_body_closes_the_connection_once_the_body_is_dropped() {
    for (what, bytes, code) in wrong_after_headers() {
        let mut duel = Duel::new(Role::Client);
        let body = frame(DATA, &[7; 3000]);
        let id = duel.bidi(&[get(), body.clone(), body, bytes].concat());
        duel.run();
        answer(&mut duel, id);
        assert_eq!(duel.closed(), Some(code), "{what}");
    }
}

#[test]
fn end_within_a_frame_closes_the_connection_while_nobody_reads() {
    for (what, bytes) in cut_by_the_end() {
        let error = Some(Code::FRAME_ERROR);
        let mut duel = Duel::new(Role::Client);
        duel.whole(&[get(), bytes.clone()].concat());
        assert_eq!(duel.closed(), error, "{what}");
        let mut duel = Duel::new(Role::Client);
        let id = duel.bidi(&get());
        duel.run();
        answer(&mut duel, id);
        duel.write(id, &bytes);
        duel.finish(id);
        assert_eq!(duel.closed(), error, "{what}, after the answer");
    }
    let mut duel = Duel::new(Role::Client);
    let half = &frame(DATA, b"four")[..4];
    let id = duel.whole(&[&get()[..], half].concat());
    duel.run();
    answer(&mut duel, id);
    let error = Some(Code::FRAME_ERROR);
    assert_eq!(duel.closed(), error, "half a DATA frame, dropped");
}

#[test]
fn wrong_frame_after_a_response_closes_the_connection_while_nobody_reads() {
    for (what, bytes, code) in wrong_after_headers() {
        let pushed = bytes[0] == PUSH_PROMISE as u8;
        let code = if pushed { Code::ID_ERROR } else { code };
        let mut duel = Duel::new(Role::Server);
        let id = duel.ask(&clearway_http3::Request::get("localhost", "/"));
        duel.write(id, &[ok(), bytes].concat());
        assert_eq!(duel.closed(), Some(code), "{what}");
    }
}

/// What nobody wants is passed over to its end, without a STOP_SENDING that the
/// client need not hear, and costs nothing.
#[test]
fn rest_of_an_answered_request_is_passed_over() {
    let mut duel = Duel::new(Role::Client);
    let id = duel.bidi(&get());
    duel.run();
    answer(&mut duel, id);
    let rest = [
        frame(DATA, &[7; 1000]),
        frame(RESERVED, b"x"),
        headers(&[("a", "b")]),
    ];
    duel.write(id, &rest.concat());
    duel.finish(id);
    let (reset, stopped) = duel.refusal(id);
    assert_eq!((reset, stopped), (None, None));
    assert_eq!(duel.world.server.http().open_requests(), 0);
    duel.assert_serves();
}

/// A body that nobody wants is stopped before much of it was sent for nothing.
#[test]
fn large_body_of_an_answered_request_is_stopped() {
    let mut duel = Duel::new(Role::Client);
    let mut post = headers(&request("POST"));
    post.extend(frame(DATA, &[])[..1].iter());
    post.extend(varints(&[10 << 20]));
    let id = duel.bidi(&post);
    duel.run();
    answer(&mut duel, id);
    let mut written = 0;
    while duel.refusal(id).1.is_none() {
        assert!(written < 1 << 20, "never stopped");
        let quic = duel.world.client.quic();
        written += quic.write(id, &[0; 8192]).unwrap_or(0);
    }
    assert!(written <= 128 << 10, "stopped after {written} bytes");
    let memory = duel.world.server.http().memory();
    assert!(memory < 16 << 10, "{memory} bytes");
    duel.assert_serves();
}

/// The application is told of a reset at once, also behind data it has not read, and
/// what was cut short never looks whole.
#[test]
fn reset_is_told_while_nobody_reads() {
    for body in [vec![], frame(DATA, &[7; 3000]), vec![0, 10, 1]] {
        let mut duel = Duel::new(Role::Client);
        let id = duel.bidi(&[get(), body].concat());
        duel.run();
        let asked = duel.events();
        assert!(
            matches!(asked[..], [.., Event::Request { .. }]),
            "{asked:?}"
        );
        duel.reset(id, 0x10c);
        let events = duel.events();
        let code = Code::REQUEST_CANCELLED;
        assert!(
            events.contains(&Event::Reset { stream: id, code }),
            "{events:?}"
        );
        assert_eq!(duel.world.server.http().counters().abandoned, 1);
        for _ in 0..2 {
            assert_eq!(duel.read_all(id), Err(BodyError::Reset(code)));
        }
    }
}

/// Back-pressure holds: what stands behind a body that nobody has read is not read.
#[test]
fn unread_body_stays_with_the_client() {
    let mut duel = Duel::with(Role::Client, Setup::default());
    let mut post = headers(&request("POST"));
    post.extend(frame(DATA, &[])[..1].iter());
    post.extend(varints(&[100 << 20]));
    let id = duel.bidi(&post);
    let mut written = 0;
    for _ in 0..400 {
        let quic = duel.world.client.quic();
        written += quic.write(id, &[0; 16_384]).unwrap_or(0);
        duel.world.run_for(core::time::Duration::from_millis(5));
    }
    let memory = duel.world.server.http().memory();
    assert!(memory < 16 << 10, "{memory} bytes");
    let window = Setup::default().server_quic.streams.stream_window;
    let limit = usize::try_from(window).expect("a size") + (64 << 10);
    assert!(written < limit, "{written} bytes taken");
}
