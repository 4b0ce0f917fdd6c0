//! Bodies of responses.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use clearway::Connection;
use http_body::{Body, Frame, SizeHint};

use super::limits::Admitted;
use super::listing::Listing;
use super::log::AccessLogEntry;
use super::pieces::Pieces;
use super::sender_report::SenderReport;
use super::source::Source;

/// A response's body, with its trailers.
#[derive(Debug)]
pub(super) struct Content {
    source: Source,
    /// The connection to report on in a trailer.
    report_on: Option<Connection>,
    entry: Option<AccessLogEntry>,
    /// The request counts as in progress until the body has been sent.
    admitted: Option<Admitted>,
}

impl Content {
    fn new(source: Source) -> Self {
        Self {
            source,
            report_on: None,
            entry: None,
            admitted: None,
        }
    }

    pub(super) fn nothing() -> Self {
        Self::new(Source::Nothing)
    }

    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(Source::whole(bytes))
    }

    pub(super) fn file(pieces: Pieces) -> Self {
        Self::new(Source::File(Box::new(pieces)))
    }

    pub(super) fn listing(listing: Box<Listing>) -> Self {
        Self::new(Source::Listing(listing))
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.source, Source::Nothing)
    }

    /// Counts the request as in progress for as long as this is sent.
    pub(super) fn admitted(&mut self, admitted: Admitted) {
        self.admitted = Some(admitted);
    }

    /// Reports on this connection when the body has been sent.
    pub(super) fn report_on(&mut self, connection: Option<Connection>) {
        self.report_on = connection;
    }

    /// Attaches the access log entry, which records the result.
    pub(super) fn log(&mut self, mut entry: AccessLogEntry) {
        if self.is_end_stream() {
            entry.complete();
        }
        self.entry = Some(entry);
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = ready!(self.source.poll_next(cx)).transpose()?;
        let frame = match piece {
            Some(piece) => {
                if let Some(entry) = &mut self.entry {
                    entry.sent(piece.len());
                }
                Some(Ok(Frame::data(piece)))
            }
            None => self.report_on.take().map(|connection| {
                let report = SenderReport::of(&connection.stats());
                Ok(Frame::trailers(report.trailers()))
            }),
        };
        if self.is_end_stream()
            && let Some(entry) = &mut self.entry
        {
            entry.complete();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_nothing() && self.report_on.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.source
            .left()
            .map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
