//! A bidirectional stream of a peer that sends any frame.

use std::collections::BTreeSet;

use clearway_quic::Role;
use clearway_quic::error::{Code, TransportError};
use clearway_quic::stream::{Config, StreamEvent, StreamId, WriteError};
use clearway_quic::testing::{PeerLimits, RecvState, SendState, Streams};
use clearway_quic::wire::Frames;

use super::arrivals::Arrivals;
use super::model::{Receiving, Sending, WINDOW};
use super::{Packet, content, fill, ride};
use clearway_testing::explore::{World, fingerprint_of};

const STREAM: u64 = 0;

/// Packets whose fate is open at once.
const IN_FLIGHT: usize = 2;

/// Most bytes that the application writes.
const WRITTEN: u64 = 6;

/// What the peer grants at first, of stream and connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limits {
    /// Everything.
    Open,
    /// A byte or two.
    Tight,
}

impl Limits {
    fn bytes(self) -> (u64, u64) {
        match self {
            Self::Open => (100, 100),
            Self::Tight => (1, 2),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// STREAM with the bytes from one offset to another.
    Data(u64, u64),
    /// The same with FIN.
    Fin(u64, u64),
    Reset(u64),
    StopSending,
    MaxStreamData(u64),
    MaxData(u64),
    StreamDataBlocked(u64),
    DataBlocked(u64),
    /// The application.
    Write,
    Finish,
    Abandon,
    Read(u64),
    Stop,
    /// A packet leaves; what hurries leaves with an acknowledgement.
    Send,
    SendUrgentCredit,
    Acked(usize),
    Lost(usize),
}

/// Frames of the peer and calls that may always come.
const ALWAYS: [Event; 26] = [
    Event::Data(0, 3),
    Event::Data(3, 6),
    Event::Data(2, 4),
    Event::Data(5, 6),
    Event::Data(6, 7),
    Event::Data(0, 0),
    Event::Fin(0, 3),
    Event::Fin(3, 3),
    Event::Fin(4, 6),
    Event::Reset(2),
    Event::Reset(3),
    Event::Reset(6),
    Event::Reset(7),
    Event::StopSending,
    Event::MaxStreamData(0),
    Event::MaxStreamData(4),
    Event::MaxData(4),
    Event::StreamDataBlocked(6),
    Event::DataBlocked(6),
    Event::Finish,
    Event::Abandon,
    Event::Read(1),
    Event::Read(100),
    Event::Stop,
    Event::Send,
    Event::SendUrgentCredit,
];

pub(super) struct Victim {
    streams: Streams,
    id: StreamId,
    sending: Sending,
    receiving: Receiving,
    arrivals: Arrivals,
    in_flight: Vec<Packet>,
    /// The application met a full buffer and was not told of room since.
    blocked: bool,
    closed: Option<Code>,
    broken: Option<String>,
}

impl Victim {
    pub(super) fn new(limits: Limits) -> Self {
        let config = Config {
            max_bidi_streams: 1,
            max_uni_streams: 0,
            stream_window: WINDOW,
            connection_window: WINDOW,
            receive_budget: WINDOW,
            send_limit: 4,
            ..Config::default()
        };
        let (stream, connection) = limits.bytes();
        let mut streams = Streams::new(Role::Server, config);
        streams.set_peer_limits(PeerLimits {
            max_data: connection,
            bidi_local: stream,
            ..PeerLimits::default()
        });
        let id = StreamId::from_wire(STREAM);
        streams.on_stream(id, 0, false, b"").expect("a stream");
        while streams.poll_event().is_some() {}
        Self {
            streams,
            id,
            sending: Sending::new(id, stream, connection),
            receiving: Receiving::new(id, WINDOW, WINDOW),
            arrivals: Arrivals::default(),
            in_flight: Vec::new(),
            blocked: false,
            closed: None,
            broken: None,
        }
    }

    fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Whether the stream is over and forgotten.
    fn is_gone(&self) -> bool {
        let sent = matches!(
            self.sending.state,
            SendState::DataAcked | SendState::ResetAcked
        );
        let received = matches!(
            self.receiving.state,
            RecvState::DataRead | RecvState::ResetRead
        );
        sent && received
    }

    /// Compares what a frame did with what it had to do.
    fn judge(&mut self, done: Result<(), TransportError>, expected: Result<bool, Vec<Code>>) {
        match (done, expected) {
            (Ok(()), Ok(readable)) => {
                let wanted = readable.then(|| self.receiving.readable());
                self.expect(wanted);
            }
            (Err(error), Err(codes)) if codes.contains(&error.code) => {
                self.closed = Some(error.code);
            }
            (done, expected) => self.fail(format!("{done:?}, expected {expected:?}")),
        }
    }

    /// The application hears of this and nothing else, but that it may write.
    fn expect(&mut self, wanted: Option<StreamEvent>) {
        let mut told = Vec::new();
        while let Some(event) = self.streams.poll_event() {
            match event {
                StreamEvent::Writable(_) if self.blocked => self.blocked = false,
                event => told.push(event),
            }
        }
        if told != Vec::from_iter(wanted) {
            self.fail(format!("told {told:?}, expected {wanted:?}"));
        }
    }

    fn leave(&mut self, packet: Option<Packet>) {
        let Some(packet) = packet else { return };
        for frame in Frames::new(&packet.bytes) {
            let legal = frame.map_err(|error| error.to_string()).and_then(|frame| {
                self.sending.on_sent(&frame)?;
                self.receiving.on_sent(&frame)
            });
            if let Err(what) = legal {
                self.fail(what);
            }
        }
        self.in_flight.push(packet);
    }

    fn write(&mut self) {
        let (from, to) = (self.sending.written, self.sending.written + 2);
        let gone = self.is_gone();
        let done = self.streams.write(self.id, &content(from, to));
        let ready = self.sending.is_active() && !self.sending.finished && !gone;
        match done {
            Ok(len) if ready && len > 0 => self.sending.written += len as u64,
            Err(WriteError::Blocked) if ready => self.blocked = true,
            Err(WriteError::Stopped(code)) if self.sending.stopped == Some(code) => {}
            Err(WriteError::Finished | WriteError::Unknown) if !ready => {}
            done => self.fail(format!("a write answers {done:?}")),
        }
    }

    fn read(&mut self, max: u64) {
        let expected = if self.is_gone() {
            Err(clearway_quic::stream::ReadError::Unknown)
        } else {
            self.receiving.read(max)
        };
        let done = self.streams.read_chunk(self.id, max as usize);
        let done = done.map(|chunk| chunk.map(|chunk| chunk.to_vec()));
        // A chunk may be shorter than what is there.
        let same = match (&done, &expected) {
            (Ok(Some(done)), Ok(Some(expected))) => {
                let short = expected.len() - done.len().min(expected.len());
                self.receiving.read -= short as u64;
                !done.is_empty() && expected.starts_with(done)
            }
            (done, expected) => done == expected,
        };
        if !same {
            self.fail(format!("a read answers {done:?}, expected {expected:?}"));
        }
    }

    fn hear(&mut self, event: Event) {
        let (id, gone) = (self.id, self.is_gone());
        match event {
            Event::Data(from, to) | Event::Fin(from, to) => {
                let fin = matches!(event, Event::Fin(..));
                let frame = (from, to, fin);
                let done = self.arrivals.hear(&mut self.streams, frame, |streams| {
                    streams.on_stream(id, from, fin, &content(from, to))
                });
                let done = match done {
                    Ok(done) => done,
                    Err(wrong) => return self.fail(wrong),
                };
                let expected = if gone {
                    Ok(false)
                } else {
                    self.receiving.on_stream(from, to - from, fin)
                };
                self.judge(done, expected);
            }
            Event::Reset(final_size) => {
                let done = self.streams.on_reset_stream(id, 7, final_size);
                if done.is_ok() {
                    self.arrivals.on_reset(final_size);
                }
                let expected = if gone {
                    Ok(false)
                } else {
                    self.receiving.on_reset(7, final_size)
                };
                self.judge(done, expected);
            }
            Event::StopSending => {
                let done = self.streams.on_stop_sending(id, 8);
                let told = self.sending.stop(8);
                self.blocked &= told.is_none();
                self.expect(told);
                self.judge(done, Ok(false));
            }
            Event::MaxStreamData(limit) => {
                let done = self.streams.on_max_stream_data(id, limit);
                self.sending.limit = self.sending.limit.max(limit);
                self.judge(done, Ok(false));
            }
            Event::MaxData(limit) => {
                self.streams.on_max_data(limit);
                self.sending.connection_limit = self.sending.connection_limit.max(limit);
            }
            Event::StreamDataBlocked(at) => {
                let done = self.streams.on_stream_data_blocked(id, at);
                self.judge(done, Ok(false));
            }
            Event::DataBlocked(at) => self.streams.on_data_blocked(at),
            Event::Write
            | Event::Finish
            | Event::Abandon
            | Event::Read(_)
            | Event::Stop
            | Event::Send
            | Event::SendUrgentCredit
            | Event::Acked(_)
            | Event::Lost(_) => self.act(event),
        }
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Write => self.write(),
            Event::Finish => {
                let may = self.sending.is_active() && !self.sending.finished;
                let done = self.streams.finish(self.id);
                self.sending.finished |= may;
                if done.is_ok() != may {
                    self.fail(format!("finish answers {done:?}"));
                }
            }
            Event::Abandon => {
                // An error only once the stream is over.
                let _ = self.streams.reset(self.id, 5);
                if self.sending.reset(5) {
                    self.blocked = false;
                }
            }
            Event::Read(max) => self.read(max),
            Event::Stop => {
                let _ = self.streams.stop(self.id, 9);
                self.receiving.stop();
                self.arrivals.on_stop();
            }
            Event::Send => {
                let packet = fill(&mut self.streams);
                self.leave(packet);
            }
            Event::SendUrgentCredit => {
                let packet = ride(&mut self.streams);
                self.leave(packet);
            }
            Event::Acked(n) => {
                let packet = self.in_flight.remove(n);
                let mut told = None;
                for each in &packet.contents {
                    self.streams.on_acked(each);
                    told = told.or(self.sending.on_acked(each));
                }
                self.expect(told);
            }
            Event::Lost(n) => {
                let packet = self.in_flight.remove(n);
                packet.contents.iter().for_each(|c| self.streams.on_lost(c));
            }
            Event::Data(..)
            | Event::Fin(..)
            | Event::Reset(_)
            | Event::StopSending
            | Event::MaxStreamData(_)
            | Event::MaxData(_)
            | Event::StreamDataBlocked(_)
            | Event::DataBlocked(_) => {}
        }
    }
}

impl World for Victim {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        if self.closed.is_some() {
            return Vec::new();
        }
        let mut events = ALWAYS.to_vec();
        if self.in_flight.len() >= IN_FLIGHT {
            events.retain(|event| !matches!(event, Event::Send | Event::SendUrgentCredit));
        }
        if self.sending.written < WRITTEN {
            events.push(Event::Write);
        }
        for n in 0..self.in_flight.len() {
            events.extend([Event::Acked(n), Event::Lost(n)]);
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        self.hear(*event);
        if self.closed.is_none() {
            self.expect(None);
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        if self.closed.is_some() {
            return Ok(());
        }
        let expected =
            (!self.is_gone()).then_some((Some(self.sending.state), Some(self.receiving.state)));
        if self.streams.states(self.id) != expected {
            let states = self.streams.states(self.id);
            return Err(format!("the halves are {states:?}, expected {expected:?}"));
        }
        let useful = self.streams.productive_work();
        let counted = (useful.announced, useful.sent, useful.opened);
        let due = (self.arrivals.highest, self.sending.sent, 1);
        if counted != due {
            return Err(format!(
                "announced, sent and opened are {counted:?}, expected {due:?}"
            ));
        }
        // Nobody waits for room that there is.
        if self.blocked && self.sending.is_active() && self.streams.counts().send_buffered == 0 {
            return Err("a writer waits and nothing is buffered".into());
        }
        self.streams.check_accounts()
    }

    fn fingerprint(&self) -> Vec<u8> {
        let models = format!("{:?} {:?}", self.sending, self.receiving);
        let packets: BTreeSet<_> = self
            .in_flight
            .iter()
            .map(|packet| format!("{:?}", packet.contents))
            .collect();
        let streams = format!("{:?}", self.streams);
        fingerprint_of(&(
            streams,
            models,
            &self.arrivals,
            packets,
            self.blocked,
            self.closed.map(|code| format!("{code:?}")),
        ))
    }
}
