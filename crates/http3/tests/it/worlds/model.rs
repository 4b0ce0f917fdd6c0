//! A model of what is expected for the frames that a peer sends on request streams, written from
//! the RFCs and from the documentation of `Connection`.
//!
//! It processes what has arrived in order, as far as the application lets it: unread content and
//! blocked field sections hold back what follows them.

use std::collections::VecDeque;

use clearway_http3::Code;

use super::frames::TestFrame;

/// Something that has arrived and was not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Token {
    Whole(TestFrame),
    /// A frame without its last byte.
    Part(TestFrame),
    /// The first byte of a frame's type.
    Type(TestFrame),
    End,
}

/// What of a frame has been processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FrameState {
    Nothing,
    /// Content: unread bytes that have arrived, and bytes that have not.
    Content {
        here: u8,
        missing: u8,
    },
    /// A field section whose last byte is missing.
    Section(TestFrame),
    /// A reserved frame, or its type, that is incomplete.
    Reserved(TestFrame),
    /// A field section that is blocked on the dynamic table.
    Blocked(TestFrame),
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Before the header section.
    Header,
    /// Content may follow; `left` is its remaining length, if that was announced.
    Body { left: Option<u8> },
    /// After the trailers.
    AfterTrailers,
    /// Nothing more is processed.
    Done,
}

/// How a message ended, while the application has not been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    End,
    Reset,
    /// The message is malformed.
    Malformed,
}

/// An event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AppEvent {
    /// The header section, and whether nothing follows.
    Head {
        end: bool,
    },
    Interim,
    /// The peer reset the stream.
    Reset,
    /// The peer stopped reading.
    Stopped,
    /// The message is malformed, and the stream closed.
    Failed,
}

/// An instruction on our decoder stream (RFC 9204 §4.4), with the index of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Instruction {
    Acknowledge(usize),
    Cancel(usize),
    Increment(u8),
}

/// What reading as far as possible returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ReadResult {
    pub(super) bytes: u8,
    pub(super) trailers: bool,
    pub(super) then: ReadEnd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum ReadEnd {
    #[default]
    Blocked,
    End,
    Reset,
    Malformed,
    /// There is no such request, or no longer.
    Unknown,
    Closed,
}

/// The state of what we send on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sending {
    Nothing,
    Begun,
    /// Sent completely.
    Ended,
    /// Reset by either endpoint.
    Aborted,
}

/// A request and its response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stream {
    tokens: VecDeque<Token>,
    within: FrameState,
    phase: Phase,
    trailers: bool,
    pub(super) ending: Option<Ending>,
    /// Whether the application has the header section.
    pub(super) reported: bool,
    /// Whether the application has stopped reading.
    stopped: bool,
    /// Whether a body follows, according to the header section.
    has_body: bool,
    pub(super) sending: Sending,
    /// Whether the peer has acknowledged all of it.
    pub(super) acked: bool,
    /// Whether the request is open for the application.
    pub(super) open: bool,
    /// Whether the stream is closed in both directions.
    pub(super) gone: bool,
}

impl Stream {
    fn new(open: bool, sending: Sending) -> Self {
        Self {
            tokens: VecDeque::new(),
            within: FrameState::Nothing,
            phase: Phase::Header,
            trailers: false,
            ending: None,
            reported: false,
            stopped: false,
            has_body: false,
            sending,
            acked: false,
            open,
            gone: false,
        }
    }

    /// Returns whether a read would return something.
    pub(super) fn is_readable(&self) -> bool {
        let content = matches!(self.within, FrameState::Content { here: 1.., .. });
        self.reported && !self.stopped && (content || self.trailers || self.ending.is_some())
    }

    /// Returns how many frames are held back.
    pub(super) fn backlog(&self) -> usize {
        self.tokens.len()
    }

    /// Closes the request for the application if nothing is left to do.
    fn settle(&mut self) {
        let told = match self.ending {
            Some(Ending::End | Ending::Malformed) => false,
            // A reset is reported at once.
            Some(Ending::Reset) | None => !self.trailers,
        };
        let received = self.phase == Phase::Done && told || self.stopped;
        let sent = matches!(self.sending, Sending::Ended | Sending::Aborted);
        if self.open && received && sent {
            self.open = false;
        }
    }

    /// Closes both directions.
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

/// The expected state of all streams.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Model {
    /// Whether the peer is a client.
    client: bool,
    pub(super) streams: Vec<Stream>,
    /// The number of insertions in the dynamic table.
    pub(super) inserted: u8,
    /// The Known Received Count of the peer's encoder (RFC 9204 §2.1.4).
    known: u8,
    /// The instructions expected after the last action.
    instructions: Vec<Instruction>,
    /// Streams that may be cancelled although they were read to their end.
    may_cancel: Vec<usize>,
    /// How many streams may be blocked.
    may_block: usize,
    /// The code with which the connection was closed.
    pub(super) closed: Option<Code>,
    /// The events expected after the last action.
    pub(super) events: Vec<(usize, AppEvent)>,
}

impl Model {
    /// Creates the model of a server with this number of request streams.
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
            events: Vec::new(),
        }
    }

    /// Creates the model of a client that has sent this number of complete requests.
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

    /// Returns the number of open requests.
    pub(super) fn open_requests(&self) -> usize {
        let open = self.streams.iter().filter(|stream| stream.open);
        if self.closed.is_some() {
            0
        } else {
            open.count()
        }
    }

    /// Returns the number of unacknowledged messages on streams that are not open.
    pub(super) fn unacknowledged_messages(&self) -> usize {
        let sent = |stream: &&Stream| {
            !stream.open && !stream.gone && stream.sending == Sending::Ended && !stream.acked
        };
        let count = self.streams.iter().filter(sent).count();
        if self.closed.is_some() { 0 } else { count }
    }

    /// Returns the number of streams that are blocked on the dynamic table.
    pub(super) fn blocked_streams(&self) -> usize {
        let waits = |stream: &&Stream| match stream.within {
            FrameState::Blocked(frame) => frame.required() > self.inserted,
            _ => false,
        };
        self.streams.iter().filter(waits).count()
    }

    /// Stops reading a stream: the encoder has to be told, unless the stream was read to its end
    /// (RFC 9204 §2.2.2.2).
    fn stop_processing(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        if stream.phase != Phase::Done {
            self.instructions.push(Instruction::Cancel(n));
        }
        stream.tokens.clear();
        stream.within = FrameState::Nothing;
        stream.phase = Phase::Done;
    }

    /// Abandons both directions of a stream.
    fn abandon(&mut self, n: usize) {
        self.stop_processing(n);
        self.streams[n].abandon();
    }

    /// Opens a stream with its first frame, and all streams before it.
    fn open(&mut self, n: usize) {
        for stream in &mut self.streams[..=n] {
            let new = stream.phase == Phase::Header && !stream.gone && stream.tokens.is_empty();
            let new = new && stream.within == FrameState::Nothing && !stream.reported;
            stream.open |= new && self.client && stream.sending == Sending::Nothing;
        }
    }

    /// A complete frame arrives.
    pub(super) fn on_frame(&mut self, n: usize, frame: TestFrame) {
        self.take(n, Token::Whole(frame));
    }

    /// A frame without its last byte arrives.
    pub(super) fn on_partial_frame(&mut self, n: usize, frame: TestFrame) {
        self.take(n, Token::Part(frame));
    }

    /// The first byte of a frame's type arrives.
    pub(super) fn on_partial_type(&mut self, n: usize, frame: TestFrame) {
        self.take(n, Token::Type(frame));
    }

    /// The rest of an incomplete frame arrives.
    pub(super) fn on_rest(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        match stream.tokens.back_mut() {
            Some(last) => {
                if let Token::Part(frame) | Token::Type(frame) = *last {
                    *last = Token::Whole(frame);
                }
            }
            None => match &mut stream.within {
                FrameState::Content { here, missing } => {
                    *here += core::mem::take(missing);
                }
                FrameState::Section(frame) => {
                    let frame = *frame;
                    stream.within = FrameState::Nothing;
                    stream.tokens.push_front(Token::Whole(frame));
                }
                FrameState::Reserved(_) => stream.within = FrameState::Nothing,
                FrameState::Nothing | FrameState::Blocked(_) => {}
            },
        }
        self.advance(n);
    }

    pub(super) fn end(&mut self, n: usize) {
        self.take(n, Token::End);
    }

    fn take(&mut self, n: usize, token: Token) {
        self.open(n);
        let stream = &mut self.streams[n];
        if !stream.gone && stream.phase != Phase::Done {
            stream.tokens.push_back(token);
            self.advance(n);
        }
    }

    /// The peer resets the stream, which overtakes what it has sent.
    pub(super) fn reset(&mut self, n: usize) {
        self.open(n);
        let stream = &mut self.streams[n];
        if stream.gone || stream.phase == Phase::Done {
            return;
        }
        let (fresh, left) = (!stream.reported, stream.stopped);
        self.stop_processing(n);
        let stream = &mut self.streams[n];
        stream.trailers = false;
        if fresh && self.client {
            // The application has not seen the request.
            stream.abandon();
        } else if left {
            // Reported only while no response has begun.
            if stream.open && stream.sending == Sending::Nothing {
                self.events.push((n, AppEvent::Reset));
            }
        } else {
            stream.ending = Some(Ending::Reset);
            self.events.push((n, AppEvent::Reset));
        }
        self.streams[n].settle();
    }

    /// The peer stopped reading.
    pub(super) fn stop_sending(&mut self, n: usize) {
        self.open(n);
        let stream = &mut self.streams[n];
        if stream.gone || stream.acked || stream.sending == Sending::Aborted {
            return;
        }
        stream.sending = Sending::Aborted;
        if stream.open {
            self.events.push((n, AppEvent::Stopped));
        }
        self.streams[n].settle();
    }

    /// The peer acknowledges everything that we sent.
    pub(super) fn ack(&mut self, n: usize) {
        self.streams[n].acked = true;
    }

    /// An insertion arrives.
    pub(super) fn insert(&mut self) {
        self.inserted += 1;
        for n in 0..self.streams.len() {
            if let FrameState::Blocked(frame) = self.streams[n].within
                && frame.required() <= self.inserted
            {
                self.streams[n].within = FrameState::Nothing;
                self.section(n, frame);
                self.advance(n);
            }
        }
    }

    /// The application responds, up to this state.
    pub(super) fn send(&mut self, n: usize, sending: Sending) {
        self.streams[n].sending = sending;
        self.streams[n].settle();
    }

    /// The application cancels the request.
    pub(super) fn cancel(&mut self, n: usize) {
        self.abandon(n);
    }

    /// The application stops reading the message.
    pub(super) fn on_stop_reading(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        stream.trailers = false;
        let ending = stream.ending.take();
        if ending == Some(Ending::Malformed) && self.client {
            return self.on_malformed_rest(n);
        }
        stream.stopped = true;
        if !self.client {
            // The server is asked to stop, and nothing more is processed.
            self.stop_processing(n);
        }
        self.streams[n].settle();
        self.advance(n);
    }

    /// The unread rest of a request is malformed: so is the request, unless the response is
    /// complete.
    fn on_malformed_rest(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        let answered = matches!(stream.sending, Sending::Ended | Sending::Aborted);
        if stream.open && !answered {
            self.abandon(n);
            self.events.push((n, AppEvent::Failed));
        } else {
            self.stop_processing(n);
            let stream = &mut self.streams[n];
            stream.ending = None;
            stream.stopped = true;
            stream.settle();
        }
    }

    /// The application reads as far as possible.
    pub(super) fn read(&mut self, n: usize) -> ReadResult {
        let mut read = ReadResult::default();
        loop {
            let stream = &mut self.streams[n];
            if !stream.open || stream.stopped {
                read.then = ReadEnd::Unknown;
                return read;
            }
            if let FrameState::Content {
                here: here @ 1.., ..
            } = &mut stream.within
            {
                read.bytes += core::mem::take(here);
                self.advance(n);
                if self.closed.is_some() {
                    read.then = ReadEnd::Closed;
                    return read;
                }
                continue;
            }
            if core::mem::take(&mut stream.trailers) {
                read.trailers = true;
                continue;
            }
            read.then = match stream.ending {
                Some(Ending::End) => ReadEnd::End,
                Some(Ending::Reset) => ReadEnd::Reset,
                Some(Ending::Malformed) => {
                    self.abandon(n);
                    ReadEnd::Malformed
                }
                None if stream.phase == Phase::Done => ReadEnd::End,
                None => ReadEnd::Blocked,
            };
            let stream = &mut self.streams[n];
            if stream.ending == Some(Ending::End) {
                stream.ending = None;
            }
            stream.settle();
            return read;
        }
    }

    /// Processes what has arrived, as far as nothing holds it back.
    fn advance(&mut self, n: usize) {
        loop {
            let stream = &mut self.streams[n];
            if self.closed.is_some() || stream.gone || stream.phase == Phase::Done {
                return;
            }
            if stream.ending.is_some() {
                // The message is malformed: the rest is ignored.
                return;
            }
            match stream.within {
                FrameState::Nothing => {}
                FrameState::Content { here: 1.., .. } if !stream.stopped => return,
                FrameState::Content { missing: 0, .. } => stream.within = FrameState::Nothing,
                FrameState::Content { .. } | FrameState::Section(_) | FrameState::Reserved(_) => {
                    return self.on_incomplete_frame(n);
                }
                FrameState::Blocked(_) if stream.stopped && stream.has_body => {
                    return self.stop_reading(n);
                }
                FrameState::Blocked(_) => return,
            }
            let Some(token) = stream.tokens.pop_front() else {
                if stream.stopped && stream.has_body {
                    self.stop_reading(n);
                }
                return;
            };
            self.token(n, token);
        }
    }

    /// Handles an incomplete frame: an end is an error here, and an unwanted body is stopped.
    fn on_incomplete_frame(&mut self, n: usize) {
        let stream = &self.streams[n];
        if stream.tokens.front() == Some(&Token::End) {
            return self.close(Code::FRAME_ERROR);
        }
        let content = matches!(stream.within, FrameState::Content { .. });
        if stream.stopped && (content || stream.has_body) {
            self.stop_reading(n);
        }
    }

    /// The peer is asked to stop sending.
    fn stop_reading(&mut self, n: usize) {
        self.stop_processing(n);
        self.streams[n].settle();
    }

    fn token(&mut self, n: usize, token: Token) {
        let stream = &mut self.streams[n];
        match token {
            Token::Whole(frame) => self.frame(n, frame, 0),
            Token::Part(frame) => self.frame(n, frame, 1),
            Token::Type(frame) => stream.within = FrameState::Reserved(frame),
            Token::End => self.end_of_stream(n),
        }
    }

    /// A frame begins, of which `missing` bytes have not arrived.
    fn frame(&mut self, n: usize, frame: TestFrame, missing: u8) {
        let phase = self.streams[n].phase;
        match frame {
            TestFrame::Forbidden(kind) if kind == crate::hostile::hostile_peer::PUSH_PROMISE => {
                // No push ID was ever allowed (RFC 9114 §7.2.5).
                let client = Code::ID_ERROR;
                self.close(if self.client {
                    Code::FRAME_UNEXPECTED
                } else {
                    client
                });
            }
            TestFrame::Forbidden(_) => self.close(Code::FRAME_UNEXPECTED),
            TestFrame::Reserved => {
                if missing > 0 {
                    self.streams[n].within = FrameState::Reserved(frame);
                }
            }
            TestFrame::Data(len) => match phase {
                Phase::Body { left } => self.content(n, len, missing, left),
                Phase::Header | Phase::AfterTrailers | Phase::Done => {
                    self.close(Code::FRAME_UNEXPECTED);
                }
            },
            TestFrame::Head
            | TestFrame::HeadWithLength
            | TestFrame::Interim
            | TestFrame::HeadWithEntry1
            | TestFrame::HeadWithEntry2
            | TestFrame::Trailers
            | TestFrame::TrailersWithEntry1
            | TestFrame::TrailersWithEntry2
            | TestFrame::Undecodable => match phase {
                Phase::AfterTrailers | Phase::Done => self.close(Code::FRAME_UNEXPECTED),
                Phase::Header | Phase::Body { .. } if missing > 0 => {
                    self.streams[n].within = FrameState::Section(frame);
                }
                Phase::Header | Phase::Body { .. } => self.section(n, frame),
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
            stream.within = FrameState::Content { here, missing };
        }
    }

    /// A complete section is decoded, if the table has what it requires.
    fn section(&mut self, n: usize, frame: TestFrame) {
        if frame == TestFrame::Undecodable {
            return self.close(Code::QPACK_DECOMPRESSION_FAILED);
        }
        let required = frame.required();
        if required > self.inserted {
            if self.blocked_streams() >= self.may_block {
                return self.close(Code::QPACK_DECOMPRESSION_FAILED);
            }
            self.streams[n].within = FrameState::Blocked(frame);
            return;
        }
        if required > 0 {
            self.instructions.push(Instruction::Acknowledge(n));
            self.known = self.known.max(required);
        }
        let head = matches!(
            frame,
            TestFrame::Head
                | TestFrame::HeadWithLength
                | TestFrame::HeadWithEntry1
                | TestFrame::HeadWithEntry2
        );
        match (self.streams[n].phase, frame) {
            (Phase::Header, TestFrame::Interim) => self.events.push((n, AppEvent::Interim)),
            (Phase::Header, _) if head => self.head(n, frame == TestFrame::HeadWithLength),
            // Without pseudo-header fields, or with those of the other message type.
            (Phase::Header, _) => {
                self.abandon(n);
                if !self.client {
                    self.events.push((n, AppEvent::Failed));
                }
            }
            (
                Phase::Body {
                    left: None | Some(0),
                },
                TestFrame::Trailers | TestFrame::TrailersWithEntry1 | TestFrame::TrailersWithEntry2,
            ) => {
                let stream = &mut self.streams[n];
                stream.phase = Phase::AfterTrailers;
                stream.trailers = !stream.stopped;
            }
            // With pseudo-header fields, or before all content has arrived.
            _ => self.malformed(n),
        }
    }

    /// Handles the header section of a message, after what has arrived with it.
    fn head(&mut self, n: usize, of_five: bool) {
        let stream = &mut self.streams[n];
        stream.phase = Phase::Body {
            left: of_five.then_some(5),
        };
        stream.has_body = of_five;
        stream.reported = true;
        let before = self.events.len();
        self.advance(n);
        if self.closed.is_some() {
            // The message is not reported.
            return self.events.truncate(before);
        }
        let stream = &mut self.streams[n];
        let over = stream.phase == Phase::Done && !stream.trailers;
        match stream.ending {
            Some(Ending::Malformed) if over => {
                self.abandon(n);
                if !self.client {
                    self.events.push((n, AppEvent::Failed));
                }
            }
            ending => {
                let end = over && ending == Some(Ending::End);
                if end {
                    stream.ending = None;
                }
                self.events.insert(before, (n, AppEvent::Head { end }));
                self.streams[n].settle();
            }
        }
    }

    /// The message is malformed, which is reported when it is read.
    fn malformed(&mut self, n: usize) {
        if self.streams[n].stopped {
            return self.on_malformed_rest(n);
        }
        self.streams[n].ending = Some(Ending::Malformed);
    }

    fn end_of_stream(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        match stream.phase {
            Phase::Header => {
                // The message is incomplete, and was read to its end.
                stream.phase = Phase::Done;
                self.may_cancel.push(n);
                self.abandon(n);
                if !self.client {
                    self.events.push((n, AppEvent::Failed));
                }
            }
            Phase::Body { left: Some(1..) } => {
                stream.phase = Phase::Done;
                self.malformed(n);
            }
            Phase::Body { .. } | Phase::AfterTrailers => {
                stream.phase = Phase::Done;
                if !stream.stopped {
                    stream.ending = Some(Ending::End);
                }
                stream.settle();
            }
            Phase::Done => {}
        }
    }

    /// Returns the instructions expected after the last action, given those that were sent:
    /// optional ones are expected only if they were sent.
    pub(super) fn take_instructions(&mut self, frame: &[Instruction]) -> Vec<Instruction> {
        let mut expected = core::mem::take(&mut self.instructions);
        for n in core::mem::take(&mut self.may_cancel) {
            if frame.contains(&Instruction::Cancel(n)) {
                expected.push(Instruction::Cancel(n));
            }
        }
        if self.known < self.inserted {
            expected.push(Instruction::Increment(self.inserted - self.known));
            self.known = self.inserted;
        }
        expected
    }

    /// Returns the events expected after the last action.
    pub(super) fn take_events(&mut self) -> Vec<(usize, AppEvent)> {
        core::mem::take(&mut self.events)
    }
}
