//! What `Connection::memory` reports, against what the allocator says: budgets that
//! evict connections are no better than the figure they go by.

use std::sync::Arc;

use clearway_http3::frame::put_varint;
use clearway_http3::qpack::{Encoder, FieldRef};
use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Code, Config, Connection, Event, Request, Response, field};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use crate::hostile::forger::{DATA, HEADERS, PRIORITY_UPDATE, frame, get};

/// One end, and the transport in memory where we play the other.
pub(crate) struct End {
    pub(crate) http: Connection,
    pub(crate) wire: MemoryTransport,
}

/// SETTINGS with a table of 4096 bytes and 16 streams that may wait for it.
const SETTINGS: [u8; 8] = [0x00, 0x04, 0x05, 0x01, 0x50, 0x00, 0x07, 0x10];

impl End {
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
            wire: MemoryTransport::new(role),
        };
        this.http.start(&mut this.wire);
        let [control, encoder, decoder] = [0, 1, 2].map(|n| this.uni(n));
        this.wire.feed(control, &SETTINGS);
        this.wire.feed(encoder, &[2, 0x3f, 0xe1, 0x1f]);
        this.wire.feed(decoder, &[3]);
        this.turn();
        this
    }

    pub(crate) fn uni(&self, index: u64) -> StreamId {
        self.wire.peer_stream(Directionality::Unidirectional, index)
    }

    /// Everything that happened is worked off.
    pub(crate) fn turn(&mut self) -> Vec<Event> {
        while let Some(event) = self.wire.poll_event() {
            self.http.on_quic_event(&mut self.wire, &event);
        }
        let events = core::iter::from_fn(|| self.http.poll_event()).collect();
        self.http.flush(Instant::ZERO, &mut self.wire);
        assert_eq!(self.http.error(), None);
        events
    }

    /// Fails unless the report is right, save for a few padded allocations.
    fn assert_reports_what_it_holds(self, what: &str, least: usize) {
        let Self { http, wire } = self;
        drop(wire);
        let reported = http.memory() - size_of::<Connection>();
        let freed = allocation_counter::measure(|| drop(http)).bytes_current;
        let held = usize::try_from(-freed).expect("dropping frees");
        assert!(held >= least, "{what}: only {held} bytes are held");
        assert!(
            reported + 256 + held / 16 >= held && reported <= held + 256 + held / 8,
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
fn memory_counts_a_connection_without_requests() {
    End::new(Role::Server).assert_reports_what_it_holds("idle", 1);
    End::new(Role::Client).assert_reports_what_it_holds("idle", 1);
}

#[test]
fn memory_counts_header_sections_that_arrived_in_part() {
    let mut server = End::new(Role::Server);
    let mut section = frame(HEADERS, &[0; 10_000]);
    section.truncate(8_000);
    for n in 0..30 {
        server.wire.feed(request(n), &section);
    }
    server.turn();
    server.assert_reports_what_it_holds("sections in part", 30 * 8_000);
}

#[test]
fn memory_counts_open_requests() {
    let mut server = End::new(Role::Server);
    for n in 0..200 {
        server.wire.feed(request(n), &get());
    }
    assert_eq!(server.turn().len(), 200);
    server.assert_reports_what_it_holds("open requests", 200 * 100);
}

#[test]
fn memory_counts_the_table_of_the_decoder() {
    let mut server = End::new(Role::Server);
    let encoder = server.uni(1);
    for n in 0..100 {
        let entry = insert(&format!("name-{n:03}"), &"v".repeat(20));
        server.wire.feed(encoder, &entry);
    }
    server.turn();
    server.assert_reports_what_it_holds("decoder table", 3_000);
}

#[test]
fn memory_counts_an_unfinished_instruction() {
    let mut server = End::new(Role::Server);
    let encoder = server.uni(1);
    let mut entry = vec![0x41, b'a', 0x7f];
    // A value of 3,000 bytes, of which 2,000 arrive.
    entry.extend_from_slice(&[0xb9, 0x16]);
    entry.resize(2_000, b'v');
    server.wire.feed(encoder, &entry);
    server.turn();
    server.assert_reports_what_it_holds("unfinished instruction", 1_900);
}

#[test]
fn memory_counts_sections_that_wait_for_the_table() {
    let mut server = End::new(Role::Server);
    for n in 0..16 {
        // Required Insert Count 1, the first entry, and what will never be read.
        let mut section = vec![0x02, 0x00, 0x80];
        section.resize(1_000, 0xd1);
        server.wire.feed(request(n), &frame(HEADERS, &section));
    }
    server.turn();
    assert_eq!(server.http.counters().blocked_sections, 16);
    server.assert_reports_what_it_holds("sections that wait", 16 * 1_000);
}

/// Requests whose fields go into the table and are not acknowledged.
#[test]
fn memory_counts_the_table_of_the_encoder_and_sections_it_must_remember() {
    let mut client = End::new(Role::Client);
    for n in 0..150 {
        let mut get = Request::get("localhost", "/");
        // Each field twice: what is repeated goes into the table.
        let value = format!("{:030}", n / 2);
        get.fields.push(field("x-field", value));
        client
            .http
            .request(&mut client.wire, &get, true)
            .expect("a request");
    }
    client.turn();
    client.assert_reports_what_it_holds("encoder", 150 * 100);
}

/// As many sections of one stream as may wait for their acknowledgment.
#[test]
fn memory_counts_sections_of_one_stream_that_wait_for_acknowledgment() {
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
fn memory_counts_what_the_transport_does_not_take() {
    let mut server = End::new(Role::Server);
    for n in 0..20 {
        server.wire.feed(request(n), &get());
        server.wire.feed_end(request(n));
    }
    server.turn();
    server.wire.max_write = 0;
    let answer = Response::new(200).with("x-long", "v".repeat(2_000));
    for n in 0..20 {
        let done = server
            .http
            .respond(&mut server.wire, request(n), &answer, true);
        done.expect("a response");
    }
    server.turn();
    server.assert_reports_what_it_holds("responses", 20 * 1_200);
}

#[test]
fn memory_counts_exchanges_that_wait_for_an_acknowledgment() {
    let mut server = End::new(Role::Server);
    for n in 0..500 {
        server.wire.feed(request(n), &get());
        server.wire.feed_end(request(n));
        server.turn();
        let done = server
            .http
            .respond(&mut server.wire, request(n), &Response::new(200), true);
        done.expect("a response");
    }
    server.turn();
    assert_eq!(server.http.unacknowledged_messages(), 500);
    server.assert_reports_what_it_holds("unacknowledged responses", 500 * 16);
}

/// A server that answers early passes over the rest: here a frame that is cut.
#[test]
fn memory_counts_rests_of_requests_that_are_passed_over() {
    let mut server = End::new(Role::Server);
    for n in 0..100 {
        server.wire.feed(request(n), &get());
    }
    server.turn();
    for n in 0..100 {
        let (http, wire) = (&mut server.http, &mut server.wire);
        http.respond(wire, request(n), &Response::new(200), true)
            .expect("a response");
        http.stop(wire, request(n), Code::NO_ERROR);
        let mut trailers = frame(HEADERS, &[0; 800]);
        trailers.truncate(600);
        wire.feed(request(n), &trailers);
    }
    server.turn();
    server.assert_reports_what_it_holds("rests of requests", 100 * 100);
}

#[test]
fn memory_counts_bodies_cut_within_a_frame() {
    let mut server = End::new(Role::Server);
    for n in 0..100 {
        server.wire.feed(request(n), &get());
        server.wire.feed(request(n), &frame(DATA, &[7; 50])[..20]);
    }
    server.turn();
    server.assert_reports_what_it_holds("bodies", 100 * 100);
}

#[test]
fn memory_counts_early_priorities() {
    let mut server = End::new(Role::Server);
    let control = server.uni(0);
    for n in 0..100 {
        let mut update = Vec::new();
        put_varint(&mut update, request(n).as_u64());
        update.extend_from_slice(b"u=1");
        server.wire.feed(control, &frame(PRIORITY_UPDATE, &update));
    }
    server.turn();
    server.assert_reports_what_it_holds("early priorities", 100 * 8);
}

#[test]
fn memory_counts_a_control_frame_in_part() {
    let mut server = End::new(Role::Server);
    let control = server.uni(0);
    let mut update = vec![0; 1_000];
    update.truncate(900);
    server
        .wire
        .feed(control, &frame(PRIORITY_UPDATE, &update)[..800]);
    server.turn();
    server.assert_reports_what_it_holds("control frame in part", 700);
}

#[test]
fn memory_counts_streams_without_a_type() {
    let mut server = End::new(Role::Server);
    for n in 3..200 {
        let id = server.uni(n);
        server.wire.feed(id, &[0xc0]);
    }
    server.turn();
    server.assert_reports_what_it_holds("streams without a type", 197 * 16);
}

/// A connection that has had a great deal to do gives it back.
#[test]
fn release_gives_back_what_requests_took() {
    let mut server = End::new(Role::Server);
    for n in 0..500 {
        server.wire.feed(request(n), &get());
        server.wire.feed_end(request(n));
    }
    server.turn();
    for n in 0..500 {
        server
            .http
            .respond(&mut server.wire, request(n), &Response::new(200), true)
            .expect("a response");
    }
    server.turn();
    for n in 0..500 {
        server.wire.feed_ack(request(n));
    }
    server.turn();
    let busy = server.http.memory();
    server.http.release();
    let idle = server.http.memory() - size_of::<Connection>();
    assert!(busy > 500 * 16, "{busy} bytes after 500 requests");
    assert!(idle < 2_000, "{idle} bytes beside the struct when idle");
    server.assert_reports_what_it_holds("a connection that rests", 0);
}
