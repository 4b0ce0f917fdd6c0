//! Writing of content to its destination.

use std::io;
use std::path::PathBuf;

use bytes::{Buf as _, Bytes};
use tokio::task::{JoinHandle, spawn_blocking};

use super::cause::{TransferError, unwritable};
use super::destination::{Destination, Sink};
use super::part::{ResumePoint, Source};

/// Size of a batch that is handed to a thread at once.
const BATCH: usize = 256 << 10;

/// Writes on other threads, in large batches.
#[derive(Debug)]
pub(super) struct Writer {
    to: Destination,
    /// The description of the content, for resuming it later.
    source: Source,
    /// `None` until the first batch: small files are written by a single task.
    sink: Option<Sink>,
    /// The previous batch, while the next one is gathered.
    writing: Option<JoinHandle<io::Result<Sink>>>,
    batch: Vec<Bytes>,
    gathered: usize,
    /// Existing data that the content has to begin with.
    expected: Bytes,
    /// Length of an earlier partial file that is replaced only by a longer one.
    older: u64,
}

/// The content differs from the existing data.
#[derive(Debug)]
pub(super) struct Mismatch;

impl Writer {
    /// Writes from the beginning.
    pub(super) fn new(to: Destination, source: Source) -> Self {
        Self {
            to,
            source,
            sink: None,
            writing: None,
            batch: Vec::new(),
            gathered: 0,
            expected: Bytes::new(),
            older: 0,
        }
    }

    /// Keeps this partial file of other content until more than its length has arrived, or all of
    /// the content: a server that breaks off costs nothing.
    pub(super) fn instead_of(mut self, beginning: &ResumePoint) -> Self {
        self.older = beginning.length();
        self
    }

    /// Continues after existing data of the same `source`.
    pub(super) fn after(to: Destination, mut beginning: ResumePoint, source: Source) -> Self {
        let expected = std::mem::take(&mut beginning.tail);
        Self {
            sink: Some(Sink::Part(beginning.into_part())),
            expected,
            ..Self::new(to, source)
        }
    }

    /// Adds the next piece.
    ///
    /// # Errors
    /// If it differs from existing data that it repeats.
    pub(super) fn push(&mut self, mut piece: Bytes) -> Result<(), Mismatch> {
        let known = piece.len().min(self.expected.len());
        if piece[..known] != self.expected[..known] {
            return Err(Mismatch);
        }
        piece.advance(known);
        self.expected.advance(known);
        if !piece.is_empty() {
            self.gathered += piece.len();
            self.batch.push(piece);
        }
        Ok(())
    }

    /// Whether it is time to [`flush`](Self::flush).
    pub(super) fn is_full(&self) -> bool {
        self.gathered >= BATCH
    }

    /// Starts to write what was gathered, once the previous batch is written.
    ///
    /// # Errors
    /// If that could not be written.
    pub(super) async fn flush(&mut self) -> Result<(), TransferError> {
        self.settle().await?;
        let batch = self.take();
        let (sink, to) = (self.sink.take(), self.to.clone());
        let source = self.source.clone();
        self.writing = Some(spawn_blocking(move || {
            let mut sink = match sink {
                Some(sink) => sink,
                None => to.open(Some(&source))?,
            };
            sink.write(&batch).map(|()| sink)
        }));
        Ok(())
    }

    /// Waits until the previous batch is written.
    async fn settle(&mut self) -> Result<(), TransferError> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        let written = writing.await.map_err(io::Error::other);
        let written = written.and_then(|written| written);
        self.sink = Some(written.map_err(|error| unwritable(&self.to, &error))?);
        Ok(())
    }

    /// Writes the rest and completes the file.
    ///
    /// # Errors
    /// If it cannot be written or renamed.
    pub(super) async fn finish(mut self) -> Result<(), TransferError> {
        self.settle().await?;
        let batch = self.take();
        let (sink, to) = (self.sink.take(), self.to.clone());
        let write = move || {
            // Not resumable: it is complete at once.
            let mut sink = match sink {
                Some(sink) => sink,
                None => to.open(None)?,
            };
            sink.write(&batch)?;
            sink.finish()
        };
        let finished = spawn_blocking(write).await.map_err(io::Error::other);
        finished
            .and_then(|finished| finished)
            .map_err(|error| unwritable(&self.to, &error))
    }

    /// Abandons the content. What can be resumed is kept: returns where, and how many bytes.
    pub(super) async fn abandon(mut self) -> Option<(PathBuf, u64)> {
        self.settle().await.ok()?;
        let shorter = self.sink.is_none() && (self.gathered as u64) <= self.older;
        if !shorter && (self.source.etag.is_some() || self.sink.is_some()) {
            self.flush().await.ok()?;
            self.settle().await.ok()?;
        }
        let sink = self.sink.take()?;
        spawn_blocking(move || sink.abandon()).await.ok()?
    }

    fn take(&mut self) -> Vec<Bytes> {
        self.gathered = 0;
        std::mem::take(&mut self.batch)
    }
}
