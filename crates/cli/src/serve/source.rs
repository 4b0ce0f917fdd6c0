//! Sources of a body's bytes.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::listing::Listing;
use super::pieces::Pieces;

/// The bytes of a body that are still to be sent.
#[derive(Debug)]
pub(crate) enum Source {
    Nothing,
    Whole(Bytes),
    File(Box<Pieces>),
    Listing(Box<Listing>),
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

    /// Bytes left, if known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::File(pieces) => Some(pieces.left()),
            Self::Listing(_) => None,
        }
    }

    /// The next bytes; `None` after the last. Nothing is left after the last bytes or an error.
    ///
    /// # Errors
    /// Like [`Pieces::poll_next`].
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
            Self::Listing(mut listing) => {
                let piece = listing.poll_next(cx);
                let over = matches!(piece, Poll::Ready(Some(Err(_)) | None));
                if !over && !listing.is_over() {
                    *self = Self::Listing(listing);
                }
                piece
            }
        }
    }
}
