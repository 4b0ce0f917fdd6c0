//! The bodies of requests.

use std::fs::File;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::failure::{Failure, Kind};
use crate::serve::Pieces;

/// What is sent with a request.
#[derive(Debug)]
pub(super) enum Upload {
    Nothing,
    Data(Bytes),
    File(Pieces, Arc<AtomicU64>),
}

impl Upload {
    /// A file; what leaves of it is counted.
    ///
    /// # Errors
    /// If it is no file or cannot be read.
    pub(super) fn file(path: &Path, counted: Arc<AtomicU64>) -> Result<Self, Failure> {
        let failure = |error: &io::Error| {
            let what = format!("cannot read {}", path.display());
            Failure::caused(Kind::Arguments, what, error)
        };
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| failure(&error))?;
        if !metadata.is_file() {
            return Err(failure(&io::Error::other("no regular file")));
        }
        Ok(Self::File(Pieces::new(file, 0, metadata.len()), counted))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Nothing => Poll::Ready(None),
            Self::Data(data) => {
                let data = std::mem::take(data);
                *self = Self::Nothing;
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Self::File(pieces, counted) => pieces.poll_next(cx).map(|piece| {
                piece.map(|piece| {
                    let piece = piece?;
                    counted.fetch_add(piece.len() as u64, Relaxed);
                    Ok(Frame::data(piece))
                })
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Nothing => 0,
            Self::Data(data) => data.len() as u64,
            Self::File(pieces, _) => pieces.left(),
        })
    }
}
