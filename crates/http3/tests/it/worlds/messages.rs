//! Requests to a server and responses to a client: each frame in each state, incomplete and ended
//! anywhere, while the application reads, responds, stops reading or does nothing.

use std::sync::Arc;
use std::time::Duration;

use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Body, BodyError, Code, Config, Connection, Event, Request, Response};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use super::frames::{CAPACITY, FORBIDDEN, INSERT, TestFrame};
use super::model::{AppEvent, Instruction, Model, ReadEnd, ReadResult, Sending};
use super::state_of;
use crate::hostile::hostile_peer::PUSH_PROMISE;
use clearway_testing::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};

/// An action, usually on the `n`th stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The peer sends a frame.
    Send(usize, TestFrame),
    /// The peer sends a frame without its last byte.
    SendPart(usize, TestFrame),
    /// The peer sends the first byte of a frame's type.
    SendTypePart(usize, TestFrame),
    /// The peer sends what is missing of a frame.
    SendRest(usize),
    End(usize),
    Reset(usize),
    StopSending(usize),
    Ack(usize),
    /// The peer inserts an entry, which sections may be blocked on.
    Insert,
    /// The application reads as far as possible.
    Read(usize),
    /// The application responds, completely or not.
    Respond(usize, bool),
    Finish(usize),
    StopReading(usize),
    Cancel(usize),
}

/// The actions that are explored.
#[derive(Clone, Debug)]
struct Scenario {
    streams: usize,
    frame: Vec<TestFrame>,
    cut: Vec<TestFrame>,
    application: bool,
    may_block: u64,
    /// How many entries the peer inserts in the dynamic table.
    inserts: u8,
}

/// How many frames may be held back by unread content. Any more are not processed earlier either.
const BACKLOG: usize = 2;

struct Messages {
    role: Role,
    scenario: Scenario,
    http: Connection,
    transport: MemoryTransport,
    expected: Model,
    /// The missing bytes of an incomplete frame, by stream.
    missing: Vec<Vec<u8>>,
    ended: Vec<bool>,
    /// How many bytes of our decoder stream were processed.
    instructions: usize,
    failure: Option<String>,
}

fn id(n: usize) -> StreamId {
    StreamId::new(Role::Client, Directionality::Bidirectional, n as u64)
}

impl Messages {
    fn new(role: Role, scenario: &Scenario) -> Self {
        let config = Config {
            qpack_blocked_streams: scenario.may_block,
            grease: false,
            ..Config::default()
        };
        let streams = scenario.streams;
        let may_block = scenario.may_block as usize;
        let mut this = Self {
            role,
            scenario: scenario.clone(),
            http: Connection::new(role, Arc::new(config), 1),
            transport: MemoryTransport::new(role),
            expected: match role {
                Role::Server => Model::of_server(streams, may_block),
                Role::Client => Model::of_client(streams, may_block),
            },
            missing: vec![Vec::new(); streams],
            ended: vec![false; streams],
            // The stream type.
            instructions: 1,
            failure: None,
        };
        this.http.start(&mut this.transport);
        if role == Role::Client {
            for _ in 0..streams {
                let get = Request::get("h", "/");
                let asked = this.http.request(&mut this.transport, &get, true);
                asked.expect("a request");
            }
        }
        let uni = |transport: &MemoryTransport, n| {
            transport.peer_stream(Directionality::Unidirectional, n)
        };
        let (control, encoder) = (uni(&this.transport, 0), uni(&this.transport, 1));
        this.transport.feed(control, &[0, 4, 0]);
        this.transport.feed(encoder, &[&[2], CAPACITY].concat());
        let (_, events) = this.process();
        assert!(matches!(events[..], [Event::Settings(_)]), "{events:?}");
        this
    }

    fn bytes(&self, frame: TestFrame) -> Vec<u8> {
        frame.bytes(self.role == Role::Server)
    }

    /// Processes events of the transport. Returns the events for the application, in short form and
    /// in full.
    fn process(&mut self) -> (Vec<(usize, AppEvent)>, Vec<Event>) {
        while let Some(event) = self.transport.poll_event() {
            self.http.on_quic_event(&mut self.transport, &event);
        }
        let events: Vec<Event> = core::iter::from_fn(|| self.http.poll_event()).collect();
        self.http.flush(Instant::ZERO, &mut self.transport);
        // Instructions that nothing went with.
        let later = Instant::ZERO + Duration::from_millis(10);
        self.http.flush(later, &mut self.transport);
        let index = |stream: &StreamId| stream.index() as usize;
        let reported = events.iter().filter_map(|event| match event {
            Event::Request { stream, end, .. } | Event::Response { stream, end, .. } => {
                Some((index(stream), AppEvent::Head { end: *end }))
            }
            Event::Informational { stream, .. } => Some((index(stream), AppEvent::Interim)),
            Event::Reset { stream, .. } => Some((index(stream), AppEvent::Reset)),
            Event::Stopped { stream, .. } => Some((index(stream), AppEvent::Stopped)),
            Event::Failed { stream, .. } => Some((index(stream), AppEvent::Failed)),
            _ => None,
        });
        (reported.collect(), events)
    }

    /// Returns the instructions on our decoder stream since the last call.
    fn instructions(&mut self) -> Vec<Instruction> {
        let decoder = StreamId::new(self.role, Directionality::Unidirectional, 2);
        let (sent, _) = self.transport.sent(decoder);
        let news = &sent[self.instructions.min(sent.len())..];
        self.instructions += news.len();
        // Request streams are 0, 4, and so on; each integer takes one byte here.
        let instructions = news.iter().map(|&byte| match byte {
            0x80.. => Instruction::Acknowledge(usize::from(byte & 0x7f) / 4),
            0x40.. => Instruction::Cancel(usize::from(byte & 0x3f) / 4),
            _ => Instruction::Increment(byte),
        });
        instructions.collect()
    }

    /// Compares the instructions sent to the peer's encoder with the expected ones.
    fn compare_instructions(&mut self) {
        let mut frame = self.instructions();
        let mut expected = self.expected.take_instructions(&frame);
        // By stream, each in the order of events, and then the Insert Count Increment.
        let place = |instruction: &Instruction| match *instruction {
            Instruction::Acknowledge(n) | Instruction::Cancel(n) => n,
            Instruction::Increment(_) => usize::MAX,
        };
        frame.sort_by_key(place);
        expected.sort_by_key(place);
        if frame != expected {
            self.failure = Some(format!("instructions {frame:?}, expected {expected:?}"));
        }
    }

    fn read(&mut self, n: usize) -> ReadResult {
        let mut read = ReadResult::default();
        loop {
            read.then = match self.http.read_body(&mut self.transport, id(n)) {
                Ok(Body::Data(data)) => {
                    read.bytes += data.len() as u8;
                    continue;
                }
                Ok(Body::Trailers(_)) => {
                    read.trailers = true;
                    continue;
                }
                Ok(Body::End) => ReadEnd::End,
                Ok(Body::Blocked) => ReadEnd::Blocked,
                Err(BodyError::Reset(_)) => ReadEnd::Reset,
                Err(BodyError::Failed(_)) => ReadEnd::Malformed,
                Err(BodyError::Unknown) => ReadEnd::Unknown,
                Err(BodyError::Closed) => ReadEnd::Closed,
            };
            return read;
        }
    }

    fn perform(&mut self, event: Action) {
        match event {
            Action::Send(n, frame) => {
                self.transport.feed(id(n), &self.bytes(frame));
                self.expected.on_frame(n, frame);
            }
            Action::SendPart(n, frame) => {
                let mut bytes = self.bytes(frame);
                self.missing[n] = bytes.split_off(bytes.len() - 1);
                self.transport.feed(id(n), &bytes);
                self.expected.on_partial_frame(n, frame);
            }
            Action::SendTypePart(n, frame) => {
                let mut bytes = self.bytes(frame);
                self.missing[n] = bytes.split_off(1);
                self.transport.feed(id(n), &bytes);
                self.expected.on_partial_type(n, frame);
            }
            Action::SendRest(n) => {
                let rest = core::mem::take(&mut self.missing[n]);
                self.transport.feed(id(n), &rest);
                self.expected.on_rest(n);
            }
            Action::End(n) => {
                self.ended[n] = true;
                self.transport.feed_end(id(n));
                self.expected.end(n);
            }
            Action::Reset(n) => {
                self.ended[n] = true;
                self.transport.feed_reset(id(n), Code::REQUEST_CANCELLED.0);
                self.expected.reset(n);
            }
            Action::StopSending(n) => {
                self.transport.feed_stop(id(n), Code::REQUEST_CANCELLED.0);
                self.expected.stop_sending(n);
            }
            Action::Ack(n) => {
                self.transport.feed_ack(id(n));
                self.expected.ack(n);
            }
            Action::Insert => {
                let encoder = self
                    .transport
                    .peer_stream(Directionality::Unidirectional, 1);
                self.transport.feed(encoder, INSERT);
                self.expected.insert();
            }
            Action::Read(n) => {
                let (read, expected) = (self.read(n), self.expected.read(n));
                if read != expected {
                    self.failure = Some(format!("read {read:?}, expected {expected:?}"));
                }
            }
            Action::Respond(n, end) => {
                let response = Response::new(200);
                let sent = self
                    .http
                    .respond(&mut self.transport, id(n), &response, end);
                self.expect(sent.is_ok(), "responds");
                let sending = if end { Sending::Ended } else { Sending::Begun };
                self.expected.send(n, sending);
            }
            Action::Finish(n) => {
                let sent = self.http.finish(&mut self.transport, id(n));
                self.expect(sent.is_ok(), "finishes");
                self.expected.send(n, Sending::Ended);
            }
            Action::StopReading(n) => {
                let code = match self.role {
                    Role::Server => Code::NO_ERROR,
                    Role::Client => Code::REQUEST_CANCELLED,
                };
                self.http.stop(&mut self.transport, id(n), code);
                self.expected.on_stop_reading(n);
            }
            Action::Cancel(n) => {
                self.http.cancel(&mut self.transport, id(n));
                self.expected.cancel(n);
            }
        }
    }

    fn expect(&mut self, holds: bool, what: &str) {
        if !holds {
            self.failure = Some(format!("call failed: {what}"));
        }
    }

    /// Compares the result of an action with the expected one.
    fn compare(&mut self, before: &[bool]) {
        let (mut reported, events) = self.process();
        let mut expected = self.expected.take_events();
        if let Some(code) = self.expected.closed {
            let closed = self.transport.closed.as_ref().map(|(code, _)| Code(*code));
            if closed != Some(code) {
                self.failure = Some(format!("closed with {closed:?}, expected {code:?}"));
            }
            return;
        }
        if let Some((code, reason)) = &self.transport.closed {
            let reason = String::from_utf8_lossy(reason);
            self.failure = Some(format!("closed with {:?}: {reason}", Code(*code)));
            return;
        }
        // Streams are processed in any order, but each in the order of events.
        reported.sort_by_key(|(n, _)| *n);
        expected.sort_by_key(|(n, _)| *n);
        if reported != expected {
            self.failure = Some(format!("events {reported:?}, expected {expected:?}"));
        }
        self.compare_instructions();
        for (n, before) in before.iter().enumerate() {
            let readable = events.contains(&Event::Readable(id(n)));
            let heard = readable || reported.iter().any(|(other, _)| *other == n);
            let something = self.expected.streams[n].is_readable();
            if something && !before && !heard {
                self.failure = Some(format!("stream {n} is readable, but there is no event"));
            }
            if readable && !something {
                self.failure = Some(format!("stream {n} is reported as readable, but is not"));
            }
        }
    }

    fn counts(&self) -> Result<(), String> {
        let pairs = [
            (
                "open requests",
                self.http.open_requests(),
                self.expected.open_requests(),
            ),
            (
                "unacknowledged messages",
                self.http.unacknowledged_messages(),
                self.expected.unacknowledged_messages(),
            ),
        ];
        let (streams, decoder) = self.http.blocked_sections();
        let expected = if self.expected.closed.is_some() {
            // After the close, nothing is removed.
            (streams, decoder)
        } else {
            (
                self.expected.blocked_streams(),
                self.expected.blocked_streams() as u64,
            )
        };
        if (streams, decoder) != expected {
            return Err(format!(
                "{streams} blocked streams, {decoder} in the decoder, expected {}",
                expected.0
            ));
        }
        for (what, is, expected) in pairs {
            if is != expected {
                return Err(format!("{is} {what}, expected {expected}"));
            }
        }
        Ok(())
    }
}

impl World for Messages {
    type Event = Action;

    fn events(&self) -> Vec<Action> {
        let mut events = Vec::new();
        if self.expected.closed.is_some() {
            return events;
        }
        if self.expected.inserted < self.scenario.inserts {
            events.push(Action::Insert);
        }
        for n in 0..self.scenario.streams {
            let stream = &self.expected.streams[n];
            if !self.ended[n] && !stream.gone {
                events.extend([Action::End(n), Action::Reset(n)]);
                if !self.missing[n].is_empty() {
                    events.push(Action::SendRest(n));
                } else if stream.backlog() < BACKLOG {
                    events.extend(
                        self.scenario
                            .frame
                            .iter()
                            .map(|&frame| Action::Send(n, frame)),
                    );
                    events.extend(
                        self.scenario
                            .cut
                            .iter()
                            .map(|&frame| Action::SendPart(n, frame)),
                    );
                    if self.scenario.cut.contains(&TestFrame::Reserved) {
                        events.push(Action::SendTypePart(n, TestFrame::Reserved));
                    }
                }
            }
            if !self.scenario.application {
                continue;
            }
            if matches!(
                stream.sending,
                Sending::Begun | Sending::Ended | Sending::Nothing
            ) && !stream.acked
                && !stream.gone
            {
                events.push(Action::StopSending(n));
            }
            if stream.sending == Sending::Ended && !stream.acked && !stream.gone {
                events.push(Action::Ack(n));
            }
            if stream.reported && !stream.gone {
                events.push(Action::Read(n));
            }
            if stream.open && (stream.reported || self.role == Role::Client) {
                events.extend([Action::StopReading(n), Action::Cancel(n)]);
            }
            if self.role == Role::Server && stream.open && stream.reported {
                match stream.sending {
                    Sending::Nothing => {
                        events.extend([true, false].map(|end| Action::Respond(n, end)));
                    }
                    Sending::Begun => events.push(Action::Finish(n)),
                    Sending::Ended | Sending::Aborted => {}
                }
            }
        }
        events
    }

    fn apply(&mut self, event: &Action) {
        let before: Vec<bool> = self
            .expected
            .streams
            .iter()
            .map(super::model::Stream::is_readable)
            .collect();
        self.perform(*event);
        if self.failure.is_none() {
            self.compare(&before);
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.failure {
            return Err(wrong.clone());
        }
        let memory = self.http.memory();
        if memory > 16 << 10 {
            return Err(format!("{memory} bytes of memory"));
        }
        self.counts()
    }

    fn fingerprint(&self) -> Vec<u8> {
        fingerprint_of(&(
            state_of(&self.http),
            self.transport.fingerprint(),
            &self.expected,
            &self.missing,
            &self.ended,
        ))
    }
}

/// The usual frames, and a reserved one.
fn usual() -> Vec<TestFrame> {
    vec![
        TestFrame::Head,
        TestFrame::HeadWithLength,
        TestFrame::HeadWithEntry1,
        TestFrame::Trailers,
        TestFrame::TrailersWithEntry1,
        TestFrame::Data(0),
        TestFrame::Data(2),
        TestFrame::Data(5),
        TestFrame::Reserved,
    ]
}

/// One stream with all frames, and with these frames that are not allowed.
fn one_stream(role: Role, forbidden: &[u64]) -> Scenario {
    let mut frame = usual();
    frame.push(TestFrame::Undecodable);
    frame.extend(forbidden.iter().map(|&kind| TestFrame::Forbidden(kind)));
    if role == Role::Client {
        frame.push(TestFrame::Interim);
    }
    Scenario {
        streams: 1,
        frame,
        cut: vec![
            TestFrame::Head,
            TestFrame::Trailers,
            TestFrame::Data(2),
            TestFrame::Reserved,
        ],
        application: true,
        may_block: 1,
        inserts: 1,
    }
}

/// Two streams, of which one may be blocked.
fn two_streams() -> Scenario {
    Scenario {
        streams: 2,
        frame: vec![
            TestFrame::Head,
            TestFrame::HeadWithEntry1,
            TestFrame::TrailersWithEntry1,
            TestFrame::Data(2),
            TestFrame::Forbidden(FORBIDDEN[1]),
        ],
        cut: vec![TestFrame::Head],
        application: true,
        may_block: 1,
        inserts: 1,
    }
}

/// Two streams whose sections are blocked on the first or the second entry of the table; both may
/// be.
fn two_entries() -> Scenario {
    Scenario {
        streams: 2,
        frame: vec![
            TestFrame::Head,
            TestFrame::HeadWithEntry1,
            TestFrame::HeadWithEntry2,
            TestFrame::TrailersWithEntry1,
            TestFrame::TrailersWithEntry2,
        ],
        cut: Vec::new(),
        application: true,
        may_block: 2,
        inserts: 2,
    }
}

fn depth(debug: usize) -> Bounds {
    Bounds::to_depth(if cfg!(debug_assertions) {
        debug
    } else {
        debug + 1
    })
}

fn walk(name: &str, role: Role, scenario: &Scenario, bounds: Bounds) {
    explore_by_replay(name, || Messages::new(role, scenario), bounds).expect_clean();
}

#[test]
fn requests_on_one_stream_are_handled_as_expected() {
    let role = Role::Server;
    walk(
        "a request",
        role,
        &one_stream(role, &[PUSH_PROMISE]),
        depth(5),
    );
}

#[test]
fn forbidden_frames_in_any_message_close_the_connection() {
    for role in [Role::Server, Role::Client] {
        let scenario = one_stream(role, &FORBIDDEN);
        walk("forbidden frames", role, &scenario, depth(3));
    }
}

#[test]
fn responses_on_one_stream_are_handled_as_expected() {
    let role = Role::Client;
    walk(
        "a response",
        role,
        &one_stream(role, &[PUSH_PROMISE]),
        depth(5),
    );
}

#[test]
fn sections_blocked_on_two_entries_are_handled_as_expected() {
    for role in [Role::Server, Role::Client] {
        walk("waits for the table", role, &two_entries(), depth(4));
    }
}

#[test]
fn requests_on_two_streams_are_handled_as_expected() {
    walk("two requests", Role::Server, &two_streams(), depth(4));
}

#[test]
fn responses_on_two_streams_are_handled_as_expected() {
    walk("two responses", Role::Client, &two_streams(), depth(4));
}
