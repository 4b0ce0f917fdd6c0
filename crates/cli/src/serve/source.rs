//! Where a body's bytes come from.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::pieces::Pieces;

/// The bytes of a body that are still to be sent.
#[derive(Debug)]
pub(crate) enum Source {
    Nothing,
    Whole(Bytes),
    File(Pieces),
}

impl Source {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() {
            Self::Nothing
        } else {
            Self::Whole(bytes)
        }
    }

    /// Bytes to come.
    pub(crate) fn left(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Whole(bytes) => bytes.len() as u64,
            Self::File(pieces) => pieces.left(),
        }
    }

    /// The next bytes; `None` after the last. With the last or after an error
    /// nothing is left.
    ///
    /// # Errors
    /// As [`Pieces::poll_next`].
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(bytes))),
            Self::File(mut pieces) => {
                let piece = pieces.poll_next(cx);
                let over = matches!(piece, Poll::Ready(Some(Err(_)) | None));
                if !over && pieces.left() > 0 {
                    *self = Self::File(pieces);
                }
                piece
            }
        }
    }
}
