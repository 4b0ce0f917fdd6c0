//! Bodies of requests.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::failure::{Failure, Kind};
use crate::serve::{Pieces, Source};

/// The body of a request.
#[derive(Debug)]
pub(super) struct Upload {
    source: Source,
    /// The file it is read from, and the status of reading it.
    file: Option<(PathBuf, UploadReadStatus)>,
}

/// The status of reading files that are uploaded.
#[derive(Clone, Debug)]
pub(super) struct UploadReadStatus {
    /// Bytes read so far.
    counted: Arc<AtomicU64>,
    /// Why reading failed. The server then has half of the file, and does not know the reason.
    broken: Arc<OnceLock<Failure>>,
}

impl UploadReadStatus {
    /// Creates a status that adds to `counted`.
    pub(super) fn new(counted: Arc<AtomicU64>) -> Self {
        Self {
            counted,
            broken: Arc::default(),
        }
    }

    pub(super) fn broken(&self) -> Option<&Failure> {
        self.broken.get()
    }
}

impl Upload {
    pub(super) fn nothing() -> Self {
        Self::data(Bytes::new())
    }

    pub(super) fn data(data: Bytes) -> Self {
        Self {
            source: Source::whole(data),
            file: None,
        }
    }

    /// Reads the body from a file; the status is recorded in `reading`.
    ///
    /// # Errors
    /// If it is not a regular file or cannot be read.
    pub(super) fn file(path: &Path, reading: UploadReadStatus) -> Result<Self, Failure> {
        let failure = |error: &io::Error| unreadable(path, error);
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| failure(&error))?;
        if !metadata.is_file() {
            return Err(failure(&io::Error::other("not a regular file")));
        }
        Ok(Self {
            source: Source::File(Box::new(Pieces::of_file(file, metadata.len()))),
            file: Some((path.to_owned(), reading)),
        })
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot read {}", path.display());
    if error.kind() == io::ErrorKind::UnexpectedEof {
        let message = format!("{what}: the file shrank while it was being read");
        return Failure::new(Kind::Arguments, message);
    }
    Failure::caused(Kind::Arguments, what, error)
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.source.poll_next(cx);
        if let (Poll::Ready(Some(piece)), Some((path, reading))) = (&piece, &self.file) {
            match piece {
                Ok(piece) => {
                    reading.counted.fetch_add(piece.len() as u64, Relaxed);
                }
                Err(error) => {
                    reading.broken.get_or_init(|| unreadable(path, error));
                }
            }
        }
        piece.map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        self.source.left() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.source
            .left()
            .map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
