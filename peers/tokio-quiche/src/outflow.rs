//! A body on its way out, whatever its stream takes at a time.

use std::collections::VecDeque;

use bytes::Bytes;
use contract::pattern::pattern;
use tokio_quiche::quiche::h3::{Error, Header};

use crate::wire::Wire;

/// Echoed bytes that may wait before no more are read.
const BACKLOG: usize = 256 * 1024;

/// Where a body's bytes come from.
#[derive(Debug)]
enum Source {
    /// The pattern, from an offset to an end.
    Pattern { offset: u64, end: u64 },
    /// What has come in and is to go back.
    Echo {
        pieces: VecDeque<Bytes>,
        backlog: usize,
        whole: bool,
    },
}

/// A body and how it ends.
#[derive(Debug)]
pub(crate) struct Outflow {
    source: Source,
    piece: Bytes,
    /// The sum that the trailer `x-sum` tells.
    sum: Option<u64>,
}

impl Outflow {
    /// So many bytes of the pattern, and perhaps their sum.
    pub(crate) fn pattern(length: u64, sum: Option<u64>) -> Self {
        Self {
            source: Source::Pattern {
                offset: 0,
                end: length,
            },
            piece: Bytes::new(),
            sum,
        }
    }

    /// A body that is yet to come in.
    pub(crate) fn echo() -> Self {
        Self {
            source: Source::Echo {
                pieces: VecDeque::new(),
                backlog: 0,
                whole: false,
            },
            piece: Bytes::new(),
            sum: Some(0),
        }
    }

    /// Takes bytes to be echoed.
    pub(crate) fn take(&mut self, bytes: Bytes) {
        if let (
            Source::Echo {
                pieces, backlog, ..
            },
            Some(sum),
        ) = (&mut self.source, &mut self.sum)
        {
            *sum += bytes.iter().copied().map(u64::from).sum::<u64>();
            *backlog += bytes.len();
            pieces.push_back(bytes);
        }
    }

    /// Whether more bytes to be echoed may be read.
    pub(crate) fn has_room(&self) -> bool {
        matches!(self.source, Source::Echo { backlog, .. } if backlog < BACKLOG)
    }

    /// No more bytes will be taken.
    pub(crate) fn finish(&mut self) {
        if let Source::Echo { whole, .. } = &mut self.source {
            *whole = true;
        }
    }

    /// The sum of all that was taken so far, or that the trailer will tell.
    pub(crate) fn sum(&self) -> Option<u64> {
        self.sum
    }

    /// Sends what the stream takes.
    ///
    /// # Errors
    /// [`Error::Done`] and [`Error::StreamBlocked`] if there is more to send, later; the others
    /// are the stream's end.
    pub(crate) fn send(&mut self, wire: &mut Wire<'_>, stream: u64) -> Result<(), Error> {
        loop {
            if self.piece.is_empty() {
                self.piece = self.next();
            }
            let last = self.is_last();
            if self.piece.is_empty() && !last {
                return Err(Error::Done);
            }
            if self.piece.is_empty() && self.sum.is_some() {
                return self.trailers(wire, stream);
            }
            let length = self.piece.len();
            let fin = last && self.sum.is_none();
            let sent = wire
                .http
                .send_body_zc(wire.quic, stream, &mut self.piece, fin)?;
            if sent < length {
                // quiche has cut off what it took.
                return Err(Error::Done);
            }
            self.piece = Bytes::new();
            if fin {
                return Ok(());
            }
        }
    }

    fn trailers(&self, wire: &mut Wire<'_>, stream: u64) -> Result<(), Error> {
        let sum = self.sum.unwrap_or_default().to_string();
        let trailers = [Header::new(b"x-sum", sum.as_bytes())];
        wire.http
            .send_additional_headers(wire.quic, stream, &trailers, true, true)
    }

    /// The next piece; nothing if there is none now.
    fn next(&mut self) -> Bytes {
        match &mut self.source {
            Source::Pattern { offset, end } => {
                let piece = pattern(*offset, *end - *offset);
                *offset += piece.len() as u64;
                piece
            }
            Source::Echo {
                pieces, backlog, ..
            } => {
                let piece = pieces.pop_front().unwrap_or_default();
                *backlog -= piece.len();
                piece
            }
        }
    }

    /// Whether nothing comes after the piece at hand.
    fn is_last(&self) -> bool {
        match &self.source {
            Source::Pattern { offset, end } => offset == end,
            Source::Echo { pieces, whole, .. } => *whole && pieces.is_empty(),
        }
    }
}
