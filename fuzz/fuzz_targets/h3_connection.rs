//! An HTTP/3 connection with arbitrary streams: it does not panic, memory is bounded, and nothing
//! happens after the connection has failed.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use bytes::Bytes;
use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Body, Config, Connection, Event, Priority, Request, Response, field};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};
use libfuzzer_sys::fuzz_target;

/// Maximum memory of a connection with the limits below, in bytes.
const MEMORY: usize = 256 << 10;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// Sends SETTINGS on the peer's control stream.
    Settings,
    Uni(u8, &'a [u8]),
    /// Bytes on a request stream.
    Request(u8, &'a [u8]),
    /// A frame with a valid length.
    Frame(u8, u8, &'a [u8]),
    /// A valid header section.
    Get(u8),
    End(u8, bool),
    Reset(u8, bool, u16),
    Stop(u8, bool, u16),
    Datagram(&'a [u8]),
    /// From here on, calls of the application.
    SendRequest(bool),
    Respond(u8, u16, bool),
    SendInformational(u8),
    Write(u8, u16),
    Trailers(u8),
    Finish(u8),
    Read(u8),
    Cancel(u8),
    Prioritize(u8, u8),
    SendDatagram(u8),
    Shutdown,
    /// Sets how many bytes a write accepts.
    SetMaxWrite(u8),
    Unblock,
}

/// GET https://a/ as static table entries and one literal.
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
    let mut endpoint = TestEndpoint {
        role,
        http: Connection::new(role, Arc::new(config), 7),
        transport: MemoryTransport::new(role),
        now: Instant::ZERO,
    };
    endpoint.http.start(&mut endpoint.transport);
    for step in input.1 {
        endpoint.perform(step);
        endpoint.process();
        assert!(
            endpoint.http.memory() <= MEMORY,
            "{} bytes",
            endpoint.http.memory()
        );
    }
});

struct TestEndpoint {
    role: Role,
    http: Connection,
    transport: MemoryTransport,
    now: Instant,
}

impl TestEndpoint {
    fn uni(&self, n: u8) -> StreamId {
        let index = u64::from(n % 8);
        self.transport
            .peer_stream(Directionality::Unidirectional, index)
    }

    fn bidi(&self, n: u8) -> StreamId {
        let index = u64::from(n % 32);
        StreamId::new(Role::Client, Directionality::Bidirectional, index)
    }

    fn stream(&self, n: u8, bidi: bool) -> StreamId {
        if bidi { self.bidi(n) } else { self.uni(n) }
    }

    fn process(&mut self) {
        while let Some(event) = self.transport.poll_event() {
            self.http.on_quic_event(&mut self.transport, &event);
        }
        let failed = self.http.error().is_some();
        while let Some(event) = self.http.poll_event() {
            if let Event::Closed(error) = event {
                assert!(!error.reason.is_empty());
            }
        }
        self.now = self.now + core::time::Duration::from_millis(1);
        self.http.flush(self.now, &mut self.transport);
        assert!(!failed || self.transport.closed.is_some());
        if self.transport.closed.is_some() {
            assert_eq!(self.http.open_requests(), 0);
            assert!(self.http.error().is_none());
        }
    }

    fn perform(&mut self, step: Step<'_>) {
        match step {
            Step::Settings => self.transport.feed(self.uni(0), &[0, 4, 4, 8, 1, 0x33, 1]),
            Step::Uni(n, bytes) => self.transport.feed(self.uni(n), bytes),
            Step::Request(n, bytes) => self.transport.feed(self.bidi(n), bytes),
            Step::Frame(n, kind, payload) if payload.len() < 64 => {
                let id = self.bidi(n);
                self.transport.feed(id, &[kind % 0x30, payload.len() as u8]);
                self.transport.feed(id, payload);
            }
            Step::Frame(..) => {}
            Step::Get(n) => self.transport.feed(self.bidi(n), GET),
            Step::End(n, bidi) => self.transport.feed_end(self.stream(n, bidi)),
            Step::Reset(n, bidi, code) => {
                self.transport
                    .feed_reset(self.stream(n, bidi), u64::from(code));
            }
            Step::Stop(n, bidi, code) => {
                self.transport
                    .feed_stop(self.stream(n, bidi), u64::from(code));
            }
            Step::Datagram(bytes) => {
                self.transport.feed_datagram(bytes);
                while self.http.recv_datagram(&mut self.transport).is_some() {}
            }
            Step::SetMaxWrite(take) => self.transport.max_write = usize::from(take),
            Step::Unblock => self.transport.unblock(),
            application => self.call(application),
        }
    }

    /// The application makes arbitrary calls; invalid ones return an error.
    fn call(&mut self, step: Step<'_>) {
        let ids = |n| StreamId::new(Role::Client, Directionality::Bidirectional, n % 32);
        let (http, transport) = (&mut self.http, &mut self.transport);
        match step {
            Step::SendRequest(end) if http.open_requests() < 20 => {
                let _ = http.request(transport, &Request::get("a", "/"), end);
            }
            Step::Respond(n, status, end) => {
                let response = Response::new(status).with("a", "b");
                let _ = http.respond(transport, ids(u64::from(n)), &response, end);
            }
            Step::SendInformational(n) => {
                let _ = http.send_informational(transport, ids(u64::from(n)), &Response::new(103));
            }
            Step::Write(n, len) => {
                let mut body = Bytes::from(vec![0; usize::from(len % 6000)]);
                let _ = http.write_body(transport, ids(u64::from(n)), &mut body);
            }
            Step::Trailers(n) => {
                let _ = http.send_trailers(transport, ids(u64::from(n)), &[field("t", "u")]);
            }
            Step::Finish(n) => {
                let _ = http.finish(transport, ids(u64::from(n)));
            }
            Step::Read(n) => {
                while let Ok(Body::Data(data)) = http.read_body(transport, ids(u64::from(n))) {
                    assert!(!data.is_empty());
                }
            }
            Step::Cancel(n) => http.cancel(transport, ids(u64::from(n))),
            Step::Prioritize(n, urgency) => {
                let priority = Priority {
                    urgency,
                    incremental: urgency % 2 == 0,
                };
                let _ = http.set_priority(transport, ids(u64::from(n)), priority);
            }
            Step::SendDatagram(n) => {
                let _ = http.send_datagram(transport, ids(u64::from(n)), b"x");
            }
            Step::Shutdown => http.shutdown(transport),
            _ => {}
        }
        assert_eq!(self.http.role(), self.role);
    }
}
