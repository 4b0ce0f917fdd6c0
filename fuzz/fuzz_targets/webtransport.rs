//! A connection with WebTransport sessions and arbitrary bytes on their streams: it does not panic,
//! memory is bounded, and every stream that is delivered belongs to an open session.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use clearway_http3::frame::put_varint;
use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Config, Connection, Event, Request, Response};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};
use libfuzzer_sys::fuzz_target;

/// Maximum memory of a connection with the limits below, in bytes.
const MEMORY: usize = 256 << 10;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// The peer's request for a session, or our own.
    Ask(u8),
    /// The answer: accepted or refused.
    Answer(u8, bool),
    /// Bytes on any stream.
    Bytes(u8, bool, &'a [u8]),
    /// A stream of a session, and data behind its header.
    Stream(u8, bool, u8, &'a [u8]),
    /// A DATA frame with a capsule on a session.
    Capsule(u8, u8, &'a [u8]),
    /// A DATA frame with any bytes on a session.
    Data(u8, &'a [u8]),
    Datagram(&'a [u8]),
    End(u8, bool),
    Reset(u8, bool),
    Stop(u8, bool),
    // From here on, calls of the application.
    Open(u8, bool),
    Accept(u8, bool),
    Forget(u8, bool),
    Close(u8, u32, u16),
    Drain(u8),
    Cancel(u8),
    Shutdown,
    SetMaxWrite(u8),
    Unblock,
    Release,
}

/// CONNECT https://a/ with :protocol webtransport: static names, and literals.
const CONNECT: &[u8] = b"\x01\x21\x00\x00\xcf\xd7\xc1\x50\x01a\x27\x02:protocol\x0cwebtransport";

/// Status 200 and 404 as static table entries.
const ANSWERS: [&[u8]; 2] = [b"\x01\x03\x00\x00\xd9", b"\x01\x03\x00\x00\xdb"];

const KINDS: [u64; 6] = [0x2843, 0x78ae, 0, 0x190b_4d3d, 0x21, 0x190b_4d41];

fuzz_target!(|input: (bool, Vec<Step<'_>>)| {
    let role = if input.0 { Role::Server } else { Role::Client };
    let mut config = Config {
        datagrams: true,
        extended_connect: true,
        webtransport_sessions: 4,
        ..Config::default()
    };
    config.limits.max_requests = 20;
    config.limits.max_early_session_streams = 5;
    let mut endpoint = TestEndpoint {
        role,
        http: Connection::new(role, Arc::new(config), 7),
        transport: MemoryTransport::new(role),
        now: Instant::ZERO,
        closed: false,
    };
    endpoint.http.start(&mut endpoint.transport);
    let control = endpoint.uni(0);
    // SETTINGS with extended CONNECT, datagrams and SETTINGS_ENABLE_WEBTRANSPORT.
    let settings = [0, 4, 9, 8, 1, 0x33, 1, 0xab, 0x60, 0x37, 0x42, 1];
    endpoint.transport.feed(control, &settings);
    endpoint.process();
    for step in input.1 {
        endpoint.perform(step);
        endpoint.process();
        let memory = endpoint.http.memory();
        assert!(memory <= MEMORY, "{memory} bytes");
    }
});

struct TestEndpoint {
    role: Role,
    http: Connection,
    transport: MemoryTransport,
    now: Instant,
    /// The connection is over. Its sessions are not ended one by one, and can still be read.
    closed: bool,
}

fn kind(bidi: bool) -> Directionality {
    match bidi {
        true => Directionality::Bidirectional,
        false => Directionality::Unidirectional,
    }
}

impl TestEndpoint {
    fn uni(&self, n: u8) -> StreamId {
        (self.transport).peer_stream(Directionality::Unidirectional, u64::from(n % 16))
    }

    fn request(n: u8) -> StreamId {
        StreamId::new(
            Role::Client,
            Directionality::Bidirectional,
            u64::from(n % 8),
        )
    }

    fn stream(&self, n: u8, bidi: bool) -> StreamId {
        match bidi {
            true if self.role == Role::Client && n % 2 == 1 => {
                (self.transport).peer_stream(Directionality::Bidirectional, u64::from(n % 16))
            }
            true => StreamId::new(
                Role::Client,
                Directionality::Bidirectional,
                u64::from(n % 32),
            ),
            false => self.uni(n),
        }
    }

    fn process(&mut self) {
        while let Some(event) = self.transport.poll_event() {
            self.http.on_quic_event(&mut self.transport, &event);
        }
        self.now = self.now + core::time::Duration::from_millis(1);
        self.http.flush(self.now, &mut self.transport);
        while let Some(event) = self.http.poll_event() {
            match event {
                Event::Closed(error) => {
                    assert!(!error.reason.is_empty());
                    self.closed = true;
                }
                Event::SessionEnded { session, .. } => assert!(!self.http.is_session_open(session)),
                _ => {}
            }
        }
    }

    fn frame(&mut self, n: u8, payload: &[u8]) {
        let mut frame = vec![0];
        put_varint(&mut frame, payload.len() as u64);
        frame.extend_from_slice(payload);
        self.transport.feed(Self::request(n), &frame);
    }

    fn perform(&mut self, step: Step<'_>) {
        match step {
            Step::Ask(n) => match self.role {
                Role::Server => self.transport.feed(Self::request(n), CONNECT),
                Role::Client if self.http.open_requests() < 8 => {
                    let request = Request {
                        protocol: "webtransport".into(),
                        scheme: "https".into(),
                        path: "/".into(),
                        ..Request::connect("a")
                    };
                    let _ = self.http.request(&mut self.transport, &request, false);
                }
                Role::Client => {}
            },
            Step::Answer(n, accepts) => match self.role {
                Role::Server => {
                    let response = Response::new(if accepts { 200 } else { 404 });
                    let (http, transport) = (&mut self.http, &mut self.transport);
                    let _ = http.respond(transport, Self::request(n), &response, false);
                }
                Role::Client => {
                    let answer = ANSWERS[usize::from(!accepts)];
                    self.transport.feed(Self::request(n), answer);
                }
            },
            Step::Bytes(n, bidi, bytes) => self.transport.feed(self.stream(n, bidi), bytes),
            Step::Stream(n, bidi, session, data) => {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, if bidi { 0x41 } else { 0x54 });
                put_varint(&mut bytes, u64::from(session));
                bytes.extend_from_slice(data);
                self.transport.feed(self.stream(n, bidi), &bytes);
            }
            Step::Capsule(n, of, value) => {
                let mut capsule = Vec::new();
                put_varint(&mut capsule, KINDS[usize::from(of) % KINDS.len()]);
                put_varint(&mut capsule, value.len() as u64);
                capsule.extend_from_slice(value);
                self.frame(n, &capsule);
            }
            Step::Data(n, bytes) => self.frame(n, bytes),
            Step::Datagram(bytes) => {
                self.transport.feed_datagram(bytes);
                while self.http.recv_datagram(&mut self.transport).is_some() {}
            }
            Step::End(n, bidi) => self.transport.feed_end(self.stream(n, bidi)),
            Step::Reset(n, bidi) => self.transport.feed_reset(self.stream(n, bidi), 7),
            Step::Stop(n, bidi) => self.transport.feed_stop(self.stream(n, bidi), 7),
            Step::SetMaxWrite(take) => self.transport.max_write = usize::from(take),
            Step::Unblock => self.transport.unblock(),
            application => self.call(application),
        }
    }

    fn call(&mut self, step: Step<'_>) {
        let (http, transport) = (&mut self.http, &mut self.transport);
        match step {
            Step::Open(n, bidi) => {
                let opened = http.open_session_stream(transport, Self::request(n), kind(bidi));
                assert!(opened.is_none() || http.is_session_open(Self::request(n)));
            }
            Step::Accept(n, bidi) => {
                let session = Self::request(n);
                while http.accept_session_stream(session, kind(bidi)).is_some() {
                    assert!(http.is_session_open(session));
                }
            }
            Step::Forget(n, bidi) => {
                let id = self.stream(n, bidi);
                self.http.forget_session_stream(id);
            }
            Step::Close(n, code, len) => {
                let reason = "x".repeat(usize::from(len % 2_000));
                http.close_session(transport, Self::request(n), code, &reason);
                let is_over = self.closed || http.error().is_some();
                assert!(is_over || !http.is_session_open(Self::request(n)));
            }
            Step::Drain(n) => http.drain_session(transport, Self::request(n)),
            Step::Cancel(n) => http.cancel(transport, Self::request(n)),
            Step::Shutdown => http.shutdown(transport),
            Step::Release => http.release(),
            _ => {}
        }
    }
}
