//! A whole HTTP/3 connection against arbitrary streams: nothing panics, memory is
//! bounded, nothing happens after the connection has failed.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use bytes::Bytes;
use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Body, Config, Connection, Event, Priority, Request, Response, field};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};
use libfuzzer_sys::fuzz_target;

/// Bytes a connection may hold under the limits below.
const MEMORY: usize = 256 << 10;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// The peer's control stream, with SETTINGS.
    Settings,
    Uni(u8, &'a [u8]),
    /// The peer's stream if it is a client, else one of ours.
    Request(u8, &'a [u8]),
    /// A frame with its length right.
    Frame(u8, u8, &'a [u8]),
    /// A header section of static entries and literals, mostly right.
    Get(u8),
    End(u8, bool),
    Reset(u8, bool, u16),
    Stop(u8, bool, u16),
    Datagram(&'a [u8]),
    /// The application.
    Ask(bool),
    Respond(u8, u16, bool),
    Inform(u8),
    Write(u8, u16),
    Trailers(u8),
    Finish(u8),
    Read(u8),
    Cancel(u8),
    Prioritize(u8, u8),
    SendDatagram(u8),
    Shutdown,
    /// So many bytes a write.
    Take(u8),
    Unblock,
}

/// GET https://a/ in static entries and one literal.
const GET: &[u8] = &[0x01, 0x07, 0x00, 0x00, 0xd1, 0xd7, 0xc1, 0x50, 0x00];

fuzz_target!(|input: (bool, Vec<Step<'_>>)| {
    let role = if input.0 { Role::Server } else { Role::Client };
    let mut config = Config {
        datagrams: true,
        extended_connect: true,
        ..Config::default()
    };
    config.limits.max_field_section = 1024;
    config.limits.max_requests = 20;
    let mut end = End {
        role,
        http: Connection::new(role, Arc::new(config), 7),
        wire: MemoryTransport::new(role),
        now: Instant::ZERO,
    };
    end.http.start(&mut end.wire);
    for step in input.1 {
        end.take(step);
        end.turn();
        assert!(end.http.memory() <= MEMORY, "{} bytes", end.http.memory());
    }
});

struct End {
    role: Role,
    http: Connection,
    wire: MemoryTransport,
    now: Instant,
}

impl End {
    fn uni(&self, n: u8) -> StreamId {
        let index = u64::from(n % 8);
        self.wire.peer_stream(Directionality::Unidirectional, index)
    }

    fn bidi(&self, n: u8) -> StreamId {
        let index = u64::from(n % 32);
        StreamId::new(Role::Client, Directionality::Bidirectional, index)
    }

    fn stream(&self, n: u8, bidi: bool) -> StreamId {
        if bidi { self.bidi(n) } else { self.uni(n) }
    }

    fn turn(&mut self) {
        while let Some(event) = self.wire.poll_event() {
            self.http.on_quic_event(&mut self.wire, &event);
        }
        let failed = self.http.error().is_some();
        while let Some(event) = self.http.poll_event() {
            if let Event::Closed(error) = event {
                assert!(!error.reason.is_empty());
            }
        }
        self.now = self.now + core::time::Duration::from_millis(1);
        self.http.flush(self.now, &mut self.wire);
        assert!(!failed || self.wire.closed.is_some());
        if self.wire.closed.is_some() {
            assert_eq!(self.http.open_requests(), 0);
            assert!(self.http.error().is_none());
        }
    }

    fn take(&mut self, step: Step<'_>) {
        match step {
            Step::Settings => self.wire.feed(self.uni(0), &[0, 4, 4, 8, 1, 0x33, 1]),
            Step::Uni(n, bytes) => self.wire.feed(self.uni(n), bytes),
            Step::Request(n, bytes) => self.wire.feed(self.bidi(n), bytes),
            Step::Frame(n, kind, payload) if payload.len() < 64 => {
                let id = self.bidi(n);
                self.wire.feed(id, &[kind % 0x30, payload.len() as u8]);
                self.wire.feed(id, payload);
            }
            Step::Frame(..) => {}
            Step::Get(n) => self.wire.feed(self.bidi(n), GET),
            Step::End(n, bidi) => self.wire.feed_end(self.stream(n, bidi)),
            Step::Reset(n, bidi, code) => {
                self.wire.feed_reset(self.stream(n, bidi), u64::from(code));
            }
            Step::Stop(n, bidi, code) => {
                self.wire.feed_stop(self.stream(n, bidi), u64::from(code));
            }
            Step::Datagram(bytes) => {
                self.wire.feed_datagram(bytes);
                while self.http.recv_datagram(&mut self.wire).is_some() {}
            }
            Step::Take(take) => self.wire.max_write = usize::from(take),
            Step::Unblock => self.wire.unblock(),
            application => self.apply(application),
        }
    }

    /// The application does as it likes; what it may not is refused.
    fn apply(&mut self, step: Step<'_>) {
        let ids = |n| StreamId::new(Role::Client, Directionality::Bidirectional, n % 32);
        let (http, wire) = (&mut self.http, &mut self.wire);
        match step {
            Step::Ask(end) if http.open_requests() < 20 => {
                let _ = http.request(wire, &Request::get("a", "/"), end);
            }
            Step::Respond(n, status, end) => {
                let response = Response::new(status).with("a", "b");
                let _ = http.respond(wire, ids(u64::from(n)), &response, end);
            }
            Step::Inform(n) => {
                let _ = http.send_informational(wire, ids(u64::from(n)), &Response::new(103));
            }
            Step::Write(n, len) => {
                let mut body = Bytes::from(vec![0; usize::from(len % 6000)]);
                let _ = http.write_body(wire, ids(u64::from(n)), &mut body);
            }
            Step::Trailers(n) => {
                let _ = http.send_trailers(wire, ids(u64::from(n)), &[field("t", "u")]);
            }
            Step::Finish(n) => {
                let _ = http.finish(wire, ids(u64::from(n)));
            }
            Step::Read(n) => {
                while let Ok(Body::Data(data)) = http.read_body(wire, ids(u64::from(n))) {
                    assert!(!data.is_empty());
                }
            }
            Step::Cancel(n) => http.cancel(wire, ids(u64::from(n))),
            Step::Prioritize(n, urgency) => {
                let priority = Priority {
                    urgency,
                    incremental: urgency % 2 == 0,
                };
                let _ = http.set_priority(wire, ids(u64::from(n)), priority);
            }
            Step::SendDatagram(n) => {
                let _ = http.send_datagram(wire, ids(u64::from(n)), b"x");
            }
            Step::Shutdown => http.shutdown(wire),
            _ => {}
        }
        assert_eq!(self.http.role(), self.role);
    }
}
