//! The hostile end: raw bytes on real streams.
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
/// A type that means nothing.
pub const RESERVED: u64 = 0x21;

/// A frame.
pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let kind = FrameKind::from_wire(kind);
    let len = payload.len() as u64;
    FrameHeader { kind, len }.encode(&mut out);
    out.extend_from_slice(payload);
    out
}

/// Integers one after the other.
pub fn varints(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for &value in values {
        put_varint(&mut out, value);
    }
    out
}

/// A HEADERS frame of these fields.
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

/// One of our ends, and the hostile one.
pub struct Duel {
    pub world: World,
    /// The role of the hostile end.
    pub hostile: Role,
    /// The hostile control stream.
    pub control: StreamId,
}

impl Duel {
    /// The hostile end has this role and has sent nothing.
    pub fn silent(hostile: Role, setup: Setup) -> Self {
        Self {
            world: World::against(hostile, setup),
            hostile,
            control: StreamId::from_wire(0),
        }
    }

    /// The hostile end has sent its SETTINGS.
    pub fn with(hostile: Role, setup: Setup) -> Self {
        let mut duel = Self::silent(hostile, setup);
        let settings = [varints(&[0]), frame(SETTINGS, &[])].concat();
        duel.control = duel.uni(&settings);
        duel.run();
        duel
    }

    pub fn new(hostile: Role) -> Self {
        Self::with(hostile, Setup::default())
    }

    pub fn open(&mut self, directionality: Directionality) -> StreamId {
        let quic = self.world.host(self.hostile).quic();
        quic.open(directionality).expect("a stream")
    }

    /// A unidirectional stream that begins with these bytes.
    pub fn uni(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.open(Directionality::Unidirectional);
        self.write(id, bytes);
        id
    }

    /// A bidirectional stream that begins with these bytes.
    pub fn bidi(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.open(Directionality::Bidirectional);
        self.write(id, bytes);
        id
    }

    /// A bidirectional stream of these bytes and an end.
    pub fn whole(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.bidi(bytes);
        self.finish(id);
        id
    }

    pub fn write(&mut self, id: StreamId, bytes: &[u8]) {
        let quic = self.world.host(self.hostile).quic();
        let written = quic.write(id, bytes);
        assert_eq!(written, Ok(bytes.len()), "on {id}");
    }

    pub fn finish(&mut self, id: StreamId) {
        let quic = self.world.host(self.hostile).quic();
        quic.finish(id).expect("finishes");
    }

    pub fn reset(&mut self, id: StreamId, code: u64) {
        let quic = self.world.host(self.hostile).quic();
        quic.reset(id, code).expect("resets");
    }

    /// The victim, a client, asks; answers the stream.
    pub fn ask(&mut self, request: &clearway_http3::Request) -> StreamId {
        let (http, quic) = self.world.client.split();
        let id = http.request(quic, request, true).expect("a request");
        self.run();
        id
    }

    /// Lets what was written arrive and be answered.
    pub fn run(&mut self) {
        self.world.run_for(Duration::from_millis(100));
    }

    /// What the victim's HTTP said so far.
    pub fn events(&mut self) -> Vec<Event> {
        self.run();
        let victim = self.world.host(self.hostile.peer());
        victim.events.drain(..).collect()
    }

    /// The code with which the victim closes the connection.
    pub fn closed(&mut self) -> Option<Code> {
        self.world.close_code(self.hostile.peer())
    }

    /// The code with which the victim reset a stream, and the one with which it
    /// asked to stop sending.
    pub fn refusal(&mut self, id: StreamId) -> (Option<Code>, Option<Code>) {
        self.run();
        let host = self.world.host(self.hostile);
        assert!(host.closed.is_none(), "closed: {:?}", host.closed);
        let stopped = host.quic_events.iter().find_map(|event| match event {
            QuicEvent::Stream(StreamEvent::Stopped { id: other, code }) if *other == id => {
                Some(Code(*code))
            }
            _ => None,
        });
        let reset = loop {
            match host.quic().read_chunk(id, 1 << 16) {
                Ok(Some(_)) => {}
                Err(ReadError::Reset(code)) => break Some(Code(code)),
                Ok(None) | Err(ReadError::Blocked | ReadError::Unknown) => break None,
            }
        };
        (reset, stopped)
    }

    /// All the victim sent on a stream so far, and whether it ended.
    pub fn heard(&mut self, id: StreamId) -> (Vec<u8>, bool) {
        self.run();
        let quic = self.world.host(self.hostile).quic();
        let mut all = Vec::new();
        loop {
            match quic.read_chunk(id, 1 << 16) {
                Ok(Some(bytes)) => all.extend_from_slice(&bytes),
                Ok(None) => return (all, true),
                Err(_) => return (all, false),
            }
        }
    }

    /// The victim is a server and well: it takes a request and answers it.
    pub fn assert_serves(&mut self) {
        let id = self.whole(&get());
        let events = self.events();
        let asked = events.iter().any(
            |event| matches!(event, Event::Request { stream, end: true, .. } if *stream == id),
        );
        assert!(asked, "no request: {events:?}");
        let (http, quic) = self.world.server.split();
        let response = clearway_http3::Response::new(200);
        http.respond_with_body(quic, id, &response, Bytes::from_static(b"fine"))
            .expect("responds");
        let (bytes, ended) = self.heard(id);
        assert!(ended && bytes.ends_with(b"fine"));
    }
}

impl Duel {
    /// The victim's first unidirectional stream: its control stream.
    pub fn first_uni_of_victim(&mut self) -> StreamId {
        let quic = self.world.host(self.hostile).quic();
        quic.accept(Directionality::Unidirectional)
            .expect("a stream")
    }

    /// The victim's application reads a body to where it ends.
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
