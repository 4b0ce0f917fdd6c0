//! A stream between two ends whose packets are lost, late, repeated and reordered.
//!
//! From every state the world is also run to its end: all packets arrive, the
//! applications act when they are told to. Then everything has been delivered, both
//! ends have forgotten the stream, and its credit is there for the next one.

use clearway_quic::Role;
use clearway_quic::stream::{Config, Directionality, ReadError, StreamEvent, StreamId, WriteError};
use clearway_quic::testing::{RecvState, SendState, StreamContent, Streams};
use clearway_quic::wire::{Frame, Frames};

use super::arrivals::Arrivals;
use super::model::{Receiving, Sending, WINDOW};
use super::{Packet, content, fill, ride};
use clearway_testing::explore::{World, fingerprint_of};

/// Packets on their way in one direction at once.
const IN_FLIGHT: usize = 2;

/// Most bytes that are written: more than any window.
const WRITTEN: u64 = 9;

/// Bytes of a write.
const PIECE: u64 = 3;

/// Round trips after which two ends that still talk never fall silent.
const ROUND_TRIPS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PacketDirection {
    /// From the writer to the reader.
    Up,
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Write,
    Finish,
    Reset,
    Read(u64),
    Stop,
    Send(PacketDirection),
    /// What rides in an acknowledgement of the reader's leaves.
    SendUrgentCredit,
    /// The `n`th packet arrives and is acknowledged.
    Arrives(PacketDirection, usize),
    /// It arrives, and a copy of it will.
    IsRepeated(PacketDirection, usize),
    IsLost(PacketDirection, usize),
    /// It is taken for lost, but is on its way.
    IsLate(PacketDirection, usize),
}

pub(super) struct Pair {
    writer: Streams,
    reader: Streams,
    id: StreamId,
    sending: Sending,
    receiving: Receiving,
    arrivals: Arrivals,
    up: Vec<Packet>,
    down: Vec<Packet>,
    /// The application may read, or write, as it was told or has found.
    readable: bool,
    writable: bool,
    /// How the reader's application learned of the end.
    end: Option<Result<(), ReadError>>,
    log: Vec<Event>,
    broken: Option<String>,
}

impl Pair {
    pub(super) fn new() -> Self {
        let config = Config {
            max_bidi_streams: 0,
            max_uni_streams: 1,
            stream_window: 4,
            connection_window: 5,
            receive_budget: WINDOW,
            send_limit: WINDOW,
            ..Config::default()
        };
        let mut writer = Streams::new(Role::Client, config.clone());
        let reader = Streams::new(Role::Server, config);
        writer.set_peer_limits(reader.initial_limits());
        let id = writer.open(Directionality::Unidirectional);
        let id = id.expect("credit for a stream");
        Self {
            writer,
            reader,
            id,
            sending: Sending::new(id, 4, 5),
            receiving: Receiving::new(id, 4, 5),
            arrivals: Arrivals::default(),
            up: Vec::new(),
            down: Vec::new(),
            readable: false,
            writable: true,
            end: None,
            log: Vec::new(),
            broken: None,
        }
    }

    fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn packets(&mut self, way: PacketDirection) -> &mut Vec<Packet> {
        match way {
            PacketDirection::Up => &mut self.up,
            PacketDirection::Down => &mut self.down,
        }
    }

    fn write(&mut self, len: u64) {
        let from = self.sending.written;
        match self.writer.write(self.id, &content(from, from + len)) {
            Ok(n) if self.sending.is_active() && !self.sending.finished && n > 0 => {
                self.sending.written += n as u64;
            }
            Err(WriteError::Blocked) if self.sending.is_active() => self.writable = false,
            Err(WriteError::Stopped(code)) if self.sending.stopped == Some(code) => {}
            Err(WriteError::Finished | WriteError::Unknown)
                if self.sending.finished || !self.sending.is_active() => {}
            done => self.fail(format!("a write answers {done:?}")),
        }
    }

    fn finish(&mut self) {
        let may = self.sending.is_active() && !self.sending.finished;
        let done = self.writer.finish(self.id);
        self.sending.finished |= may;
        if done.is_ok() != may {
            self.fail(format!("finish answers {done:?}"));
        }
    }

    fn read(&mut self, max: u64) {
        let known = self.reader.states(self.id).is_some();
        let done = self.reader.read_chunk(self.id, max as usize);
        let done = done.map(|chunk| chunk.map(|chunk| chunk.to_vec()));
        // Before its first packet there is no stream, after its end neither.
        let expected = if known {
            self.receiving.read(max)
        } else {
            Err(ReadError::Unknown)
        };
        let same = match (&done, &expected) {
            (Ok(Some(done)), Ok(Some(expected))) => {
                let short = expected.len() - done.len().min(expected.len());
                self.receiving.read -= short as u64;
                !done.is_empty() && expected.starts_with(done)
            }
            (done, expected) => done == expected,
        };
        match &done {
            Ok(Some(_)) => {}
            Ok(None) => self.end = Some(Ok(())),
            Err(error @ ReadError::Reset(_)) => self.end = Some(Err(*error)),
            Err(ReadError::Blocked | ReadError::Unknown) => self.readable = false,
        }
        if !same {
            self.fail(format!("a read answers {done:?}, expected {expected:?}"));
        }
    }

    fn leave(&mut self, way: PacketDirection, packet: Option<Packet>) {
        let Some(packet) = packet else { return };
        for frame in Frames::new(&packet.bytes) {
            let frame = frame.expect("our own frame");
            let legal = match way {
                PacketDirection::Up => self.sending.on_sent(&frame),
                PacketDirection::Down => self.receiving.on_sent(&frame),
            };
            if let Err(what) = legal {
                self.fail(what);
            }
        }
        self.packets(way).push(packet);
    }

    fn arrive(&mut self, way: PacketDirection, packet: &Packet) {
        for frame in Frames::new(&packet.bytes) {
            let frame = frame.expect("our own frame");
            let done = match way {
                PacketDirection::Up => self.hear_up(&frame),
                PacketDirection::Down => self.hear_down(&frame),
            };
            if let Err(what) = done {
                self.fail(what);
            }
        }
        self.take_events();
    }

    /// The reader hears of the writer.
    fn hear_up(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let known = self.reader.states(self.id).is_some();
        let begun = known || self.receiving.highest > 0 || self.end.is_some();
        let (done, expected) = match *frame {
            Frame::Stream {
                id,
                offset,
                fin,
                data,
            } => {
                let bytes = (offset, offset + data.len() as u64, fin);
                let done = self.arrivals.hear(&mut self.reader, bytes, |reader| {
                    reader.on_stream(id, offset, fin, data)
                })?;
                let expected = self.receiving.on_stream(offset, data.len() as u64, fin);
                (done, expected)
            }
            Frame::ResetStream {
                id,
                code,
                final_size,
            } => {
                self.arrivals.on_reset(final_size);
                (
                    self.reader.on_reset_stream(id, code, final_size),
                    self.receiving.on_reset(code, final_size),
                )
            }
            Frame::StreamDataBlocked { id, limit } => {
                (self.reader.on_stream_data_blocked(id, limit), Ok(false))
            }
            Frame::DataBlocked { limit } => {
                self.reader.on_data_blocked(limit);
                return Ok(());
            }
            ref other => return Err(format!("{other:?} from the writer")),
        };
        done.map_err(|error| format!("{frame:?} is refused: {error}"))?;
        let told = expected.map_err(|codes| format!("{frame:?} is taken, expected {codes:?}"))?;
        let mut events = Vec::new();
        while let Some(event) = self.reader.poll_event() {
            events.push(event);
        }
        let opened = StreamEvent::Opened(Directionality::Unidirectional);
        let mut wanted = Vec::new();
        wanted.extend((!begun && events.contains(&opened)).then_some(opened));
        wanted.extend(told.then(|| self.receiving.readable()));
        self.readable |= told;
        if events != wanted {
            return Err(format!("{frame:?} tells {events:?}, expected {wanted:?}"));
        }
        Ok(())
    }

    /// The writer hears of the reader.
    fn hear_down(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        match *frame {
            Frame::MaxData(limit) => {
                self.writer.on_max_data(limit);
                self.sending.connection_limit = self.sending.connection_limit.max(limit);
                Ok(())
            }
            Frame::MaxStreamData { id, limit } => {
                self.sending.limit = self.sending.limit.max(limit);
                self.writer.on_max_stream_data(id, limit)
            }
            Frame::MaxStreams {
                directionality,
                limit,
            } => self.writer.on_max_streams(directionality, limit),
            Frame::StopSending { id, code } => {
                let told = self.sending.stop(code);
                let done = self.writer.on_stop_sending(id, code);
                let mut events = Vec::new();
                while let Some(event) = self.writer.poll_event() {
                    match event {
                        StreamEvent::Writable(_) => self.writable = true,
                        event => events.push(event),
                    }
                }
                if events != Vec::from_iter(told) {
                    return Err(format!("{frame:?} tells {events:?}, expected {told:?}"));
                }
                done
            }
            ref other => return Err(format!("{other:?} from the reader")),
        }
        .map_err(|error| format!("{frame:?} is refused: {error}"))
    }

    /// The sender of a packet hears that it arrived.
    fn acknowledge(&mut self, way: PacketDirection, contents: &[StreamContent]) {
        match way {
            PacketDirection::Down => contents.iter().for_each(|c| self.reader.on_acked(c)),
            PacketDirection::Up => {
                let mut told = Vec::new();
                for each in contents {
                    self.writer.on_acked(each);
                    told.extend(self.sending.on_acked(each));
                }
                let mut events = Vec::new();
                while let Some(event) = self.writer.poll_event() {
                    match event {
                        StreamEvent::Writable(_) => self.writable = true,
                        event => events.push(event),
                    }
                }
                if events != told {
                    self.fail(format!("told {events:?}, expected {told:?}"));
                }
            }
        }
    }

    fn lose(&mut self, way: PacketDirection, contents: &[StreamContent]) {
        let sender = match way {
            PacketDirection::Up => &mut self.writer,
            PacketDirection::Down => &mut self.reader,
        };
        contents.iter().for_each(|c| sender.on_lost(c));
    }

    fn take_events(&mut self) {
        while let Some(event) = self.writer.poll_event() {
            match event {
                StreamEvent::Writable(_) => self.writable = true,
                StreamEvent::StreamsAvailable(_) => {}
                event => self.fail(format!("the writer is told {event:?}")),
            }
        }
        while let Some(event) = self.reader.poll_event() {
            self.fail(format!("the reader is told {event:?}"));
        }
    }

    /// Everything arrives from here on, and who is told acts: how it ends.
    fn run_to_end(mut self) -> Result<(), String> {
        // Who was never told anything looks once.
        self.readable = true;
        for _ in 0..ROUND_TRIPS {
            if self.writable && self.sending.written < WRITTEN {
                self.write(PIECE);
            } else if self.writable && self.sending.is_active() && !self.sending.finished {
                self.finish();
            }
            while self.readable && self.end.is_none() && self.broken.is_none() {
                self.read(100);
            }
            let packet = fill(&mut self.writer);
            self.leave(PacketDirection::Up, packet);
            let packet = fill(&mut self.reader);
            self.leave(PacketDirection::Down, packet);
            for way in [PacketDirection::Up, PacketDirection::Down] {
                for packet in std::mem::take(self.packets(way)) {
                    self.arrive(way, &packet);
                    self.acknowledge(way, &packet.contents);
                }
            }
            self.check_state()?;
            if self.is_over() {
                return self.check_end();
            }
        }
        Err(format!(
            "the stream never ends: {:?}, {:?}",
            self.sending, self.receiving
        ))
    }

    fn is_over(&self) -> bool {
        self.up.is_empty()
            && self.down.is_empty()
            && self.writer.states(self.id).is_none()
            && self.reader.states(self.id).is_none()
    }

    /// What was promised is kept, and what was lent is back.
    fn check_end(mut self) -> Result<(), String> {
        for _ in 0..4 {
            if let Some(packet) = fill(&mut self.reader) {
                self.arrive(PacketDirection::Down, &packet);
                self.acknowledge(PacketDirection::Down, &packet.contents);
            }
        }
        let complete = self.receiving.read == self.sending.written;
        let delivered = match self.end {
            Some(Ok(())) => complete && self.sending.finished,
            Some(Err(ReadError::Reset(code))) => self.sending.code == Some(code),
            Some(Err(_)) => false,
            None => self.receiving.stopped,
        };
        if !delivered {
            return Err(format!(
                "it ends with {:?}: {:?}, {:?}",
                self.end, self.sending, self.receiving
            ));
        }
        for (name, end) in [("writer", &self.writer), ("reader", &self.reader)] {
            let counts = end.counts();
            if counts.open > 0 || counts.send_buffered > 0 || counts.receive_buffered > 0 {
                return Err(format!("the {name} still holds {counts:?}"));
            }
        }
        if self.reader.counts().consumed != self.receiving.highest {
            return Err("credit of the stream is not given back".into());
        }
        self.check_next_stream()
    }

    /// A stream that follows has the credit of this one.
    fn check_next_stream(mut self) -> Result<(), String> {
        let Some(id) = self.writer.open(Directionality::Unidirectional) else {
            return Err("no stream may follow".into());
        };
        let written = self.writer.write(id, &content(0, 4));
        let packet = fill(&mut self.writer);
        let sent: u64 = packet
            .iter()
            .flat_map(|packet| &packet.contents)
            .map(|each| match each {
                StreamContent::Data { len, .. } => u64::from(*len),
                _ => 0,
            })
            .sum();
        if written != Ok(4) || sent != 4 {
            return Err(format!(
                "of 4 bytes {written:?} are written and {sent} sent on the next stream"
            ));
        }
        Ok(())
    }

    fn check_state(&self) -> Result<(), String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let over = matches!(
            self.sending.state,
            SendState::DataAcked | SendState::ResetAcked
        );
        let expected = (!over).then_some((Some(self.sending.state), None));
        let writing = self.writer.states(self.id);
        if writing != expected {
            return Err(format!("the writer is {writing:?}, expected {expected:?}"));
        }
        let over = matches!(
            self.receiving.state,
            RecvState::DataRead | RecvState::ResetRead
        );
        let expected = (!over).then_some((None, Some(self.receiving.state)));
        let reading = self.reader.states(self.id);
        let unborn = reading.is_none() && self.receiving.state == RecvState::Recv;
        if reading != expected && !unborn {
            return Err(format!("the reader is {reading:?}, expected {expected:?}"));
        }
        let counted = (
            self.writer.productive_work().sent,
            self.reader.productive_work().announced,
        );
        let due = (self.sending.sent, self.arrivals.highest);
        if counted != due {
            return Err(format!(
                "sent and announced are {counted:?}, expected {due:?}"
            ));
        }
        self.writer.check_accounts()?;
        self.reader.check_accounts()
    }
}

impl World for Pair {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Finish, Event::Reset];
        if self.sending.written < WRITTEN {
            events.push(Event::Write);
        }
        if self.reader.states(self.id).is_some() {
            events.extend([Event::Read(1), Event::Read(100), Event::Stop]);
        }
        for (way, packets) in [
            (PacketDirection::Up, &self.up),
            (PacketDirection::Down, &self.down),
        ] {
            if packets.len() < IN_FLIGHT {
                events.push(Event::Send(way));
            }
            for (n, packet) in packets.iter().enumerate() {
                events.extend([
                    Event::Arrives(way, n),
                    Event::IsRepeated(way, n),
                    Event::IsLost(way, n),
                ]);
                if !packet.lost {
                    events.push(Event::IsLate(way, n));
                }
            }
        }
        if self.down.len() < IN_FLIGHT {
            events.push(Event::SendUrgentCredit);
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        self.log.push(*event);
        match *event {
            Event::Write => self.write(PIECE),
            Event::Finish => self.finish(),
            Event::Reset => {
                let active = self.sending.reset(5);
                let done = self.writer.reset(self.id, 5);
                if active && done.is_err() {
                    self.fail(format!("reset answers {done:?}"));
                }
            }
            Event::Read(max) => self.read(max),
            Event::Stop => {
                let _ = self.reader.stop(self.id, 9);
                self.receiving.stop();
                self.arrivals.on_stop();
            }
            Event::Send(PacketDirection::Up) => {
                let packet = fill(&mut self.writer);
                self.leave(PacketDirection::Up, packet);
            }
            Event::Send(PacketDirection::Down) => {
                let packet = fill(&mut self.reader);
                self.leave(PacketDirection::Down, packet);
            }
            Event::SendUrgentCredit => {
                let packet = ride(&mut self.reader);
                self.leave(PacketDirection::Down, packet);
            }
            Event::Arrives(way, n) => {
                let packet = self.packets(way).remove(n);
                self.arrive(way, &packet);
                self.acknowledge(way, &packet.contents);
            }
            Event::IsRepeated(way, n) => {
                let packet = self.packets(way)[n].clone();
                self.arrive(way, &packet);
            }
            Event::IsLost(way, n) => {
                let packet = self.packets(way).remove(n);
                self.lose(way, &packet.contents);
            }
            Event::IsLate(way, n) => {
                self.packets(way)[n].lost = true;
                let contents = self.packets(way)[n].contents.clone();
                self.lose(way, &contents);
            }
        }
        self.take_events();
    }

    fn check(&self) -> Result<(), String> {
        self.check_state()?;
        let mut again = Self::new();
        self.log.iter().for_each(|event| again.apply(event));
        again
            .run_to_end()
            .map_err(|what| format!("if all goes well from here: {what}"))
    }

    fn fingerprint(&self) -> Vec<u8> {
        let packets = |packets: &[Packet]| -> Vec<String> {
            let mut all: Vec<_> = packets
                .iter()
                .map(|packet| format!("{:?} {} {:?}", packet.contents, packet.lost, packet.bytes))
                .collect();
            all.sort();
            all
        };
        fingerprint_of(&(
            format!("{:?} {:?}", self.writer, self.reader),
            format!("{:?} {:?}", self.sending, self.receiving),
            &self.arrivals,
            packets(&self.up),
            packets(&self.down),
            (self.readable, self.writable, format!("{:?}", self.end)),
        ))
    }
}
