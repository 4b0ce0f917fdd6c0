//! The end of a message that is found together with its last piece.

use std::sync::Arc;

use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Body, Config, Connection, Request};
use clearway_quic::stream::StreamId;
use clearway_quic::{Instant, Role};

/// HEADERS with `:status: 200` and `content-length: 2` (RFC 9204 §4.5).
const WITH_LENGTH: &[u8] = &[1, 6, 0, 0, 0xd9, 0x54, 1, b'2'];

/// HEADERS with `:status: 200`.
const WITHOUT_LENGTH: &[u8] = &[1, 3, 0, 0, 0xd9];

/// DATA with two bytes.
const DATA: &[u8] = &[0, 2, b'h', b'i'];

/// HEADERS with `a: b`, as trailers.
const TRAILERS: &[u8] = &[1, 6, 0, 0, 0x21, b'a', 1, b'b'];

/// A client to whose request these bytes arrive, and whether the stream ends with them.
fn answered(bytes: &[&[u8]], end: bool) -> (Connection, MemoryTransport, StreamId) {
    let mut http = Connection::new(Role::Client, Arc::new(Config::default()), 1);
    let mut transport = MemoryTransport::new(Role::Client);
    http.start(&mut transport);
    let id = http.request(&mut transport, &Request::get("a", "/"), true);
    let id = id.expect("a request");
    transport.feed(id, &bytes.concat());
    if end {
        transport.feed_end(id);
    }
    while let Some(event) = transport.poll_event() {
        http.on_quic_event(&mut transport, &event);
    }
    http.flush(Instant::ZERO, &mut transport);
    (http, transport, id)
}

#[test]
fn end_is_found_with_the_last_piece_of_an_announced_length() {
    for (bytes, end, found) in [
        (&[WITH_LENGTH, DATA][..], true, true),
        // It may still be followed by trailers.
        (&[WITH_LENGTH, DATA], false, false),
        (&[WITH_LENGTH, DATA, TRAILERS], true, false),
        (&[WITHOUT_LENGTH, DATA], true, false),
    ] {
        let (mut http, mut transport, id) = answered(bytes, end);
        let data = http.read_body(&mut transport, id);
        assert_eq!(data, Ok(Body::Data("hi".into())));
        assert_eq!(http.take_end(&mut transport, id), found, "{bytes:?}");
        assert!(!http.take_end(&mut transport, id), "found twice");
        if found {
            assert_eq!(http.open_requests(), 0);
            continue;
        }
        let next = http.read_body(&mut transport, id).unwrap();
        match (bytes.len(), end) {
            (3, _) => {
                assert!(matches!(next, Body::Trailers(_)), "{next:?}");
                assert_eq!(http.read_body(&mut transport, id), Ok(Body::End));
            }
            (_, true) => assert_eq!(next, Body::End),
            (_, false) => assert_eq!(next, Body::Blocked),
        }
    }
}

#[test]
fn content_beyond_the_announced_length_is_not_taken_for_the_end() {
    let (mut http, mut transport, id) = answered(&[WITH_LENGTH, DATA, DATA], true);
    let data = http.read_body(&mut transport, id);
    assert_eq!(data, Ok(Body::Data("hi".into())));
    assert!(!http.take_end(&mut transport, id));
    assert!(http.read_body(&mut transport, id).is_err());
}
