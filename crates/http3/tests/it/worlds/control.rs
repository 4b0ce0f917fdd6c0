//! The unidirectional streams of a peer: which there are, what is said on them, in every
//! order, cut and ended anywhere (RFC 9114 §6.2, §7.2, RFC 9204 §4.2, RFC 9218 §7).

use std::sync::Arc;

use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Code, Config, Connection, Event};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use super::state_of;
use super::vocabulary::{CAPACITY, INSERT};
use crate::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};
use crate::hostile::forger::{
    CANCEL_PUSH, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH,
    PUSH_PROMISE, RESERVED, SETTINGS, frame, varints,
};

/// Streams that the peer opens at most.
const STREAMS: u64 = 3;

/// The types of unidirectional streams.
const CONTROL: u64 = 0;
const PUSH: u64 = 1;
const ENCODER: u64 = 2;
const DECODER: u64 = 3;

/// What is said on a control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    Settings,
    /// With one identifier twice.
    SettingsTwice,
    /// With one of HTTP/2.
    SettingsOfHttp2,
    /// Which ends within a value.
    SettingsCut,
    Goaway(u64),
    /// Without an identifier.
    GoawayEmpty,
    /// With a byte too many.
    GoawayLong,
    CancelPush,
    MaxPushId(u64),
    PriorityUpdate(u64),
    PriorityUpdatePush,
    Grease,
    /// One that belongs elsewhere.
    Elsewhere(u64),
}

/// What is said on a stream of instructions.
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

/// One thing that happens, on the `n`th stream of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Happens {
    /// A stream begins with its type.
    Opens(u64),
    /// Half of a type that means nothing.
    OpensHalf,
    /// The other half.
    Rest(u64),
    Says(u64, Frame),
    /// A frame without its last byte, which follows.
    Cuts(u64, Frame),
    Instructs(u64, Instruction),
    End(u64),
    Reset(u64),
    /// The peer wants nothing of our `n`th stream.
    Refuses(u64),
}

const FRAMES: [Frame; 24] = [
    Frame::Settings,
    Frame::SettingsTwice,
    Frame::SettingsOfHttp2,
    Frame::SettingsCut,
    Frame::Goaway(0),
    Frame::Goaway(4),
    Frame::Goaway(6),
    Frame::GoawayEmpty,
    Frame::GoawayLong,
    Frame::CancelPush,
    Frame::MaxPushId(1),
    Frame::MaxPushId(0),
    Frame::PriorityUpdate(0),
    Frame::PriorityUpdate(2),
    Frame::PriorityUpdatePush,
    Frame::Grease,
    Frame::Elsewhere(DATA),
    Frame::Elsewhere(HEADERS),
    Frame::Elsewhere(PUSH_PROMISE),
    Frame::Elsewhere(0x02),
    Frame::Elsewhere(0x06),
    Frame::Elsewhere(0x08),
    Frame::Elsewhere(0x09),
    Frame::Elsewhere(SETTINGS),
];

impl Frame {
    fn bytes(self) -> Vec<u8> {
        let update = |element| [varints(&[element]), b"u=1".to_vec()].concat();
        match self {
            Self::Settings => frame(SETTINGS, &varints(&[0x21, 7])),
            Self::SettingsTwice => frame(SETTINGS, &varints(&[6, 1, 6, 1])),
            Self::SettingsOfHttp2 => frame(SETTINGS, &varints(&[2, 0])),
            Self::SettingsCut => frame(SETTINGS, &[6]),
            Self::Goaway(id) => frame(GOAWAY, &varints(&[id])),
            Self::GoawayEmpty => frame(GOAWAY, &[]),
            Self::GoawayLong => frame(GOAWAY, &[0, 0]),
            Self::CancelPush => frame(CANCEL_PUSH, &[0]),
            Self::MaxPushId(id) => frame(MAX_PUSH_ID, &varints(&[id])),
            Self::PriorityUpdate(element) => frame(PRIORITY_UPDATE, &update(element)),
            Self::PriorityUpdatePush => frame(PRIORITY_UPDATE_PUSH, &update(0)),
            Self::Grease => frame(RESERVED, b"xyz"),
            Self::Elsewhere(kind) => frame(kind, &[0]),
        }
    }

    fn is_settings(self) -> bool {
        match self {
            Self::Settings | Self::SettingsTwice | Self::SettingsOfHttp2 | Self::SettingsCut => {
                true
            }
            Self::Elsewhere(kind) => kind == SETTINGS,
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

/// What is due, by the RFCs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Due {
    /// The role of the end under test.
    server: bool,
    /// The types of the peer's streams; `None` while it is not known.
    kinds: Vec<Option<u64>>,
    settings: bool,
    goaway: Option<u64>,
    max_push_id: Option<u64>,
    capacity: bool,
    inserted: bool,
    closed: Option<Code>,
}

impl Due {
    fn close(&mut self, code: Code) {
        self.closed.get_or_insert(code);
    }

    /// A stream's type has arrived.
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

    /// A frame begins.
    fn begin(&mut self, frame: Frame) {
        if !self.settings && !frame.is_settings() {
            return self.close(Code::MISSING_SETTINGS);
        }
        match frame {
            Frame::Elsewhere(SETTINGS) if !self.settings => {}
            Frame::Elsewhere(_) => self.close(Code::FRAME_UNEXPECTED),
            _ if self.settings && frame.is_settings() => self.close(Code::FRAME_UNEXPECTED),
            Frame::MaxPushId(_) | Frame::PriorityUpdate(_) | Frame::PriorityUpdatePush
                if !self.server =>
            {
                self.close(Code::FRAME_UNEXPECTED);
            }
            _ => {}
        }
    }

    /// A frame is whole.
    fn frame(&mut self, frame: Frame) {
        self.begin(frame);
        if self.closed.is_some() {
            return;
        }
        match frame {
            Frame::Settings => self.settings = true,
            Frame::SettingsTwice | Frame::SettingsOfHttp2 => self.close(Code::SETTINGS_ERROR),
            // Its payload is half of a pair, and that of `Elsewhere` one byte too.
            Frame::SettingsCut | Frame::GoawayEmpty | Frame::GoawayLong => {
                self.close(Code::FRAME_ERROR);
            }
            Frame::Elsewhere(_) => self.close(Code::FRAME_ERROR),
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
            Frame::Grease => {}
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
            // Nothing was sent by the table, and nothing inserted in the peer's.
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
    wire: MemoryTransport,
    due: Due,
    role: Role,
    /// The frame that was cut, and its last byte.
    missing: Vec<Option<(Frame, Vec<u8>)>>,
    ended: Vec<bool>,
    wrong: Option<String>,
}

impl Streams {
    fn new(role: Role) -> Self {
        let config = Config {
            grease: false,
            ..Config::default()
        };
        let mut http = Connection::new(role, Arc::new(config), 1);
        let mut wire = MemoryTransport::new(role);
        http.start(&mut wire);
        Self {
            http,
            wire,
            due: Due {
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
            wrong: None,
        }
    }

    fn id(&self, n: u64) -> StreamId {
        self.wire.peer_stream(Directionality::Unidirectional, n)
    }

    fn open(&mut self, bytes: &[u8]) -> u64 {
        let n = self.due.kinds.len() as u64;
        self.due.kinds.push(None);
        self.missing.push(None);
        self.ended.push(false);
        self.wire.feed(self.id(n), bytes);
        n
    }

    fn happen(&mut self, event: Happens) {
        match event {
            Happens::Opens(kind) => {
                let n = self.open(&varints(&[kind]));
                self.due.identify(n, kind);
            }
            Happens::OpensHalf => {
                self.open(&[0x40]);
            }
            Happens::Rest(n) => match self.missing[n as usize].take() {
                Some((frame, last)) => {
                    self.wire.feed(self.id(n), &last);
                    self.due.frame(frame);
                }
                None => {
                    self.wire.feed(self.id(n), &[RESERVED as u8]);
                    self.due.identify(n, RESERVED);
                }
            },
            Happens::Says(n, frame) => {
                self.wire.feed(self.id(n), &frame.bytes());
                self.due.frame(frame);
            }
            Happens::Cuts(n, frame) => {
                let mut bytes = frame.bytes();
                let last = bytes.split_off(bytes.len() - 1);
                self.missing[n as usize] = Some((frame, last));
                self.wire.feed(self.id(n), &bytes);
                self.due.begin(frame);
            }
            Happens::Instructs(n, instruction) => {
                self.wire.feed(self.id(n), instruction.bytes());
                self.due.instruction(instruction);
            }
            Happens::End(n) => {
                self.ended[n as usize] = true;
                self.wire.feed_end(self.id(n));
                self.due.end(n);
            }
            Happens::Reset(n) => {
                self.ended[n as usize] = true;
                self.wire.feed_reset(self.id(n), Code::NO_ERROR.0);
                self.due.end(n);
            }
            Happens::Refuses(n) => {
                let id = StreamId::new(self.role, Directionality::Unidirectional, n);
                self.wire.feed_stop(id, Code::NO_ERROR.0);
                self.due.close(Code::CLOSED_CRITICAL_STREAM);
            }
        }
    }

    fn compare(&mut self) {
        while let Some(event) = self.wire.poll_event() {
            self.http.on_quic_event(&mut self.wire, &event);
        }
        let events: Vec<Event> = core::iter::from_fn(|| self.http.poll_event()).collect();
        self.http.flush(Instant::ZERO, &mut self.wire);
        let closed = self.wire.closed.as_ref().map(|(code, _)| Code(*code));
        if closed != self.due.closed {
            let due = self.due.closed;
            self.wrong = Some(format!("closed with {closed:?}, due is {due:?}"));
        }
        let told = events.iter().any(|event| matches!(event, Event::Closed(_)));
        if told != closed.is_some() {
            self.wrong = Some(format!("closed with {closed:?}, told {events:?}"));
        }
        if self.http.peer_settings().is_some() != self.due.settings {
            self.wrong = Some("other settings than are due".into());
        }
    }
}

impl World for Streams {
    type Event = Happens;

    fn events(&self) -> Vec<Happens> {
        let mut events = Vec::new();
        if self.due.closed.is_some() {
            return events;
        }
        if (self.due.kinds.len() as u64) < STREAMS {
            let kinds = [CONTROL, PUSH, ENCODER, DECODER, RESERVED];
            events.extend(kinds.map(Happens::Opens));
            events.push(Happens::OpensHalf);
        }
        events.extend([0, 1, 2].map(Happens::Refuses));
        for (n, kind) in (0..).zip(&self.due.kinds) {
            if self.ended[n as usize] {
                continue;
            }
            if *kind != Some(RESERVED) {
                events.extend([Happens::End(n), Happens::Reset(n)]);
            }
            match kind {
                _ if self.missing[n as usize].is_some() => events.push(Happens::Rest(n)),
                None => events.push(Happens::Rest(n)),
                Some(CONTROL) => {
                    events.extend(FRAMES.map(|frame| Happens::Says(n, frame)));
                    let cut = [Frame::Settings, Frame::Goaway(4), Frame::Grease];
                    events.extend(cut.map(|frame| Happens::Cuts(n, frame)));
                }
                Some(ENCODER) => events.extend(
                    [
                        Instruction::Capacity,
                        Instruction::CapacityTooLarge,
                        Instruction::Insert,
                        Instruction::Duplicate,
                    ]
                    .map(|instruction| Happens::Instructs(n, instruction)),
                ),
                Some(DECODER) => events.extend(
                    [
                        Instruction::Acknowledge,
                        Instruction::Cancel,
                        Instruction::IncrementZero,
                        Instruction::IncrementOne,
                    ]
                    .map(|instruction| Happens::Instructs(n, instruction)),
                ),
                Some(_) => {}
            }
        }
        events
    }

    fn apply(&mut self, event: &Happens) {
        self.happen(*event);
        self.compare();
    }

    fn check(&self) -> Result<(), String> {
        let memory = self.http.memory();
        if memory > 16 << 10 {
            return Err(format!("{memory} bytes of memory"));
        }
        match &self.wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(()),
        }
    }

    fn fingerprint(&self) -> Vec<u8> {
        let missing = self.missing.iter().map(Option::is_some).collect::<Vec<_>>();
        fingerprint_of(&(
            state_of(&self.http),
            self.wire.fingerprint(),
            &self.due,
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
fn every_unidirectional_stream_of_a_client_is_answered_as_is_due() {
    walk(Role::Server, "streams to a server");
}

#[test]
fn every_unidirectional_stream_of_a_server_is_answered_as_is_due() {
    walk(Role::Client, "streams to a client");
}
