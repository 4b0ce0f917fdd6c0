//! Compares what `Connection::memory` reports with what the allocator says, because memory limits
//! rely on the reported figure.

use std::sync::Arc;

use clearway_http3::frame::put_varint;
use clearway_http3::qpack::{Encoder, FieldRef};
use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Code, Config, Connection, Event, Request, Response, field};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use crate::hostile::hostile_peer::{DATA, HEADERS, PRIORITY_UPDATE, frame, get};

/// An HTTP/3 endpoint over a transport in memory, on which the test acts as the peer.
pub(crate) struct MemoryEndpoint {
    pub(crate) http: Connection,
    pub(crate) transport: MemoryTransport,
}

/// SETTINGS with a dynamic table of 4096 bytes and 16 blocked streams.
const SETTINGS: [u8; 8] = [0x00, 0x04, 0x05, 0x01, 0x50, 0x00, 0x07, 0x10];

impl MemoryEndpoint {
    pub(crate) fn new(role: Role) -> Self {
        Self::with(role, Config::default())
    }

    pub(crate) fn with(role: Role, config: Config) -> Self {
        let config = Config {
            grease: false,
            ..config
        };
        let http = Connection::new(role, Arc::new(config), 1);
        let mut this = Self {
            http,
            transport: MemoryTransport::new(role),
        };
        this.http.start(&mut this.transport);
        let [control, encoder, decoder] = [0, 1, 2].map(|n| this.uni(n));
        this.transport.feed(control, &SETTINGS);
        this.transport.feed(encoder, &[2, 0x3f, 0xe1, 0x1f]);
        this.transport.feed(decoder, &[3]);
        this.process();
        this
    }

    pub(crate) fn uni(&self, index: u64) -> StreamId {
        self.transport
            .peer_stream(Directionality::Unidirectional, index)
    }

    /// Returns how many bytes were written on our encoder stream.
    pub(crate) fn encoder_bytes(&self) -> usize {
        let id = StreamId::new(self.http.role(), Directionality::Unidirectional, 1);
        self.transport.sent(id).0.len()
    }

    /// Passes the events of the transport on, without a flush.
    pub(crate) fn receive(&mut self) {
        while let Some(event) = self.transport.poll_event() {
            self.http.on_quic_event(&mut self.transport, &event);
        }
    }

    /// Processes all events of the transport, and returns those for the application.
    pub(crate) fn process(&mut self) -> Vec<Event> {
        self.receive();
        let events = core::iter::from_fn(|| self.http.poll_event()).collect();
        self.http.flush(Instant::ZERO, &mut self.transport);
        assert_eq!(self.http.error(), None);
        events
    }

    /// Checks that the reported memory matches what the allocator frees, up to the padding of
    /// allocations and the configuration, which no other connection shares here.
    fn assert_memory_matches_allocator(self, what: &str, least: usize) {
        let Self { http, transport } = self;
        drop(transport);
        let reported = http.memory() - size_of::<Connection>();
        let freed = allocation_counter::measure(|| drop(http)).bytes_current;
        let held = usize::try_from(-freed).expect("dropping frees");
        assert!(held >= least, "{what}: only {held} bytes are held");
        assert!(
            reported + 320 + held / 16 >= held && reported <= held + 256 + held / 8,
            "{what}: {reported} bytes reported, {held} held"
        );
    }
}

pub(crate) fn request(n: u64) -> StreamId {
    StreamId::new(Role::Client, Directionality::Bidirectional, n)
}

fn insert(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0x40 | name.len() as u8];
    out.extend_from_slice(name.as_bytes());
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
    out
}

#[test]
fn memory_includes_a_connection_without_requests() {
    MemoryEndpoint::new(Role::Server).assert_memory_matches_allocator("idle", 1);
    MemoryEndpoint::new(Role::Client).assert_memory_matches_allocator("idle", 1);
}

#[test]
fn memory_includes_incomplete_header_sections() {
    let mut server = MemoryEndpoint::new(Role::Server);
    let mut section = frame(HEADERS, &[0; 10_000]);
    section.truncate(8_000);
    for n in 0..30 {
        server.transport.feed(request(n), &section);
    }
    server.process();
    server.assert_memory_matches_allocator("sections in part", 30 * 8_000);
}

#[test]
fn memory_includes_open_requests() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 0..200 {
        server.transport.feed(request(n), &get());
    }
    assert_eq!(server.process().len(), 200);
    server.assert_memory_matches_allocator("open requests", 200 * 100);
}

#[test]
fn memory_includes_the_decoder_table() {
    let mut server = MemoryEndpoint::new(Role::Server);
    let encoder = server.uni(1);
    for n in 0..100 {
        let entry = insert(&format!("name-{n:03}"), &"v".repeat(20));
        server.transport.feed(encoder, &entry);
    }
    server.process();
    server.assert_memory_matches_allocator("decoder table", 3_000);
}

#[test]
fn memory_includes_an_incomplete_instruction() {
    let mut server = MemoryEndpoint::new(Role::Server);
    let encoder = server.uni(1);
    let mut entry = vec![0x41, b'a', 0x7f];
    // A value of 3,000 bytes, of which 2,000 arrive.
    entry.extend_from_slice(&[0xb9, 0x16]);
    entry.resize(2_000, b'v');
    server.transport.feed(encoder, &entry);
    server.process();
    server.assert_memory_matches_allocator("unfinished instruction", 1_900);
}

#[test]
fn memory_includes_blocked_sections() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 0..16 {
        // Required Insert Count 1, the first entry, and lines that are never decoded.
        let mut section = vec![0x02, 0x00, 0x80];
        section.resize(1_000, 0xd1);
        server.transport.feed(request(n), &frame(HEADERS, &section));
    }
    server.process();
    assert_eq!(server.http.counters().blocked_sections, 16);
    server.assert_memory_matches_allocator("sections that wait", 16 * 1_000);
}

/// Requests whose fields are inserted in the table and not acknowledged.
#[test]
fn memory_includes_the_encoder_table_and_unacknowledged_sections() {
    let mut client = MemoryEndpoint::new(Role::Client);
    for n in 0..150 {
        let mut get = Request::get("localhost", "/");
        // Each field is sent twice, because repeated fields are inserted.
        let value = format!("{:030}", n / 2);
        get.fields.push(field("x-field", value));
        client
            .http
            .request(&mut client.transport, &get, true)
            .expect("a request");
    }
    client.process();
    client.assert_memory_matches_allocator("encoder", 150 * 100);
}

/// As many sections of one stream as may be unacknowledged.
#[test]
fn memory_includes_unacknowledged_sections_of_one_stream() {
    let mut encoder = Encoder::new(4096);
    encoder.set_peer_limits(4096, 16).expect("limits");
    let mut section = Vec::new();
    for _ in 0..4_000 {
        section.clear();
        let field = FieldRef::new(b"x-field", b"a value that repeats itself");
        encoder.encode(0, [field], &mut section);
    }
    let reported = encoder.memory() - size_of::<Encoder>();
    let freed = allocation_counter::measure(|| drop(encoder)).bytes_current;
    let held = usize::try_from(-freed).expect("dropping frees");
    assert!(held > 4_000 * 16, "{held} bytes held");
    let slack = 1_024 + held / 16;
    assert!(
        reported + slack >= held && reported <= held + slack,
        "{reported} bytes reported, {held} held"
    );
}

#[test]
fn memory_includes_data_that_the_transport_does_not_accept() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 0..20 {
        server.transport.feed(request(n), &get());
        server.transport.feed_end(request(n));
    }
    server.process();
    server.transport.max_write = 0;
    let answer = Response::new(200).with("x-long", "v".repeat(2_000));
    for n in 0..20 {
        let done = server
            .http
            .respond(&mut server.transport, request(n), &answer, true);
        done.expect("a response");
    }
    server.process();
    server.assert_memory_matches_allocator("responses", 20 * 1_200);
}

#[test]
fn memory_includes_unacknowledged_responses() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 0..500 {
        server.transport.feed(request(n), &get());
        server.transport.feed_end(request(n));
        server.process();
        let done =
            server
                .http
                .respond(&mut server.transport, request(n), &Response::new(200), true);
        done.expect("a response");
    }
    server.process();
    assert_eq!(server.http.unacknowledged_messages(), 500);
    server.assert_memory_matches_allocator("unacknowledged responses", 500 * 16);
}

/// A server that responds early discards the rest of the request: here an incomplete frame.
#[test]
fn memory_includes_discarded_requests() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 0..100 {
        server.transport.feed(request(n), &get());
    }
    server.process();
    for n in 0..100 {
        let (http, transport) = (&mut server.http, &mut server.transport);
        http.respond(transport, request(n), &Response::new(200), true)
            .expect("a response");
        http.stop(transport, request(n), Code::NO_ERROR);
        let mut trailers = frame(HEADERS, &[0; 800]);
        trailers.truncate(600);
        transport.feed(request(n), &trailers);
    }
    server.process();
    server.assert_memory_matches_allocator("rests of requests", 100 * 100);
}

#[test]
fn memory_includes_bodies_that_stop_within_a_frame() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 0..100 {
        server.transport.feed(request(n), &get());
        server
            .transport
            .feed(request(n), &frame(DATA, &[7; 50])[..20]);
    }
    server.process();
    server.assert_memory_matches_allocator("bodies", 100 * 100);
}

#[test]
fn memory_includes_early_priorities() {
    let mut server = MemoryEndpoint::new(Role::Server);
    let control = server.uni(0);
    for n in 0..100 {
        let mut update = Vec::new();
        put_varint(&mut update, request(n).as_u64());
        update.extend_from_slice(b"u=1");
        server
            .transport
            .feed(control, &frame(PRIORITY_UPDATE, &update));
    }
    server.process();
    server.assert_memory_matches_allocator("early priorities", 100 * 8);
}

#[test]
fn memory_includes_an_incomplete_control_frame() {
    let mut server = MemoryEndpoint::new(Role::Server);
    let control = server.uni(0);
    let mut update = vec![0; 1_000];
    update.truncate(900);
    server
        .transport
        .feed(control, &frame(PRIORITY_UPDATE, &update)[..800]);
    server.process();
    server.assert_memory_matches_allocator("control frame in part", 700);
}

#[test]
fn memory_includes_streams_without_a_type() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 3..200 {
        let id = server.uni(n);
        server.transport.feed(id, &[0xc0]);
    }
    server.process();
    server.assert_memory_matches_allocator("streams without a type", 197 * 16);
}

/// A connection that was busy releases the memory.
#[test]
fn release_frees_the_memory_of_completed_requests() {
    let mut server = MemoryEndpoint::new(Role::Server);
    for n in 0..500 {
        server.transport.feed(request(n), &get());
        server.transport.feed_end(request(n));
    }
    server.process();
    for n in 0..500 {
        server
            .http
            .respond(&mut server.transport, request(n), &Response::new(200), true)
            .expect("a response");
    }
    server.process();
    for n in 0..500 {
        server.transport.feed_ack(request(n));
    }
    server.process();
    let busy = server.http.memory();
    server.http.release();
    let idle = server.http.memory() - size_of::<Connection>();
    assert!(busy > 500 * 16, "{busy} bytes after 500 requests");
    assert!(idle < 2_000, "{idle} bytes beside the struct when idle");
    server.assert_memory_matches_allocator("a connection that rests", 0);
}
