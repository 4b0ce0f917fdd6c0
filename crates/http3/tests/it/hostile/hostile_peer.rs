//! The hostile peer: raw bytes on real streams.
#![allow(unreachable_pub, reason = "shared by the files of this binary")]

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::frame::{FrameHeader, FrameKind, put_varint};
use clearway_http3::qpack::{Encoder, FieldRef};
use clearway_http3::{Code, Event};
use clearway_quic::Role;
use clearway_quic::connection::Event as QuicEvent;
use clearway_quic::stream::{Directionality, ReadError, StreamEvent, StreamId};

use crate::common::{Setup, World};

pub const DATA: u64 = 0x0;
pub const HEADERS: u64 = 0x1;
pub const CANCEL_PUSH: u64 = 0x3;
pub const SETTINGS: u64 = 0x4;
pub const PUSH_PROMISE: u64 = 0x5;
pub const GOAWAY: u64 = 0x7;
pub const MAX_PUSH_ID: u64 = 0xd;
pub const PRIORITY_UPDATE: u64 = 0xf_0700;
pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;
/// A reserved type (RFC 9114 §7.2.8).
pub const RESERVED: u64 = 0x21;

/// Encodes a frame.
pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let kind = FrameKind::from_wire(kind);
    let len = payload.len() as u64;
    FrameHeader { kind, len }.encode(&mut out);
    out.extend_from_slice(payload);
    out
}

/// Encodes integers one after the other.
pub fn varints(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for &value in values {
        put_varint(&mut out, value);
    }
    out
}

/// Encodes a HEADERS frame with these fields.
pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    let fields = fields
        .iter()
        .map(|(name, value)| FieldRef::new(name.as_bytes(), value.as_bytes()));
    Encoder::new(0).encode(0, fields, &mut section);
    frame(HEADERS, &section)
}

/// A HEADERS frame with a plain request.
pub fn get() -> Vec<u8> {
    headers(&request("GET"))
}

pub fn request(method: &'static str) -> [(&'static str, &'static str); 4] {
    [
        (":method", method),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/"),
    ]
}

/// A HEADERS frame with a plain response.
pub fn ok() -> Vec<u8> {
    headers(&[(":status", "200")])
}

/// A test of an HTTP/3 endpoint, the victim, with a hostile peer.
pub struct HostileTest {
    pub world: World,
    /// The role of the hostile peer.
    pub hostile: Role,
    /// The control stream of the hostile peer.
    pub control: StreamId,
}

impl HostileTest {
    /// Connects a hostile peer of this role, which has sent nothing.
    pub fn without_settings(hostile: Role, setup: Setup) -> Self {
        Self {
            world: World::against(hostile, setup),
            hostile,
            control: StreamId::from_wire(0),
        }
    }

    /// Connects a hostile peer of this role, which has sent its SETTINGS.
    pub fn with(hostile: Role, setup: Setup) -> Self {
        let mut test = Self::without_settings(hostile, setup);
        let settings = [varints(&[0]), frame(SETTINGS, &[])].concat();
        test.control = test.uni(&settings);
        test.run();
        test
    }

    /// Does the same; the SETTINGS are those of `setup`.
    pub fn announcing(hostile: Role, setup: Setup) -> Self {
        let config = match hostile {
            Role::Client => &setup.client,
            Role::Server => &setup.server,
        };
        let settings = frame(SETTINGS, &config.settings(hostile).payload());
        let mut test = Self::without_settings(hostile, setup);
        test.control = test.uni(&[varints(&[0]), settings].concat());
        test.run();
        test
    }

    pub fn new(hostile: Role) -> Self {
        Self::with(hostile, Setup::default())
    }

    pub fn open(&mut self, directionality: Directionality) -> StreamId {
        let quic = self.world.host(self.hostile).connection();
        quic.open(directionality).expect("a stream")
    }

    /// Opens a unidirectional stream with these bytes.
    pub fn uni(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.open(Directionality::Unidirectional);
        self.write(id, bytes);
        id
    }

    /// Opens a bidirectional stream with these bytes.
    pub fn bidi(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.open(Directionality::Bidirectional);
        self.write(id, bytes);
        id
    }

    /// Opens a bidirectional stream with these bytes and finishes it.
    pub fn bidi_with_end(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.bidi(bytes);
        self.finish(id);
        id
    }

    pub fn write(&mut self, id: StreamId, bytes: &[u8]) {
        let quic = self.world.host(self.hostile).connection();
        let written = quic.write(id, bytes);
        assert_eq!(written, Ok(bytes.len()), "on {id}");
    }

    pub fn finish(&mut self, id: StreamId) {
        let quic = self.world.host(self.hostile).connection();
        quic.finish(id).expect("finishes");
    }

    pub fn reset(&mut self, id: StreamId, code: u64) {
        let quic = self.world.host(self.hostile).connection();
        quic.reset(id, code).expect("resets");
    }

    /// Sends a request from the victim, a client. Returns its stream.
    pub fn send_request(&mut self, request: &clearway_http3::Request) -> StreamId {
        let (http, quic) = self.world.client.split();
        let id = http.request(quic, request, true).expect("a request");
        self.run();
        id
    }

    /// Runs until what was written has arrived and was answered.
    pub fn run(&mut self) {
        self.world.run_for(Duration::from_millis(100));
    }

    /// Returns the events of the victim so far.
    pub fn events(&mut self) -> Vec<Event> {
        self.run();
        let victim = self.world.host(self.hostile.peer());
        victim.app.events.drain(..).collect()
    }

    /// Returns the code with which the victim closes the connection.
    pub fn close_code(&mut self) -> Option<Code> {
        self.world.close_code(self.hostile.peer())
    }

    /// Returns the codes with which the victim reset a stream, and asked to stop sending.
    pub fn reset_and_stop_codes(&mut self, id: StreamId) -> (Option<Code>, Option<Code>) {
        self.run();
        let host = self.world.host(self.hostile);
        assert!(host.app.closed.is_none(), "closed: {:?}", host.app.closed);
        let stopped = host.app.quic_events.iter().find_map(|event| match event {
            QuicEvent::Stream(StreamEvent::Stopped { id: other, code }) if *other == id => {
                Some(Code(*code))
            }
            _ => None,
        });
        let reset = loop {
            match host.connection().read_chunk(id, 1 << 16) {
                Ok(Some(_)) => {}
                Err(ReadError::Reset(code)) => break Some(Code(code)),
                Ok(None) | Err(ReadError::Blocked | ReadError::Unknown) => break None,
            }
        };
        (reset, stopped)
    }

    /// Returns what the victim has sent on a stream so far, and whether it has ended.
    pub fn received(&mut self, id: StreamId) -> (Vec<u8>, bool) {
        self.run();
        let quic = self.world.host(self.hostile).connection();
        let mut all = Vec::new();
        loop {
            match quic.read_chunk(id, 1 << 16) {
                Ok(Some(bytes)) => all.extend_from_slice(&bytes),
                Ok(None) => return (all, true),
                Err(_) => return (all, false),
            }
        }
    }

    /// Checks that the victim, a server, still accepts a request and responds to it.
    pub fn assert_serves(&mut self) {
        let id = self.bidi_with_end(&get());
        let events = self.events();
        let asked = events.iter().any(
            |event| matches!(event, Event::Request { stream, end: true, .. } if *stream == id),
        );
        assert!(asked, "no request: {events:?}");
        let (http, quic) = self.world.server.split();
        let response = clearway_http3::Response::new(200);
        http.respond_with_body(quic, id, &response, Bytes::from_static(b"fine"))
            .expect("responds");
        let (bytes, ended) = self.received(id);
        assert!(ended && bytes.ends_with(b"fine"));
    }
}

impl HostileTest {
    /// Returns the victim's first unidirectional stream, which is its control stream.
    pub fn first_uni_of_victim(&mut self) -> StreamId {
        let quic = self.world.host(self.hostile).connection();
        quic.accept(Directionality::Unidirectional)
            .expect("a stream")
    }

    /// Reads a body in the victim's application, as far as it has arrived.
    pub fn read_all(&mut self, id: StreamId) -> Result<Vec<u8>, clearway_http3::BodyError> {
        self.run();
        let (http, quic) = self.world.host(self.hostile.peer()).split();
        let mut all = Vec::new();
        loop {
            match http.read_body(quic, id)? {
                clearway_http3::Body::Data(data) => all.extend_from_slice(&data),
                clearway_http3::Body::Trailers(_) => {}
                clearway_http3::Body::End | clearway_http3::Body::Blocked => return Ok(all),
            }
        }
    }
}
