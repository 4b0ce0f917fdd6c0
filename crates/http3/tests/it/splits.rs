//! Bytes arrive in arbitrary pieces: what HTTP/3 reports must depend only on the bytes of a stream.
//! Tested over a transport in memory, with thousands of random streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use clearway_http3::frame::{FrameHeader, FrameKind, put_varint};
use clearway_http3::qpack::{Encoder, FieldRef};
use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Body, BodyError, Config, Connection, Event, Field, Request};
use clearway_quic::connection::Event as QuicEvent;
use clearway_quic::stream::{Directionality, StreamEvent, StreamId};
use clearway_quic::{Instant, Role};
use proptest::prelude::*;

/// What the application received of a message.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReceivedMessage {
    request: Option<Request>,
    body: Vec<u8>,
    trailers: Option<Vec<Field>>,
    ended: bool,
    error: Option<BodyError>,
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    messages: BTreeMap<StreamId, ReceivedMessage>,
    closed: Option<u64>,
}

impl ReceivedMessage {
    /// Returns whether the application received at least this before the connection ended.
    fn is_prefix_of(&self, other: &Self) -> bool {
        fn part<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            one.is_none() || one == other
        }
        part(&self.request, &other.request)
            && other.body.starts_with(&self.body)
            && part(&self.trailers, &other.trailers)
            && self.ended <= other.ended
    }
}

impl Outcome {
    /// Returns whether the same bytes in smaller pieces may have the outcome `pieces`: the same,
    /// except that an error which closes the connection may be found later, when more of what
    /// precedes it was reported.
    fn agrees_with_pieces(&self, pieces: &Self) -> bool {
        if self.closed.is_none() {
            return self == pieces;
        }
        let received = |(id, message): (&StreamId, &ReceivedMessage)| match pieces.messages.get(id)
        {
            Some(other) => message.is_prefix_of(other),
            None => false,
        };
        self.closed == pieces.closed && self.messages.iter().all(received)
    }
}

/// A server that reads everything.
struct Server {
    http: Connection,
    transport: MemoryTransport,
    messages: BTreeMap<StreamId, ReceivedMessage>,
}

impl Server {
    fn new() -> Self {
        let mut config = Config::default();
        config.limits.max_field_section = 1000;
        let mut this = Self {
            http: Connection::new(Role::Server, Arc::new(config), 1),
            transport: MemoryTransport::new(Role::Server),
            messages: BTreeMap::new(),
        };
        this.http.start(&mut this.transport);
        this
    }

    fn process(&mut self) {
        while let Some(event) = self.transport.poll_event() {
            self.http.on_quic_event(&mut self.transport, &event);
        }
        while let Some(event) = self.http.poll_event() {
            match event {
                Event::Request {
                    stream,
                    request,
                    end,
                } => {
                    let message = self.messages.entry(stream).or_default();
                    message.request = Some(request);
                    message.ended = end;
                    self.read(stream);
                }
                Event::Readable(stream) => self.read(stream),
                _ => {}
            }
        }
        self.http.flush(Instant::ZERO, &mut self.transport);
    }

    fn read(&mut self, id: StreamId) {
        let message = self.messages.entry(id).or_default();
        while !message.ended && message.error.is_none() {
            match self.http.read_body(&mut self.transport, id) {
                Ok(Body::Data(data)) => message.body.extend_from_slice(&data),
                Ok(Body::Trailers(fields)) => message.trailers = Some(fields),
                Ok(Body::End) => message.ended = true,
                Ok(Body::Blocked) => return,
                Err(error) => message.error = Some(error),
            }
        }
    }
}

/// Feeds the control stream, then one request stream, in pieces of these sizes.
fn serve(control: &[u8], request: &[u8], cuts: &[usize]) -> Outcome {
    let mut server = Server::new();
    let uni = server
        .transport
        .peer_stream(Directionality::Unidirectional, 0);
    let bidi = server
        .transport
        .peer_stream(Directionality::Bidirectional, 0);
    for (id, mut rest) in [(uni, control), (bidi, request)] {
        for &cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at(cut.clamp(1, rest.len()));
            server.transport.feed(id, now);
            server.process();
            rest = later;
        }
    }
    server.transport.feed_end(bidi);
    server.process();
    Outcome {
        messages: server.messages,
        closed: server.transport.closed.map(|(code, _)| code),
    }
}

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let kind = FrameKind::from_wire(kind);
    let len = payload.len() as u64;
    FrameHeader { kind, len }.encode(&mut out);
    out.extend_from_slice(payload);
    out
}

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = fields
        .iter()
        .map(|(name, value)| FieldRef::new(name.as_bytes(), value.as_bytes()));
    Encoder::new(0).encode(0, fields, &mut out);
    frame(1, &out)
}

/// Frames that are mostly valid.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let request = [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
    ];
    prop_oneof![
        3 => Just(section(&request)),
        1 => Just(section(&[&request[..], &[("content-length", "10")]].concat())),
        4 => (0..300_usize).prop_map(|len| frame(0, &vec![7; len])),
        2 => (0..300_usize).prop_map(|len| frame(0x21, &vec![9; len])),
        2 => Just(section(&[("trailer", "x")])),
        1 => Just(frame(1, &[0; 1200])),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}

fn any_control() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop_oneof![
        Just(frame(0x21, b"grease")),
        Just(frame(0x0d, &[5])),
        Just(frame(0x07, &[0])),
        Just(frame(0xf_0700, &[0, b'u', b'=', b'1'])),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(frames, 0..4).prop_map(|frames| {
        let mut out = Vec::new();
        put_varint(&mut out, 0);
        out.extend(frame(4, &[0x06, 0x44, 0x00]));
        out.extend(frames.concat());
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn messages_are_the_same_however_streams_are_split(
        control in any_control(),
        frames in proptest::collection::vec(any_frame(), 0..6),
        cuts in proptest::collection::vec(1..80_usize, 1..6),
    ) {
        let request = frames.concat();
        let whole = serve(&control, &request, &[usize::MAX]);
        for cuts in [&cuts[..], &[1]] {
            let pieces = serve(&control, &request, cuts);
            prop_assert!(whole.agrees_with_pieces(&pieces), "{whole:?}\n{pieces:?}");
        }
    }
}

#[test]
fn split_request_is_received_completely() {
    let request = [
        section(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/"),
        ]),
        frame(0, b"body"),
        section(&[("trailer", "x")]),
    ];
    let control = [vec![0], frame(4, &[])].concat();
    let outcome = serve(&control, &request.concat(), &[3, 1]);
    assert_eq!(outcome.closed, None);
    let message = &outcome.messages[&StreamId::from_wire(0)];
    assert_eq!((&message.body[..], message.ended), (&b"body"[..], true));
    assert!(message.request.is_some() && message.trailers.is_some());
}

/// The peer gives flow control credit for a few bytes at a time: frames arrive complete and in
/// order.
#[test]
fn response_is_the_same_with_little_flow_control_credit() {
    let answer = |take: usize| {
        let mut server = Server::new();
        let id = server
            .transport
            .peer_stream(Directionality::Bidirectional, 0);
        let get = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/"),
        ];
        server.transport.feed(id, &section(&get));
        server.transport.feed_end(id);
        server.process();
        server.transport.max_write = take;
        let response = clearway_http3::Response::new(200).with("x", "y");
        let (http, transport) = (&mut server.http, &mut server.transport);
        http.respond(transport, id, &response, false)
            .expect("responds");
        let mut refused = 0;
        for len in [10, 0, 5000, 1] {
            let mut piece = bytes::Bytes::from(vec![len as u8; len]);
            while http.write_body(transport, id, &mut piece).is_err() {
                refused += 1;
                transport.unblock();
                while let Some(event) = transport.poll_event() {
                    http.on_quic_event(transport, &event);
                }
                assert!(refused == 0 || http.poll_event() == Some(Event::Writable(id)));
                transport.max_write = take;
            }
        }
        http.send_trailers(transport, id, &[clearway_http3::field("t", "u")])
            .expect("trailers");
        transport.unblock();
        while let Some(event) = transport.poll_event() {
            http.on_quic_event(transport, &event);
        }
        assert_eq!(http.open_requests(), 0);
        let (sent, ended) = transport.sent(id);
        assert!(ended);
        (sent.to_vec(), refused)
    };
    let (plain, refused) = answer(usize::MAX);
    assert_eq!(refused, 0);
    assert_eq!(answer(7), (plain.clone(), 0), "in small pieces");
    let (slow, refused) = answer(0);
    assert_eq!(slow, plain);
    assert!(refused > 0, "never blocked");
}

/// The peer allows no streams at first, and receives everything later, in order.
#[test]
fn control_stream_opened_late_carries_settings_and_goaway() {
    let config = Config {
        grease: false,
        ..Config::default()
    };
    let mut http = Connection::new(Role::Server, Arc::new(config), 1);
    let mut transport = MemoryTransport::new(Role::Server);
    transport.max_streams = 0;
    http.start(&mut transport);
    http.shutdown(&mut transport);
    transport.max_streams = 10;
    let uni = Directionality::Unidirectional;
    let available = QuicEvent::Stream(StreamEvent::StreamsAvailable(uni));
    http.on_quic_event(&mut transport, &available);
    let (sent, _) = transport.sent(StreamId::new(Role::Server, uni, 0));
    assert_eq!(sent[0], 0, "the type of a control stream");
    let (settings, size) = FrameHeader::parse(&sent[1..]).expect("a frame");
    assert_eq!(settings.kind, FrameKind::Settings);
    let rest = &sent[1 + size + settings.len as usize..];
    let (goaway, size) = FrameHeader::parse(rest).expect("a frame");
    assert_eq!((goaway.kind, goaway.len), (FrameKind::Goaway, 8));
    assert_eq!(rest.len(), size + 8);
    for (index, kind) in [(1, 2), (2, 3)] {
        assert_eq!(
            transport.sent(StreamId::new(Role::Server, uni, index)).0,
            [kind]
        );
    }
}
