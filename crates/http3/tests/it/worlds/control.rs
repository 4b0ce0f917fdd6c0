//! The unidirectional streams of a peer: which ones it opens and what it sends on them, in every
//! order, incomplete and ended anywhere (RFC 9114 §6.2, §7.2, RFC 9204 §4.2, RFC 9218 §7).

use std::sync::Arc;

use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Code, Config, Connection, Event};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use super::frames::{CAPACITY, INSERT};
use super::state_of;
use crate::hostile::hostile_peer::{
    CANCEL_PUSH, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH,
    PUSH_PROMISE, RESERVED, SETTINGS, frame, varints,
};
use clearway_testing::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};

/// Maximum number of streams that the peer opens.
const STREAMS: u64 = 3;

/// The types of unidirectional streams.
const CONTROL: u64 = 0;
const PUSH: u64 = 1;
const ENCODER: u64 = 2;
const DECODER: u64 = 3;

/// A frame on the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    Settings,
    /// SETTINGS with a duplicate identifier.
    DuplicateSetting,
    /// SETTINGS with an identifier of HTTP/2.
    Http2Setting,
    /// SETTINGS that end within a value.
    TruncatedSettings,
    Goaway(u64),
    /// GOAWAY without an identifier.
    EmptyGoaway,
    /// GOAWAY with a byte too many.
    LongGoaway,
    CancelPush,
    MaxPushId(u64),
    PriorityUpdate(u64),
    PriorityUpdatePush,
    Reserved,
    /// A frame that is not allowed on the control stream.
    NotAllowed(u64),
}

/// An instruction on a QPACK stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Instruction {
    Capacity,
    CapacityTooLarge,
    Insert,
    Duplicate,
    Acknowledge,
    Cancel,
    IncrementZero,
    IncrementOne,
}

/// An action, usually on the `n`th stream of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// Opens a stream with its type.
    Open(u64),
    /// Opens a stream with half of a reserved type.
    OpenPart,
    /// Sends what is missing of a type or a frame.
    SendRest(u64),
    Send(u64, Frame),
    /// Sends a frame without its last byte.
    SendPart(u64, Frame),
    Instruct(u64, Instruction),
    End(u64),
    Reset(u64),
    /// Asks to stop sending on our `n`th stream.
    StopSending(u64),
}

const FRAMES: [Frame; 24] = [
    Frame::Settings,
    Frame::DuplicateSetting,
    Frame::Http2Setting,
    Frame::TruncatedSettings,
    Frame::Goaway(0),
    Frame::Goaway(4),
    Frame::Goaway(6),
    Frame::EmptyGoaway,
    Frame::LongGoaway,
    Frame::CancelPush,
    Frame::MaxPushId(1),
    Frame::MaxPushId(0),
    Frame::PriorityUpdate(0),
    Frame::PriorityUpdate(2),
    Frame::PriorityUpdatePush,
    Frame::Reserved,
    Frame::NotAllowed(DATA),
    Frame::NotAllowed(HEADERS),
    Frame::NotAllowed(PUSH_PROMISE),
    Frame::NotAllowed(0x02),
    Frame::NotAllowed(0x06),
    Frame::NotAllowed(0x08),
    Frame::NotAllowed(0x09),
    Frame::NotAllowed(SETTINGS),
];

impl Frame {
    fn bytes(self) -> Vec<u8> {
        let update = |element| [varints(&[element]), b"u=1".to_vec()].concat();
        match self {
            Self::Settings => frame(SETTINGS, &varints(&[0x21, 7])),
            Self::DuplicateSetting => frame(SETTINGS, &varints(&[6, 1, 6, 1])),
            Self::Http2Setting => frame(SETTINGS, &varints(&[2, 0])),
            Self::TruncatedSettings => frame(SETTINGS, &[6]),
            Self::Goaway(id) => frame(GOAWAY, &varints(&[id])),
            Self::EmptyGoaway => frame(GOAWAY, &[]),
            Self::LongGoaway => frame(GOAWAY, &[0, 0]),
            Self::CancelPush => frame(CANCEL_PUSH, &[0]),
            Self::MaxPushId(id) => frame(MAX_PUSH_ID, &varints(&[id])),
            Self::PriorityUpdate(element) => frame(PRIORITY_UPDATE, &update(element)),
            Self::PriorityUpdatePush => frame(PRIORITY_UPDATE_PUSH, &update(0)),
            Self::Reserved => frame(RESERVED, b"xyz"),
            Self::NotAllowed(kind) => frame(kind, &[0]),
        }
    }

    fn is_settings(self) -> bool {
        match self {
            Self::Settings
            | Self::DuplicateSetting
            | Self::Http2Setting
            | Self::TruncatedSettings => true,
            Self::NotAllowed(kind) => kind == SETTINGS,
            _ => false,
        }
    }
}

impl Instruction {
    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Capacity => CAPACITY,
            Self::CapacityTooLarge => &[0x3f, 0xff, 0xff, 0x7f],
            Self::Insert => INSERT,
            Self::Duplicate => &[0x00],
            Self::Acknowledge => &[0x80],
            Self::Cancel => &[0x40],
            Self::IncrementZero => &[0x00],
            Self::IncrementOne => &[0x01],
        }
    }
}

/// The expected state, by the RFCs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Expected {
    /// Whether the endpoint under test is a server.
    server: bool,
    /// The types of the peer's streams; `None` while unknown.
    kinds: Vec<Option<u64>>,
    settings: bool,
    goaway: Option<u64>,
    max_push_id: Option<u64>,
    capacity: bool,
    inserted: bool,
    closed: Option<Code>,
}

impl Expected {
    fn close(&mut self, code: Code) {
        self.closed.get_or_insert(code);
    }

    /// Handles the type of a stream.
    fn identify(&mut self, n: u64, kind: u64) {
        let again = self.kinds.contains(&Some(kind));
        self.kinds[n as usize] = Some(kind);
        match kind {
            CONTROL | ENCODER | DECODER if again => self.close(Code::STREAM_CREATION_ERROR),
            PUSH if self.server => self.close(Code::STREAM_CREATION_ERROR),
            PUSH => self.close(Code::ID_ERROR),
            _ => {}
        }
    }

    fn end(&mut self, n: u64) {
        if let Some(CONTROL | ENCODER | DECODER) = self.kinds[n as usize] {
            self.close(Code::CLOSED_CRITICAL_STREAM);
        }
    }

    /// Handles the header of a frame.
    fn begin(&mut self, frame: Frame) {
        if !self.settings && !frame.is_settings() {
            return self.close(Code::MISSING_SETTINGS);
        }
        match frame {
            Frame::NotAllowed(SETTINGS) if !self.settings => {}
            Frame::NotAllowed(_) => self.close(Code::FRAME_UNEXPECTED),
            _ if self.settings && frame.is_settings() => self.close(Code::FRAME_UNEXPECTED),
            Frame::MaxPushId(_) | Frame::PriorityUpdate(_) | Frame::PriorityUpdatePush
                if !self.server =>
            {
                self.close(Code::FRAME_UNEXPECTED);
            }
            _ => {}
        }
    }

    /// Handles a complete frame.
    fn frame(&mut self, frame: Frame) {
        self.begin(frame);
        if self.closed.is_some() {
            return;
        }
        match frame {
            Frame::Settings => self.settings = true,
            Frame::DuplicateSetting | Frame::Http2Setting => self.close(Code::SETTINGS_ERROR),
            // The payload is half of a setting, and so is that of `NotAllowed`.
            Frame::TruncatedSettings | Frame::EmptyGoaway | Frame::LongGoaway => {
                self.close(Code::FRAME_ERROR);
            }
            Frame::NotAllowed(_) => self.close(Code::FRAME_ERROR),
            Frame::Goaway(id) => {
                let request = self.server || id % 4 == 0;
                if !request || self.goaway.is_some_and(|before| id > before) {
                    return self.close(Code::ID_ERROR);
                }
                self.goaway = Some(id);
            }
            // No push was promised or allowed.
            Frame::CancelPush | Frame::PriorityUpdatePush => self.close(Code::ID_ERROR),
            Frame::MaxPushId(id) => {
                if self.max_push_id.is_some_and(|before| id < before) {
                    return self.close(Code::ID_ERROR);
                }
                self.max_push_id = Some(id);
            }
            Frame::PriorityUpdate(element) => {
                if element % 4 != 0 {
                    self.close(Code::ID_ERROR);
                }
            }
            Frame::Reserved => {}
        }
    }

    fn instruction(&mut self, instruction: Instruction) {
        let wrong = match instruction {
            Instruction::Capacity => {
                self.capacity = true;
                None
            }
            Instruction::CapacityTooLarge => Some(Code::QPACK_ENCODER_STREAM_ERROR),
            Instruction::Insert if self.capacity => {
                self.inserted = true;
                None
            }
            Instruction::Duplicate if self.inserted => None,
            Instruction::Insert | Instruction::Duplicate => Some(Code::QPACK_ENCODER_STREAM_ERROR),
            // We sent no section that refers to the table, and no insertion.
            Instruction::Acknowledge | Instruction::IncrementZero | Instruction::IncrementOne => {
                Some(Code::QPACK_DECODER_STREAM_ERROR)
            }
            Instruction::Cancel => None,
        };
        if let Some(code) = wrong {
            self.close(code);
        }
    }
}

struct Streams {
    http: Connection,
    transport: MemoryTransport,
    expected: Expected,
    role: Role,
    /// The incomplete frame, and its last byte.
    missing: Vec<Option<(Frame, Vec<u8>)>>,
    ended: Vec<bool>,
    failure: Option<String>,
}

impl Streams {
    fn new(role: Role) -> Self {
        let config = Config {
            grease: false,
            ..Config::default()
        };
        let mut http = Connection::new(role, Arc::new(config), 1);
        let mut transport = MemoryTransport::new(role);
        http.start(&mut transport);
        Self {
            http,
            transport,
            expected: Expected {
                server: role == Role::Server,
                kinds: Vec::new(),
                settings: false,
                goaway: None,
                max_push_id: None,
                capacity: false,
                inserted: false,
                closed: None,
            },
            role,
            missing: Vec::new(),
            ended: Vec::new(),
            failure: None,
        }
    }

    fn id(&self, n: u64) -> StreamId {
        self.transport
            .peer_stream(Directionality::Unidirectional, n)
    }

    fn open(&mut self, bytes: &[u8]) -> u64 {
        let n = self.expected.kinds.len() as u64;
        self.expected.kinds.push(None);
        self.missing.push(None);
        self.ended.push(false);
        self.transport.feed(self.id(n), bytes);
        n
    }

    fn perform(&mut self, event: Action) {
        match event {
            Action::Open(kind) => {
                let n = self.open(&varints(&[kind]));
                self.expected.identify(n, kind);
            }
            Action::OpenPart => {
                self.open(&[0x40]);
            }
            Action::SendRest(n) => match self.missing[n as usize].take() {
                Some((frame, last)) => {
                    self.transport.feed(self.id(n), &last);
                    self.expected.frame(frame);
                }
                None => {
                    self.transport.feed(self.id(n), &[RESERVED as u8]);
                    self.expected.identify(n, RESERVED);
                }
            },
            Action::Send(n, frame) => {
                self.transport.feed(self.id(n), &frame.bytes());
                self.expected.frame(frame);
            }
            Action::SendPart(n, frame) => {
                let mut bytes = frame.bytes();
                let last = bytes.split_off(bytes.len() - 1);
                self.missing[n as usize] = Some((frame, last));
                self.transport.feed(self.id(n), &bytes);
                self.expected.begin(frame);
            }
            Action::Instruct(n, instruction) => {
                self.transport.feed(self.id(n), instruction.bytes());
                self.expected.instruction(instruction);
            }
            Action::End(n) => {
                self.ended[n as usize] = true;
                self.transport.feed_end(self.id(n));
                self.expected.end(n);
            }
            Action::Reset(n) => {
                self.ended[n as usize] = true;
                self.transport.feed_reset(self.id(n), Code::NO_ERROR.0);
                self.expected.end(n);
            }
            Action::StopSending(n) => {
                let id = StreamId::new(self.role, Directionality::Unidirectional, n);
                self.transport.feed_stop(id, Code::NO_ERROR.0);
                self.expected.close(Code::CLOSED_CRITICAL_STREAM);
            }
        }
    }

    fn compare(&mut self) {
        while let Some(event) = self.transport.poll_event() {
            self.http.on_quic_event(&mut self.transport, &event);
        }
        let events: Vec<Event> = core::iter::from_fn(|| self.http.poll_event()).collect();
        self.http.flush(Instant::ZERO, &mut self.transport);
        let closed = self.transport.closed.as_ref().map(|(code, _)| Code(*code));
        if closed != self.expected.closed {
            let expected = self.expected.closed;
            self.failure = Some(format!("closed with {closed:?}, expected {expected:?}"));
        }
        let reported = events.iter().any(|event| matches!(event, Event::Closed(_)));
        if reported != closed.is_some() {
            self.failure = Some(format!("closed with {closed:?}, events {events:?}"));
        }
        if self.http.peer_settings().is_some() != self.expected.settings {
            self.failure = Some("unexpected settings".into());
        }
    }
}

impl World for Streams {
    type Event = Action;

    fn events(&self) -> Vec<Action> {
        let mut events = Vec::new();
        if self.expected.closed.is_some() {
            return events;
        }
        if (self.expected.kinds.len() as u64) < STREAMS {
            let kinds = [CONTROL, PUSH, ENCODER, DECODER, RESERVED];
            events.extend(kinds.map(Action::Open));
            events.push(Action::OpenPart);
        }
        events.extend([0, 1, 2].map(Action::StopSending));
        for (n, kind) in (0..).zip(&self.expected.kinds) {
            if self.ended[n as usize] {
                continue;
            }
            if *kind != Some(RESERVED) {
                events.extend([Action::End(n), Action::Reset(n)]);
            }
            match kind {
                _ if self.missing[n as usize].is_some() => events.push(Action::SendRest(n)),
                None => events.push(Action::SendRest(n)),
                Some(CONTROL) => {
                    events.extend(FRAMES.map(|frame| Action::Send(n, frame)));
                    let cut = [Frame::Settings, Frame::Goaway(4), Frame::Reserved];
                    events.extend(cut.map(|frame| Action::SendPart(n, frame)));
                }
                Some(ENCODER) => events.extend(
                    [
                        Instruction::Capacity,
                        Instruction::CapacityTooLarge,
                        Instruction::Insert,
                        Instruction::Duplicate,
                    ]
                    .map(|instruction| Action::Instruct(n, instruction)),
                ),
                Some(DECODER) => events.extend(
                    [
                        Instruction::Acknowledge,
                        Instruction::Cancel,
                        Instruction::IncrementZero,
                        Instruction::IncrementOne,
                    ]
                    .map(|instruction| Action::Instruct(n, instruction)),
                ),
                Some(_) => {}
            }
        }
        events
    }

    fn apply(&mut self, event: &Action) {
        self.perform(*event);
        self.compare();
    }

    fn check(&self) -> Result<(), String> {
        let memory = self.http.memory();
        if memory > 16 << 10 {
            return Err(format!("{memory} bytes of memory"));
        }
        match &self.failure {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(()),
        }
    }

    fn fingerprint(&self) -> Vec<u8> {
        let missing = self.missing.iter().map(Option::is_some).collect::<Vec<_>>();
        fingerprint_of(&(
            state_of(&self.http),
            self.transport.fingerprint(),
            &self.expected,
            missing,
            &self.ended,
        ))
    }
}

fn walk(role: Role, name: &str) {
    let depth = if cfg!(debug_assertions) { 6 } else { 7 };
    explore_by_replay(name, || Streams::new(role), Bounds::to_depth(depth)).expect_clean();
}

#[test]
fn unidirectional_streams_of_a_client_are_handled_as_expected() {
    walk(Role::Server, "streams to a server");
}

#[test]
fn unidirectional_streams_of_a_server_are_handled_as_expected() {
    walk(Role::Client, "streams to a client");
}
