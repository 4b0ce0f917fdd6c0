//! Requests at a server and responses at a client: each frame in each state, cut and
//! ended anywhere, while the application reads, answers, leaves or does nothing.

use std::sync::Arc;

use clearway_http3::testing::MemoryTransport;
use clearway_http3::{Body, BodyError, Code, Config, Connection, Event, Request, Response};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use super::grammar::{Grammar, Instruction, Read, Sending, Then, Told};
use super::state_of;
use super::vocabulary::{CAPACITY, FORBIDDEN, INSERT, Said};
use crate::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};
use crate::hostile::forger::PUSH_PROMISE;

/// One thing that happens, on the `n`th stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Happens {
    /// The peer says a frame.
    Says(usize, Said),
    /// All of it but the last byte.
    Cuts(usize, Said),
    /// The first byte of its type.
    CutsType(usize, Said),
    /// What is missing.
    Rest(usize),
    End(usize),
    Reset(usize),
    StopSending(usize),
    Ack(usize),
    /// The encoder stream brings what sections wait for.
    Insert,
    /// The application reads as far as it can.
    Reads(usize),
    /// The application responds: to the end, or not.
    Responds(usize, bool),
    Finishes(usize),
    Leaves(usize),
    Cancels(usize),
}

/// What may happen in a world.
#[derive(Clone, Debug)]
struct Alphabet {
    streams: usize,
    said: Vec<Said>,
    cut: Vec<Said>,
    application: bool,
    may_block: u64,
    /// Entries that the peer inserts in the dynamic table.
    inserts: u8,
}

/// Frames that may pile up behind what nobody reads: one more behind the last of them
/// is looked at no earlier than that.
const BACKLOG: usize = 2;

struct Messages {
    role: Role,
    alphabet: Alphabet,
    http: Connection,
    wire: MemoryTransport,
    due: Grammar,
    /// The frame that was cut, by stream, and how much of it is missing.
    missing: Vec<Vec<u8>>,
    ended: Vec<bool>,
    /// Bytes of our decoder stream that were looked at.
    instructions: usize,
    wrong: Option<String>,
}

fn id(n: usize) -> StreamId {
    StreamId::new(Role::Client, Directionality::Bidirectional, n as u64)
}

impl Messages {
    fn new(role: Role, alphabet: &Alphabet) -> Self {
        let config = Config {
            qpack_blocked_streams: alphabet.may_block,
            grease: false,
            ..Config::default()
        };
        let streams = alphabet.streams;
        let may_block = alphabet.may_block as usize;
        let mut this = Self {
            role,
            alphabet: alphabet.clone(),
            http: Connection::new(role, Arc::new(config), 1),
            wire: MemoryTransport::new(role),
            due: match role {
                Role::Server => Grammar::of_server(streams, may_block),
                Role::Client => Grammar::of_client(streams, may_block),
            },
            missing: vec![Vec::new(); streams],
            ended: vec![false; streams],
            // Its type.
            instructions: 1,
            wrong: None,
        };
        this.http.start(&mut this.wire);
        if role == Role::Client {
            for _ in 0..streams {
                let get = Request::get("h", "/");
                let asked = this.http.request(&mut this.wire, &get, true);
                asked.expect("a request");
            }
        }
        let uni = |wire: &MemoryTransport, n| wire.peer_stream(Directionality::Unidirectional, n);
        let (control, encoder) = (uni(&this.wire, 0), uni(&this.wire, 1));
        this.wire.feed(control, &[0, 4, 0]);
        this.wire.feed(encoder, &[&[2], CAPACITY].concat());
        let (_, events) = this.turn();
        assert!(matches!(events[..], [Event::Settings(_)]), "{events:?}");
        this
    }

    fn bytes(&self, said: Said) -> Vec<u8> {
        said.bytes(self.role == Role::Server)
    }

    /// What the application hears, and where something became readable.
    fn turn(&mut self) -> (Vec<(usize, Told)>, Vec<Event>) {
        while let Some(event) = self.wire.poll_event() {
            self.http.on_quic_event(&mut self.wire, &event);
        }
        let events: Vec<Event> = core::iter::from_fn(|| self.http.poll_event()).collect();
        self.http.flush(Instant::ZERO, &mut self.wire);
        let index = |stream: &StreamId| stream.index() as usize;
        let told = events.iter().filter_map(|event| match event {
            Event::Request { stream, end, .. } | Event::Response { stream, end, .. } => {
                Some((index(stream), Told::Head { end: *end }))
            }
            Event::Informational { stream, .. } => Some((index(stream), Told::Interim)),
            Event::Reset { stream, .. } => Some((index(stream), Told::Reset)),
            Event::Stopped { stream, .. } => Some((index(stream), Told::Stopped)),
            Event::Failed { stream, .. } => Some((index(stream), Told::Failed)),
            _ => None,
        });
        (told.collect(), events)
    }

    /// What our decoder has said since this was last called.
    fn instructions(&mut self) -> Vec<Instruction> {
        let decoder = StreamId::new(self.role, Directionality::Unidirectional, 2);
        let (sent, _) = self.wire.sent(decoder);
        let news = &sent[self.instructions.min(sent.len())..];
        self.instructions += news.len();
        // Requests are streams 0, 4, ..; no integer here takes more than its byte.
        let instructions = news.iter().map(|&byte| match byte {
            0x80.. => Instruction::Acknowledge(usize::from(byte & 0x7f) / 4),
            0x40.. => Instruction::Cancel(usize::from(byte & 0x3f) / 4),
            _ => Instruction::Increment(byte),
        });
        instructions.collect()
    }

    /// Compares what the encoder was told with what is due to it.
    fn compare_instructions(&mut self) {
        let mut said = self.instructions();
        let mut due = self.due.take_instructions(&said);
        // Of each stream in the order of events, then how many insertions came.
        let place = |instruction: &Instruction| match *instruction {
            Instruction::Acknowledge(n) | Instruction::Cancel(n) => n,
            Instruction::Increment(_) => usize::MAX,
        };
        said.sort_by_key(place);
        due.sort_by_key(place);
        if said != due {
            self.wrong = Some(format!("the encoder is told {said:?}, due is {due:?}"));
        }
    }

    fn read(&mut self, n: usize) -> Read {
        let mut read = Read::default();
        loop {
            read.then = match self.http.read_body(&mut self.wire, id(n)) {
                Ok(Body::Data(data)) => {
                    read.bytes += data.len() as u8;
                    continue;
                }
                Ok(Body::Trailers(_)) => {
                    read.trailers = true;
                    continue;
                }
                Ok(Body::End) => Then::End,
                Ok(Body::Blocked) => Then::Blocked,
                Err(BodyError::Reset(_)) => Then::Reset,
                Err(BodyError::Failed(_)) => Then::Malformed,
                Err(BodyError::Unknown) => Then::Unknown,
                Err(BodyError::Closed) => Then::Closed,
            };
            return read;
        }
    }

    fn happen(&mut self, event: Happens) {
        match event {
            Happens::Says(n, said) => {
                self.wire.feed(id(n), &self.bytes(said));
                self.due.say(n, said);
            }
            Happens::Cuts(n, said) => {
                let mut bytes = self.bytes(said);
                self.missing[n] = bytes.split_off(bytes.len() - 1);
                self.wire.feed(id(n), &bytes);
                self.due.cut(n, said);
            }
            Happens::CutsType(n, said) => {
                let mut bytes = self.bytes(said);
                self.missing[n] = bytes.split_off(1);
                self.wire.feed(id(n), &bytes);
                self.due.cut_type(n, said);
            }
            Happens::Rest(n) => {
                let rest = core::mem::take(&mut self.missing[n]);
                self.wire.feed(id(n), &rest);
                self.due.rest(n);
            }
            Happens::End(n) => {
                self.ended[n] = true;
                self.wire.feed_end(id(n));
                self.due.end(n);
            }
            Happens::Reset(n) => {
                self.ended[n] = true;
                self.wire.feed_reset(id(n), Code::REQUEST_CANCELLED.0);
                self.due.reset(n);
            }
            Happens::StopSending(n) => {
                self.wire.feed_stop(id(n), Code::REQUEST_CANCELLED.0);
                self.due.stop_sending(n);
            }
            Happens::Ack(n) => {
                self.wire.feed_ack(id(n));
                self.due.ack(n);
            }
            Happens::Insert => {
                let encoder = self.wire.peer_stream(Directionality::Unidirectional, 1);
                self.wire.feed(encoder, INSERT);
                self.due.insert();
            }
            Happens::Reads(n) => {
                let (read, due) = (self.read(n), self.due.read(n));
                if read != due {
                    self.wrong = Some(format!("read {read:?}, due is {due:?}"));
                }
            }
            Happens::Responds(n, end) => {
                let response = Response::new(200);
                let sent = self.http.respond(&mut self.wire, id(n), &response, end);
                self.expect(sent.is_ok(), "responds");
                let sending = if end { Sending::Ended } else { Sending::Begun };
                self.due.send(n, sending);
            }
            Happens::Finishes(n) => {
                let sent = self.http.finish(&mut self.wire, id(n));
                self.expect(sent.is_ok(), "finishes");
                self.due.send(n, Sending::Ended);
            }
            Happens::Leaves(n) => {
                let code = match self.role {
                    Role::Server => Code::NO_ERROR,
                    Role::Client => Code::REQUEST_CANCELLED,
                };
                self.http.stop(&mut self.wire, id(n), code);
                self.due.leave(n);
            }
            Happens::Cancels(n) => {
                self.http.cancel(&mut self.wire, id(n));
                self.due.cancel(n);
            }
        }
    }

    fn expect(&mut self, holds: bool, what: &str) {
        if !holds {
            self.wrong = Some(format!("not so: {what}"));
        }
    }

    /// Compares what came of an event with what is due.
    fn compare(&mut self, before: &[bool]) {
        let (mut told, events) = self.turn();
        let mut due = self.due.take_told();
        if let Some(code) = self.due.closed {
            let closed = self.wire.closed.as_ref().map(|(code, _)| Code(*code));
            if closed != Some(code) {
                self.wrong = Some(format!("closed with {closed:?}, due is {code:?}"));
            }
            return;
        }
        if let Some((code, reason)) = &self.wire.closed {
            let reason = String::from_utf8_lossy(reason);
            self.wrong = Some(format!("closed with {:?}: {reason}", Code(*code)));
            return;
        }
        // Streams are served in an order of their own; on each, in the order of events.
        told.sort_by_key(|(n, _)| *n);
        due.sort_by_key(|(n, _)| *n);
        if told != due {
            self.wrong = Some(format!("told {told:?}, due is {due:?}"));
        }
        self.compare_instructions();
        for (n, before) in before.iter().enumerate() {
            let readable = events.contains(&Event::Readable(id(n)));
            let heard = readable || told.iter().any(|(other, _)| *other == n);
            let something = self.due.streams[n].has_something();
            if something && !before && !heard {
                self.wrong = Some(format!("stream {n} is readable, and nobody is told"));
            }
            if readable && !something {
                self.wrong = Some(format!("stream {n} is said to be readable, and is not"));
            }
        }
    }

    fn counts(&self) -> Result<(), String> {
        let pairs = [
            (
                "open requests",
                self.http.open_requests(),
                self.due.open_requests(),
            ),
            (
                "unacknowledged messages",
                self.http.unacknowledged_messages(),
                self.due.unacknowledged_messages(),
            ),
        ];
        let (streams, decoder) = self.http.blocked_sections();
        let due = if self.due.closed.is_some() {
            // Nothing is forgotten any more.
            (streams, decoder)
        } else {
            (self.due.waiting(), self.due.waiting() as u64)
        };
        if (streams, decoder) != due {
            return Err(format!(
                "sections of {streams} streams wait, of {decoder} by the decoder, due are {}",
                due.0
            ));
        }
        for (what, is, due) in pairs {
            if is != due {
                return Err(format!("{is} {what}, due are {due}"));
            }
        }
        Ok(())
    }
}

impl World for Messages {
    type Event = Happens;

    fn events(&self) -> Vec<Happens> {
        let mut events = Vec::new();
        if self.due.closed.is_some() {
            return events;
        }
        if self.due.inserted < self.alphabet.inserts {
            events.push(Happens::Insert);
        }
        for n in 0..self.alphabet.streams {
            let stream = &self.due.streams[n];
            if !self.ended[n] && !stream.gone {
                events.extend([Happens::End(n), Happens::Reset(n)]);
                if !self.missing[n].is_empty() {
                    events.push(Happens::Rest(n));
                } else if stream.backlog() < BACKLOG {
                    events.extend(
                        self.alphabet
                            .said
                            .iter()
                            .map(|&said| Happens::Says(n, said)),
                    );
                    events.extend(self.alphabet.cut.iter().map(|&said| Happens::Cuts(n, said)));
                    if self.alphabet.cut.contains(&Said::Grease) {
                        events.push(Happens::CutsType(n, Said::Grease));
                    }
                }
            }
            if !self.alphabet.application {
                continue;
            }
            if matches!(
                stream.sending,
                Sending::Begun | Sending::Ended | Sending::Nothing
            ) && !stream.acked
                && !stream.gone
            {
                events.push(Happens::StopSending(n));
            }
            if stream.sending == Sending::Ended && !stream.acked && !stream.gone {
                events.push(Happens::Ack(n));
            }
            if stream.told && !stream.gone {
                events.push(Happens::Reads(n));
            }
            if stream.open && (stream.told || self.role == Role::Client) {
                events.extend([Happens::Leaves(n), Happens::Cancels(n)]);
            }
            if self.role == Role::Server && stream.open && stream.told {
                match stream.sending {
                    Sending::Nothing => {
                        events.extend([true, false].map(|end| Happens::Responds(n, end)));
                    }
                    Sending::Begun => events.push(Happens::Finishes(n)),
                    Sending::Ended | Sending::Aborted => {}
                }
            }
        }
        events
    }

    fn apply(&mut self, event: &Happens) {
        let before: Vec<bool> = self
            .due
            .streams
            .iter()
            .map(super::grammar::Stream::has_something)
            .collect();
        self.happen(*event);
        if self.wrong.is_none() {
            self.compare(&before);
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
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
            self.wire.fingerprint(),
            &self.due,
            &self.missing,
            &self.ended,
        ))
    }
}

/// Frames that mean something, and one of each kind that does not.
fn usual() -> Vec<Said> {
    vec![
        Said::Head,
        Said::HeadOfFive,
        Said::HeadByTable,
        Said::Trailers,
        Said::TrailersByTable,
        Said::Data(0),
        Said::Data(2),
        Said::Data(5),
        Said::Grease,
    ]
}

/// One stream, everything that can be said on it; of what is forbidden, so much.
fn one_stream(role: Role, forbidden: &[u64]) -> Alphabet {
    let mut said = usual();
    said.push(Said::Undecodable);
    said.extend(forbidden.iter().map(|&kind| Said::Forbidden(kind)));
    if role == Role::Client {
        said.push(Said::Interim);
    }
    Alphabet {
        streams: 1,
        said,
        cut: vec![Said::Head, Said::Trailers, Said::Data(2), Said::Grease],
        application: true,
        may_block: 1,
        inserts: 1,
    }
}

/// Two streams of which one may wait for the table.
fn two_streams() -> Alphabet {
    Alphabet {
        streams: 2,
        said: vec![
            Said::Head,
            Said::HeadByTable,
            Said::TrailersByTable,
            Said::Data(2),
            Said::Forbidden(FORBIDDEN[1]),
        ],
        cut: vec![Said::Head],
        application: true,
        may_block: 1,
        inserts: 1,
    }
}

/// Two streams whose sections wait for the first entry of the table or for the second,
/// all of which may.
fn two_entries() -> Alphabet {
    Alphabet {
        streams: 2,
        said: vec![
            Said::Head,
            Said::HeadByTable,
            Said::HeadBySecond,
            Said::TrailersByTable,
            Said::TrailersBySecond,
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

fn walk(name: &str, role: Role, alphabet: &Alphabet, bounds: Bounds) {
    explore_by_replay(name, || Messages::new(role, alphabet), bounds).expect_clean();
}

#[test]
fn every_message_on_one_stream_of_a_server_is_answered_as_is_due() {
    let role = Role::Server;
    walk(
        "a request",
        role,
        &one_stream(role, &[PUSH_PROMISE]),
        depth(5),
    );
}

#[test]
fn every_forbidden_frame_in_every_message_closes_the_connection() {
    for role in [Role::Server, Role::Client] {
        let alphabet = one_stream(role, &FORBIDDEN);
        walk("forbidden frames", role, &alphabet, depth(3));
    }
}

#[test]
fn every_message_on_one_stream_of_a_client_is_answered_as_is_due() {
    let role = Role::Client;
    walk(
        "a response",
        role,
        &one_stream(role, &[PUSH_PROMISE]),
        depth(5),
    );
}

#[test]
fn every_wait_for_two_entries_of_the_table_is_ended_as_is_due() {
    for role in [Role::Server, Role::Client] {
        walk("waits for the table", role, &two_entries(), depth(4));
    }
}

#[test]
fn every_pair_of_messages_to_a_server_is_answered_as_is_due() {
    walk("two requests", Role::Server, &two_streams(), depth(4));
}

#[test]
fn every_pair_of_messages_to_a_client_is_answered_as_is_due() {
    walk("two responses", Role::Client, &two_streams(), depth(4));
}
