//! What is due for what a peer says on the streams of requests: a grammar of messages,
//! written from the RFCs and from the contract of `Connection` with its application.
//!
//! It reads what has arrived in order, as far as the application lets it: content that
//! nobody has read stands in the way of what comes behind it, a section that waits for
//! the dynamic table does too.

use std::collections::VecDeque;

use clearway_http3::Code;

use super::vocabulary::Said;

/// What has arrived and was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Token {
    Whole(Said),
    /// All of a frame but its last byte.
    Part(Said),
    /// The first byte of its type.
    Type(Said),
    End,
}

/// Where the reader of a message stands within a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Within {
    Nothing,
    /// In content: bytes that have arrived, and bytes that have not.
    Content {
        here: u8,
        missing: u8,
    },
    /// In a section whose last byte is missing.
    Section(Said),
    /// In a frame without meaning, or in its type.
    Grease(Said),
    /// A section that waits for the dynamic table.
    Blocked(Said),
}

/// How far a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Before its header section.
    Fresh,
    /// Content may come, so much of it if that was announced.
    Body { left: Option<u8> },
    /// After the trailers.
    Trailed,
    /// Nothing more is looked at.
    Over,
}

/// What the application has still to be told at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    End,
    Reset,
    /// The message is malformed.
    Malformed,
}

/// What the application hears of a stream at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Told {
    /// The header section; whether that is all.
    Head {
        end: bool,
    },
    Interim,
    /// The peer reset the stream.
    Reset,
    /// The peer does not want what we send.
    Stopped,
    /// The stream is gone, because the message is malformed.
    Failed,
}

/// What we tell the peer's encoder (RFC 9204 §4.4), of streams by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Instruction {
    Acknowledge(usize),
    Cancel(usize),
    Increment(u8),
}

/// What a reader gets who reads as far as it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Read {
    pub(super) bytes: u8,
    pub(super) trailers: bool,
    pub(super) then: Then,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Then {
    #[default]
    Blocked,
    End,
    Reset,
    Malformed,
    /// There is no such request (any more).
    Unknown,
    Closed,
}

/// What we send on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sending {
    Nothing,
    Begun,
    /// To its end.
    Ended,
    /// Reset by either end.
    Aborted,
}

/// One request and its response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stream {
    tokens: VecDeque<Token>,
    within: Within,
    phase: Phase,
    trailers: bool,
    pub(super) ending: Option<Ending>,
    /// The application has the header section.
    pub(super) told: bool,
    /// The application does not want the rest.
    left: bool,
    /// A body follows, by the header section.
    has_body: bool,
    pub(super) sending: Sending,
    /// The peer has all of it.
    pub(super) acked: bool,
    /// The exchange is there for the application.
    pub(super) open: bool,
    /// Neither end has anything more to say or to hear on it.
    pub(super) gone: bool,
}

impl Stream {
    fn new(open: bool, sending: Sending) -> Self {
        Self {
            tokens: VecDeque::new(),
            within: Within::Nothing,
            phase: Phase::Fresh,
            trailers: false,
            ending: None,
            told: false,
            left: false,
            has_body: false,
            sending,
            acked: false,
            open,
            gone: false,
        }
    }

    /// Whether the application would get something from a read.
    pub(super) fn has_something(&self) -> bool {
        let content = matches!(self.within, Within::Content { here: 1.., .. });
        self.told && !self.left && (content || self.trailers || self.ending.is_some())
    }

    /// Frames behind what nobody has read.
    pub(super) fn backlog(&self) -> usize {
        self.tokens.len()
    }

    /// Forgets what nobody can hear of any more.
    fn settle(&mut self) {
        let told = match self.ending {
            Some(Ending::End | Ending::Malformed) => false,
            // That is told at once.
            Some(Ending::Reset) | None => !self.trailers,
        };
        let received = self.phase == Phase::Over && told || self.left;
        let sent = matches!(self.sending, Sending::Ended | Sending::Aborted);
        if self.open && received && sent {
            self.open = false;
        }
    }

    /// Both directions have ended.
    fn abandon(&mut self) {
        self.trailers = false;
        self.ending = None;
        if self.sending != Sending::Ended {
            self.sending = Sending::Aborted;
        }
        self.open = false;
        self.gone = true;
    }
}

/// All that is due.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Grammar {
    /// Clients speak to the end under test.
    client: bool,
    pub(super) streams: Vec<Stream>,
    /// Entries inserted in the dynamic table.
    pub(super) inserted: u8,
    /// Those that the peer's encoder knows to have arrived (RFC 9204 §2.1.4).
    known: u8,
    /// What the encoder is due by the last event.
    instructions: Vec<Instruction>,
    /// Streams that may be cancelled, though nothing of them was left to read.
    may_cancel: Vec<usize>,
    /// Streams that may wait for it.
    may_block: usize,
    /// What the connection was closed with.
    pub(super) closed: Option<Code>,
    /// What the application hears by the last event.
    pub(super) told: Vec<(usize, Told)>,
}

impl Grammar {
    /// A server, to which clients speak on so many streams.
    pub(super) fn of_server(streams: usize, may_block: usize) -> Self {
        Self {
            client: true,
            streams: vec![Stream::new(false, Sending::Nothing); streams],
            inserted: 0,
            known: 0,
            instructions: Vec::new(),
            may_cancel: Vec::new(),
            may_block,
            closed: None,
            told: Vec::new(),
        }
    }

    /// A client that has sent so many whole requests.
    pub(super) fn of_client(streams: usize, may_block: usize) -> Self {
        Self {
            client: false,
            streams: vec![Stream::new(true, Sending::Ended); streams],
            ..Self::of_server(0, may_block)
        }
    }

    fn close(&mut self, code: Code) {
        self.closed.get_or_insert(code);
    }

    /// Requests that are open.
    pub(super) fn open_requests(&self) -> usize {
        let open = self.streams.iter().filter(|stream| stream.open);
        if self.closed.is_some() {
            0
        } else {
            open.count()
        }
    }

    /// Messages on their way on streams that are not open.
    pub(super) fn unacknowledged_messages(&self) -> usize {
        let sent = |stream: &&Stream| {
            !stream.open && !stream.gone && stream.sending == Sending::Ended && !stream.acked
        };
        let count = self.streams.iter().filter(sent).count();
        if self.closed.is_some() { 0 } else { count }
    }

    /// Streams of which a section waits for the dynamic table.
    pub(super) fn waiting(&self) -> usize {
        let waits = |stream: &&Stream| match stream.within {
            Within::Blocked(said) => said.required() > self.inserted,
            _ => false,
        };
        self.streams.iter().filter(waits).count()
    }

    /// Nothing more is read of a stream: the encoder has to know, unless it was read to
    /// its end (RFC 9204 §2.2.2.2).
    fn give_up(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        if stream.phase != Phase::Over {
            self.instructions.push(Instruction::Cancel(n));
        }
        stream.tokens.clear();
        stream.within = Within::Nothing;
        stream.phase = Phase::Over;
    }

    /// Both directions end.
    fn abandon(&mut self, n: usize) {
        self.give_up(n);
        self.streams[n].abandon();
    }

    /// A stream exists with the first that is said on it, and all before it.
    fn open(&mut self, n: usize) {
        for stream in &mut self.streams[..=n] {
            let new = stream.phase == Phase::Fresh && !stream.gone && stream.tokens.is_empty();
            let new = new && stream.within == Within::Nothing && !stream.told;
            stream.open |= new && self.client && stream.sending == Sending::Nothing;
        }
    }

    /// A whole frame arrives.
    pub(super) fn say(&mut self, n: usize, said: Said) {
        self.take(n, Token::Whole(said));
    }

    /// A frame arrives but for its last byte.
    pub(super) fn cut(&mut self, n: usize, said: Said) {
        self.take(n, Token::Part(said));
    }

    /// The first byte of a frame's type arrives.
    pub(super) fn cut_type(&mut self, n: usize, said: Said) {
        self.take(n, Token::Type(said));
    }

    /// The rest of a frame that was cut arrives.
    pub(super) fn rest(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        match stream.tokens.back_mut() {
            Some(last) => {
                if let Token::Part(said) | Token::Type(said) = *last {
                    *last = Token::Whole(said);
                }
            }
            None => match &mut stream.within {
                Within::Content { here, missing } => {
                    *here += core::mem::take(missing);
                }
                Within::Section(said) => {
                    let said = *said;
                    stream.within = Within::Nothing;
                    stream.tokens.push_front(Token::Whole(said));
                }
                Within::Grease(_) => stream.within = Within::Nothing,
                Within::Nothing | Within::Blocked(_) => {}
            },
        }
        self.look(n);
    }

    pub(super) fn end(&mut self, n: usize) {
        self.take(n, Token::End);
    }

    fn take(&mut self, n: usize, token: Token) {
        self.open(n);
        let stream = &mut self.streams[n];
        if !stream.gone && stream.phase != Phase::Over {
            stream.tokens.push_back(token);
            self.look(n);
        }
    }

    /// The peer resets its direction, which overtakes what it had said.
    pub(super) fn reset(&mut self, n: usize) {
        self.open(n);
        let stream = &mut self.streams[n];
        if stream.gone || stream.phase == Phase::Over {
            return;
        }
        let (fresh, left) = (!stream.told, stream.left);
        self.give_up(n);
        let stream = &mut self.streams[n];
        stream.trailers = false;
        if fresh && self.client {
            // Nobody has seen the request.
            stream.abandon();
        } else if left {
            // Of interest only as long as work can be spared.
            if stream.open && stream.sending == Sending::Nothing {
                self.told.push((n, Told::Reset));
            }
        } else {
            stream.ending = Some(Ending::Reset);
            self.told.push((n, Told::Reset));
        }
        self.streams[n].settle();
    }

    /// The peer does not want what we send.
    pub(super) fn stop_sending(&mut self, n: usize) {
        self.open(n);
        let stream = &mut self.streams[n];
        if stream.gone || stream.acked || stream.sending == Sending::Aborted {
            return;
        }
        stream.sending = Sending::Aborted;
        if stream.open {
            self.told.push((n, Told::Stopped));
        }
        self.streams[n].settle();
    }

    /// The peer has all of what we sent.
    pub(super) fn ack(&mut self, n: usize) {
        self.streams[n].acked = true;
    }

    /// The entry that sections wait for is inserted.
    pub(super) fn insert(&mut self) {
        self.inserted += 1;
        for n in 0..self.streams.len() {
            if let Within::Blocked(said) = self.streams[n].within
                && said.required() <= self.inserted
            {
                self.streams[n].within = Within::Nothing;
                self.section(n, said);
                self.look(n);
            }
        }
    }

    /// The application responds, as far as it says.
    pub(super) fn send(&mut self, n: usize, sending: Sending) {
        self.streams[n].sending = sending;
        self.streams[n].settle();
    }

    /// The application gives up both directions.
    pub(super) fn cancel(&mut self, n: usize) {
        self.abandon(n);
    }

    /// The application wants no more of the message.
    pub(super) fn leave(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        stream.trailers = false;
        let ending = stream.ending.take();
        if ending == Some(Ending::Malformed) && self.client {
            return self.malformed_rest(n);
        }
        stream.left = true;
        if !self.client {
            // It is told to stop, and nothing more is looked at.
            self.give_up(n);
        }
        self.streams[n].settle();
        self.look(n);
    }

    /// The rest that nobody reads is malformed: the request is, unless its answer is
    /// complete.
    fn malformed_rest(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        let answered = matches!(stream.sending, Sending::Ended | Sending::Aborted);
        if stream.open && !answered {
            self.abandon(n);
            self.told.push((n, Told::Failed));
        } else {
            self.give_up(n);
            let stream = &mut self.streams[n];
            stream.ending = None;
            stream.left = true;
            stream.settle();
        }
    }

    /// The application reads as far as it can.
    pub(super) fn read(&mut self, n: usize) -> Read {
        let mut read = Read::default();
        loop {
            let stream = &mut self.streams[n];
            if !stream.open || stream.left {
                read.then = Then::Unknown;
                return read;
            }
            if let Within::Content {
                here: here @ 1.., ..
            } = &mut stream.within
            {
                read.bytes += core::mem::take(here);
                self.look(n);
                if self.closed.is_some() {
                    read.then = Then::Closed;
                    return read;
                }
                continue;
            }
            if core::mem::take(&mut stream.trailers) {
                read.trailers = true;
                continue;
            }
            read.then = match stream.ending {
                Some(Ending::End) => Then::End,
                Some(Ending::Reset) => Then::Reset,
                Some(Ending::Malformed) => {
                    self.abandon(n);
                    Then::Malformed
                }
                None if stream.phase == Phase::Over => Then::End,
                None => Then::Blocked,
            };
            let stream = &mut self.streams[n];
            if stream.ending == Some(Ending::End) {
                stream.ending = None;
            }
            stream.settle();
            return read;
        }
    }

    /// Looks at what has arrived, as far as nothing stands in the way.
    fn look(&mut self, n: usize) {
        loop {
            let stream = &mut self.streams[n];
            if self.closed.is_some() || stream.gone || stream.phase == Phase::Over {
                return;
            }
            if stream.ending.is_some() {
                // Malformed already: the rest is of no interest.
                return;
            }
            match stream.within {
                Within::Nothing => {}
                Within::Content { here: 1.., .. } if !stream.left => return,
                Within::Content { missing: 0, .. } => stream.within = Within::Nothing,
                Within::Content { .. } | Within::Section(_) | Within::Grease(_) => {
                    return self.look_at_cut(n);
                }
                Within::Blocked(_) if stream.left && stream.has_body => return self.enough(n),
                Within::Blocked(_) => return,
            }
            let Some(token) = stream.tokens.pop_front() else {
                if stream.left && stream.has_body {
                    self.enough(n);
                }
                return;
            };
            self.token(n, token);
        }
    }

    /// A frame is not complete: an end is wrong here, and a body that nobody wants is
    /// not waited for.
    fn look_at_cut(&mut self, n: usize) {
        let stream = &self.streams[n];
        if stream.tokens.front() == Some(&Token::End) {
            return self.close(Code::FRAME_ERROR);
        }
        let content = matches!(stream.within, Within::Content { .. });
        if stream.left && (content || stream.has_body) {
            self.enough(n);
        }
    }

    /// The peer is told to stop what nobody wants.
    fn enough(&mut self, n: usize) {
        self.give_up(n);
        self.streams[n].settle();
    }

    fn token(&mut self, n: usize, token: Token) {
        let stream = &mut self.streams[n];
        match token {
            Token::Whole(said) => self.frame(n, said, 0),
            Token::Part(said) => self.frame(n, said, 1),
            Token::Type(said) => stream.within = Within::Grease(said),
            Token::End => self.end_of_stream(n),
        }
    }

    /// A frame begins, of which so many bytes are missing.
    fn frame(&mut self, n: usize, said: Said, missing: u8) {
        let phase = self.streams[n].phase;
        match said {
            Said::Forbidden(kind) if kind == crate::hostile::forger::PUSH_PROMISE => {
                // No push ID was ever allowed (RFC 9114 §7.2.5).
                let client = Code::ID_ERROR;
                self.close(if self.client {
                    Code::FRAME_UNEXPECTED
                } else {
                    client
                });
            }
            Said::Forbidden(_) => self.close(Code::FRAME_UNEXPECTED),
            Said::Grease => {
                if missing > 0 {
                    self.streams[n].within = Within::Grease(said);
                }
            }
            Said::Data(len) => match phase {
                Phase::Body { left } => self.content(n, len, missing, left),
                Phase::Fresh | Phase::Trailed | Phase::Over => self.close(Code::FRAME_UNEXPECTED),
            },
            Said::Head
            | Said::HeadOfFive
            | Said::Interim
            | Said::HeadByTable
            | Said::HeadBySecond
            | Said::Trailers
            | Said::TrailersByTable
            | Said::TrailersBySecond
            | Said::Undecodable => match phase {
                Phase::Trailed | Phase::Over => self.close(Code::FRAME_UNEXPECTED),
                Phase::Fresh | Phase::Body { .. } if missing > 0 => {
                    self.streams[n].within = Within::Section(said);
                }
                Phase::Fresh | Phase::Body { .. } => self.section(n, said),
            },
        }
    }

    fn content(&mut self, n: usize, len: u8, missing: u8, left: Option<u8>) {
        let left = match left.map(|left| left.checked_sub(len)) {
            Some(None) => return self.malformed(n),
            Some(Some(left)) => Some(left),
            None => None,
        };
        let stream = &mut self.streams[n];
        stream.phase = Phase::Body { left };
        if len > 0 {
            let here = len - missing;
            stream.within = Within::Content { here, missing };
        }
    }

    /// A whole section, if the table has what it needs.
    fn section(&mut self, n: usize, said: Said) {
        if said == Said::Undecodable {
            return self.close(Code::QPACK_DECOMPRESSION_FAILED);
        }
        let required = said.required();
        if required > self.inserted {
            if self.waiting() >= self.may_block {
                return self.close(Code::QPACK_DECOMPRESSION_FAILED);
            }
            self.streams[n].within = Within::Blocked(said);
            return;
        }
        if required > 0 {
            self.instructions.push(Instruction::Acknowledge(n));
            self.known = self.known.max(required);
        }
        let head = matches!(
            said,
            Said::Head | Said::HeadOfFive | Said::HeadByTable | Said::HeadBySecond
        );
        match (self.streams[n].phase, said) {
            (Phase::Fresh, Said::Interim) => self.told.push((n, Told::Interim)),
            (Phase::Fresh, _) if head => self.head(n, said == Said::HeadOfFive),
            // Without pseudo-header fields, or with those of the other kind.
            (Phase::Fresh, _) => {
                self.abandon(n);
                if !self.client {
                    self.told.push((n, Told::Failed));
                }
            }
            (
                Phase::Body {
                    left: None | Some(0),
                },
                Said::Trailers | Said::TrailersByTable | Said::TrailersBySecond,
            ) => {
                let stream = &mut self.streams[n];
                stream.phase = Phase::Trailed;
                stream.trailers = !stream.left;
            }
            // With pseudo-header fields, or before all content has come.
            _ => self.malformed(n),
        }
    }

    /// The header section of a message. What comes with it is looked at first.
    fn head(&mut self, n: usize, of_five: bool) {
        let stream = &mut self.streams[n];
        stream.phase = Phase::Body {
            left: of_five.then_some(5),
        };
        stream.has_body = of_five;
        stream.told = true;
        let before = self.told.len();
        self.look(n);
        if self.closed.is_some() {
            // It is never told.
            return self.told.truncate(before);
        }
        let stream = &mut self.streams[n];
        let over = stream.phase == Phase::Over && !stream.trailers;
        match stream.ending {
            Some(Ending::Malformed) if over => {
                self.abandon(n);
                if !self.client {
                    self.told.push((n, Told::Failed));
                }
            }
            ending => {
                let end = over && ending == Some(Ending::End);
                if end {
                    stream.ending = None;
                }
                self.told.insert(before, (n, Told::Head { end }));
                self.streams[n].settle();
            }
        }
    }

    /// The message is malformed; who reads it is told so.
    fn malformed(&mut self, n: usize) {
        if self.streams[n].left {
            return self.malformed_rest(n);
        }
        self.streams[n].ending = Some(Ending::Malformed);
    }

    fn end_of_stream(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        match stream.phase {
            Phase::Fresh => {
                // No whole message, of which nothing is left.
                stream.phase = Phase::Over;
                self.may_cancel.push(n);
                self.abandon(n);
                if !self.client {
                    self.told.push((n, Told::Failed));
                }
            }
            Phase::Body { left: Some(1..) } => {
                stream.phase = Phase::Over;
                self.malformed(n);
            }
            Phase::Body { .. } | Phase::Trailed => {
                stream.phase = Phase::Over;
                if !stream.left {
                    stream.ending = Some(Ending::End);
                }
                stream.settle();
            }
            Phase::Over => {}
        }
    }

    /// What the encoder is told by the event that just happened, given what it was:
    /// what may be said and need not is due only if it was.
    pub(super) fn take_instructions(&mut self, said: &[Instruction]) -> Vec<Instruction> {
        let mut due = core::mem::take(&mut self.instructions);
        for n in core::mem::take(&mut self.may_cancel) {
            if said.contains(&Instruction::Cancel(n)) {
                due.push(Instruction::Cancel(n));
            }
        }
        if self.known < self.inserted {
            due.push(Instruction::Increment(self.inserted - self.known));
            self.known = self.inserted;
        }
        due
    }

    /// What the application is told by the event that just happened.
    pub(super) fn take_told(&mut self) -> Vec<(usize, Told)> {
        core::mem::take(&mut self.told)
    }
}
