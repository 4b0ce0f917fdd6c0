//! When QPACK's decoder instructions are written.

use std::sync::Arc;
use std::time::Duration;

use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Config, Connection, Request};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

/// How long they wait for something that leaves anyway.
const DELAY: Duration = Duration::from_millis(10);

/// "Set Dynamic Table Capacity" to 160 (RFC 9204 §4.3.1).
const CAPACITY: [u8; 3] = [0x3f, 0x81, 0x01];

/// "Insert with Literal Name" of `a: b` (RFC 9204 §4.3.3).
const INSERT: [u8; 4] = [0x41, b'a', 0x01, b'b'];

/// "Insert Count Increment" by one (RFC 9204 §4.4.3).
const INCREMENT: u8 = 0x01;

struct World {
    http: Connection,
    transport: MemoryTransport,
    begin: Instant,
}

impl World {
    /// A client whose server has sent SETTINGS and inserted a field.
    fn with_insert() -> Self {
        let config = Config {
            grease: false,
            ..Config::default()
        };
        let mut world = Self {
            http: Connection::new(Role::Client, Arc::new(config), 1),
            transport: MemoryTransport::new(Role::Client),
            begin: Instant::ZERO + Duration::from_secs(1),
        };
        world.http.start(&mut world.transport);
        world.flush(Duration::ZERO);
        let uni = |n| {
            world
                .transport
                .peer_stream(Directionality::Unidirectional, n)
        };
        let (control, encoder) = (uni(0), uni(1));
        world.transport.feed(control, &[0, 4, 0]);
        world
            .transport
            .feed(encoder, &[&[2], &CAPACITY[..], &INSERT].concat());
        world
    }

    fn flush(&mut self, after: Duration) {
        while let Some(event) = self.transport.poll_event() {
            self.http.on_quic_event(&mut self.transport, &event);
        }
        self.http.flush(self.begin + after, &mut self.transport);
    }

    /// Returns the instructions that were written.
    fn written(&self) -> &[u8] {
        let decoder = StreamId::new(Role::Client, Directionality::Unidirectional, 2);
        let (sent, _) = self.transport.sent(decoder);
        // After the type of the stream.
        sent.get(1..).unwrap_or_default()
    }
}

#[test]
fn decoder_instructions_alone_wait_for_their_timeout() {
    let mut world = World::with_insert();
    world.flush(Duration::ZERO);
    assert_eq!(world.written(), []);
    let due = world.begin + DELAY;
    assert_eq!(world.http.next_timeout(), Some(due));
    world.flush(DELAY / 2);
    let early = due - Duration::from_nanos(1);
    world.http.handle_timeout(early, &mut world.transport);
    assert_eq!(world.written(), []);
    assert_eq!(world.http.next_timeout(), Some(due));
    world.http.handle_timeout(due, &mut world.transport);
    assert_eq!(world.written(), [INCREMENT]);
    assert_eq!(world.http.next_timeout(), None);
}

#[test]
fn decoder_instructions_leave_with_a_request() {
    let mut world = World::with_insert();
    world.flush(Duration::ZERO);
    let get = Request::get("a", "/");
    world
        .http
        .request(&mut world.transport, &get, true)
        .unwrap();
    world.flush(DELAY / 2);
    assert_eq!(world.written(), [INCREMENT]);
    assert_eq!(world.http.next_timeout(), None);
}

#[test]
fn decoder_instructions_without_credit_set_no_timer() {
    let mut world = World::with_insert();
    world.transport.max_write = 0;
    world.flush(Duration::ZERO);
    world.flush(DELAY);
    assert_eq!(world.written(), []);
    assert_eq!(world.http.next_timeout(), None);
    world.transport.unblock();
    world.flush(DELAY);
    assert_eq!(world.written(), [INCREMENT]);
}
