//! When [`Connection::is_flush_due`] says that a flush has something to do: an event loop may skip
//! the flush otherwise.

use clearway_http3::{Config, Request, Response};
use clearway_quic::{Instant, Role};

use crate::hostile::hostile_peer::{DATA, frame, get, ok};
use crate::memory::{MemoryEndpoint, request};

/// "Insert with Literal Name" of `a: b` (RFC 9204 §4.3.3).
const INSERT: [u8; 4] = [0x41, b'a', 0x01, b'b'];

#[test]
fn nothing_is_due_on_an_idle_connection() {
    for role in [Role::Client, Role::Server] {
        let mut endpoint = MemoryEndpoint::new(role);
        assert!(!endpoint.http.is_flush_due(), "{role:?}");
        endpoint.receive();
        assert!(!endpoint.http.is_flush_due(), "{role:?}");
    }
}

#[test]
fn flush_is_due_while_there_are_events() {
    let mut client = MemoryEndpoint::new(Role::Client);
    let get = Request::get("h", "/");
    let id = client.http.request(&mut client.transport, &get, true);
    client.process();
    client.transport.feed(id.expect("a request"), &ok());
    client.receive();
    assert!(client.http.is_flush_due());
    assert!(client.http.poll_event().is_some());
    assert!(!client.http.is_flush_due());
}

#[test]
fn flush_is_due_when_a_request_begins_or_ends_at_a_server() {
    let mut server = MemoryEndpoint::new(Role::Server);
    server.transport.feed(request(0), &get());
    server.transport.feed_end(request(0));
    server.receive();
    while server.http.poll_event().is_some() {}
    assert!(server.http.is_flush_due(), "a request has begun");
    server.process();
    assert!(!server.http.is_flush_due());
    let (http, transport) = (&mut server.http, &mut server.transport);
    let response = Response::new(200);
    http.respond(transport, request(0), &response, true)
        .expect("a response");
    transport.feed_ack(request(0));
    server.receive();
    assert!(server.http.is_flush_due(), "the request has ended");
    server.process();
    assert!(!server.http.is_flush_due());
}

#[test]
fn flush_is_due_once_for_instructions_that_wait() {
    let mut client = MemoryEndpoint::new(Role::Client);
    client.transport.feed(client.uni(1), &INSERT);
    client.receive();
    assert!(client.http.is_flush_due(), "a timer is to be set");
    client.http.flush(Instant::ZERO, &mut client.transport);
    assert!(!client.http.is_flush_due());
    assert!(client.http.next_timeout().is_some());
}

#[test]
fn flush_is_due_for_insertions_of_our_encoder() {
    let mut client = MemoryEndpoint::new(Role::Client);
    let get = Request::get("example.org", "/");
    // The first use of a field is remembered, the second inserts it.
    for _ in 0..2 {
        client
            .http
            .request(&mut client.transport, &get, true)
            .expect("a request");
    }
    let before = client.encoder_bytes();
    assert!(client.http.is_flush_due());
    client.process();
    assert!(client.encoder_bytes() > before);
    assert!(!client.http.is_flush_due());
}

#[test]
fn flush_is_due_once_after_an_error() {
    let mut server = MemoryEndpoint::new(Role::Server);
    // DATA before the header section is an error of the connection (RFC 9114 §4.1).
    server.transport.feed(request(0), &frame(DATA, b"body"));
    server.receive();
    while server.http.poll_event().is_some() {}
    assert!(server.http.is_flush_due());
    server.http.flush(Instant::ZERO, &mut server.transport);
    assert!(server.transport.closed.is_some());
    while server.http.poll_event().is_some() {}
    assert!(!server.http.is_flush_due());
}

#[test]
fn only_a_message_that_has_ended_and_waits_for_the_transport_is_unsent() {
    let mut server = MemoryEndpoint::with(Role::Server, Config::default());
    server.transport.feed(request(0), &get());
    server.transport.feed_end(request(0));
    server.process();
    let (http, transport) = (&mut server.http, &mut server.transport);
    assert!(!http.has_unsent_messages());
    transport.max_write = 0;
    let response = Response::new(200);
    http.respond(transport, request(0), &response, false)
        .expect("a response");
    assert!(!http.has_unsent_messages(), "the message has not ended");
    http.finish(transport, request(0)).expect("an end");
    assert!(http.has_unsent_messages());
    transport.unblock();
    server.process();
    assert!(server.transport.sent(request(0)).1);
    assert!(!server.http.has_unsent_messages(), "the transport has it");
}
