//! The receiving side of a request stream: how far the peer's message was read, and what was found
//! ahead of the application.

use crate::error::{Code, StreamError};
use crate::frame_reader::FrameReader;
use crate::message_state::{MessageEvent, MessageState};
use crate::progress::Progress;
use crate::qpack::Field;
use crate::validate;

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Completely; the application has not been told yet.
    End,
    /// The peer reset the stream.
    Reset(Code),
    /// The rest of the message is malformed or too large.
    Failed(StreamError),
    /// The application stopped reading, or the transport no longer knows the stream.
    Gone,
}

/// The receiving side of a request stream.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    /// How far the peer's message has been read.
    pub(crate) state: MessageState,
    pub(crate) reader: FrameReader,
    /// Whether a field section is blocked on the dynamic table.
    pub(crate) waits_for_table: bool,
    /// Whether the last read returned `Blocked`, and nothing has arrived since.
    pub(crate) wanted: bool,
    /// How many bytes of content are still expected, if the length is known.
    expected: Option<u64>,
    /// Whether a body follows, according to the header section.
    pub(crate) has_body: bool,
    /// Trailers that the application has not read yet.
    pub(crate) trailers: Option<Vec<Field>>,
    /// How the message ended, if the application has not been told yet.
    pub(crate) ending: Option<Ending>,
    /// The bytes of an incomplete field section that the connection has counted.
    pub(crate) incomplete_section: usize,
    /// How fast the peer sends.
    pub(crate) progress: Progress,
}

impl Default for ReceiveHalf {
    /// Creates the state of a stream on which nothing has arrived.
    fn default() -> Self {
        Self::with_state(MessageState::Header)
    }
}

impl ReceiveHalf {
    /// Creates the state of a stream that is not read any more.
    pub(crate) fn abandoned() -> Self {
        Self {
            ending: Some(Ending::Gone),
            ..Self::with_state(MessageState::Done)
        }
    }

    fn with_state(state: MessageState) -> Self {
        Self {
            state,
            reader: FrameReader::default(),
            waits_for_table: false,
            wanted: false,
            expected: None,
            has_body: false,
            trailers: None,
            ending: None,
            incomplete_section: 0,
            progress: Progress::default(),
        }
    }

    /// Returns whether neither the peer nor the application has anything more to do.
    pub(crate) fn is_over(&self) -> bool {
        let told = match self.ending {
            Some(Ending::End | Ending::Failed(_)) => false,
            // An event has told the application.
            Some(Ending::Reset(_) | Ending::Gone) | None => true,
        };
        self.state == MessageState::Done && told && self.trailers.is_none()
    }

    /// Moves to the next state. Callers have checked with [`MessageState::check_frame`] that the
    /// event is allowed.
    pub(crate) fn step(&mut self, step: MessageEvent) {
        let next = self.state.after(step);
        debug_assert!(next.is_some(), "received {step:?} in {:?}", self.state);
        self.state = next.unwrap_or(MessageState::Done);
    }

    pub(crate) fn expect(&mut self, content: Option<u64>) {
        self.expected = content;
    }

    /// A DATA frame begins.
    pub(crate) fn on_data(&mut self, len: u64) -> Result<(), StreamError> {
        if let Some(expected) = &mut self.expected {
            *expected = expected.checked_sub(len).ok_or(StreamError::malformed(
                "more content than content-length or the message allows",
            ))?;
        }
        Ok(())
    }

    /// Returns whether all content that `content-length` announces was read.
    pub(crate) fn is_content_complete(&self) -> bool {
        self.expected == Some(0) && !self.reader.is_streaming()
    }

    /// Checks that the content is complete.
    pub(crate) fn on_content_end(&self) -> Result<(), StreamError> {
        match self.expected {
            Some(1..) => Err(StreamError::malformed("less content than content-length")),
            Some(0) | None => Ok(()),
        }
    }

    /// A trailer section has arrived.
    pub(crate) fn on_trailers(&mut self, fields: &[Field]) -> Result<(), StreamError> {
        self.on_content_end()?;
        validate::check_trailers(fields)?;
        self.step(MessageEvent::Trailers);
        Ok(())
    }

    /// The end of the stream has arrived.
    pub(crate) fn on_end(&mut self) -> Result<(), StreamError> {
        self.step(MessageEvent::End);
        self.on_content_end()
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let trailers = self.trailers.as_deref().unwrap_or_default();
        self.reader.memory().saturating_add(size_of_val(trailers))
    }
}
