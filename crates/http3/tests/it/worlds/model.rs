//! A model of what is expected for the frames that a peer sends on request streams, written from
//! the RFCs and from the documentation of `Connection`.
//!
//! It processes what has arrived in order, as far as the application lets it: unread content and
//! blocked field sections hold back what follows them.

mod application;
mod arrivals;
mod processing;

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
