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
use crate::serve::{Pieces, Source};

/// What is sent with a request.
#[derive(Debug)]
pub(super) struct Upload {
    source: Source,
    /// Counts what leaves of a file.
    counted: Option<Arc<AtomicU64>>,
}

impl Upload {
    pub(super) fn nothing() -> Self {
        Self::data(Bytes::new())
    }

    pub(super) fn data(data: Bytes) -> Self {
        Self {
            source: Source::whole(data),
            counted: None,
        }
    }

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
        Ok(Self {
            source: Source::File(Pieces::new(file, 0, metadata.len())),
            counted: Some(counted),
        })
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.source.poll_next(cx);
        if let (Poll::Ready(Some(Ok(piece))), Some(counted)) = (&piece, &self.counted) {
            counted.fetch_add(piece.len() as u64, Relaxed);
        }
        piece.map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        self.source.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.source.left())
    }
}
