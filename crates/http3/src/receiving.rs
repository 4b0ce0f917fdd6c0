//! The peer's message on one stream: how far it was read, and what was found in it
//! ahead of the application.

use crate::error::{Code, StreamError};
use crate::progress::Progress;
use crate::qpack::Field;
use crate::reader::FrameReader;
use crate::request::{Half, Step};
use crate::validate;

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With its end, which the application has not been told.
    End,
    /// The peer reset the stream.
    Reset(Code),
    /// The rest of it is malformed, or too large.
    Failed(StreamError),
    /// The application left it, or the transport knows no such stream any more.
    Gone,
}

/// The receiving half of a request stream.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// How far the peer is.
    pub(crate) half: Half,
    pub(crate) reader: FrameReader,
    /// A section waits for the dynamic table.
    pub(crate) waits_for_table: bool,
    /// The application met `Blocked`, and nothing has come since.
    pub(crate) wanted: bool,
    /// Content still to come, if its length is known, bytes.
    expected: Option<u64>,
    /// A body follows, as far as the header section tells.
    pub(crate) has_body: bool,
    /// Trailers that the application has not been told.
    pub(crate) trailers: Option<Vec<Field>>,
    /// How the message ended, as far as the application has not been told.
    pub(crate) ending: Option<Ending>,
    /// Bytes of an unfinished section, as counted by the connection.
    pub(crate) gathered: usize,
    /// Whether the peer sends what we wait for.
    pub(crate) progress: Progress,
}

impl Default for Receiving {
    /// Nothing has arrived.
    fn default() -> Self {
        Self::at(Half::Header)
    }
}

impl Receiving {
    /// Nothing more is read.
    pub(crate) fn left() -> Self {
        Self {
            ending: Some(Ending::Gone),
            ..Self::at(Half::Over)
        }
    }

    fn at(half: Half) -> Self {
        Self {
            half,
            reader: FrameReader::default(),
            waits_for_table: false,
            wanted: false,
            expected: None,
            has_body: false,
            trailers: None,
            ending: None,
            gathered: 0,
            progress: Progress::default(),
        }
    }

    /// Whether neither the peer nor the application has anything more to do.
    pub(crate) fn is_over(&self) -> bool {
        let told = match self.ending {
            Some(Ending::End | Ending::Failed(_)) => false,
            // There is an event for it.
            Some(Ending::Reset(_) | Ending::Gone) | None => true,
        };
        self.half == Half::Over && told && self.trailers.is_none()
    }

    /// Moves on; callers have asked [`Half::admit`] before.
    pub(crate) fn step(&mut self, step: Step) {
        let next = self.half.after(step);
        debug_assert!(next.is_some(), "received {step:?} in {:?}", self.half);
        self.half = next.unwrap_or(Half::Over);
    }

    pub(crate) fn expect(&mut self, content: Option<u64>) {
        self.expected = content;
    }

    /// A DATA frame begins.
    pub(crate) fn on_data(&mut self, len: u64) -> Result<(), StreamError> {
        if let Some(expected) = &mut self.expected {
            *expected = expected.checked_sub(len).ok_or(StreamError::malformed(
                "more content than announced or allowed",
            ))?;
        }
        Ok(())
    }

    /// The content is complete.
    pub(crate) fn on_content_end(&self) -> Result<(), StreamError> {
        match self.expected {
            Some(1..) => Err(StreamError::malformed("less content than announced")),
            Some(0) | None => Ok(()),
        }
    }

    /// A trailer section has arrived.
    pub(crate) fn on_trailers(&mut self, fields: &[Field]) -> Result<(), StreamError> {
        self.on_content_end()?;
        validate::check_trailers(fields)?;
        self.step(Step::Trailers);
        Ok(())
    }

    /// The end of the stream has arrived; whether the message is whole is told when
    /// that is.
    pub(crate) fn on_end(&mut self) -> Result<(), StreamError> {
        self.step(Step::End);
        self.on_content_end()
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        let trailers = self.trailers.as_deref().unwrap_or_default();
        self.reader.memory().saturating_add(size_of_val(trailers))
    }
}
