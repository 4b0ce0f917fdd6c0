//! Content on its way from the connection to its destination.

use std::io;
use std::path::PathBuf;

use bytes::{Buf as _, Bytes};
use tokio::task::{JoinHandle, spawn_blocking};

use super::cause::{Stop, unwritable};
use super::destination::{Destination, Sink};
use super::part::{Beginning, Source};

/// How much is gathered for one change of threads.
const BATCH: usize = 256 << 10;

/// Writes away from the event loop, in large batches.
#[derive(Debug)]
pub(super) struct Writer {
    to: Destination,
    /// What a beginning would be of.
    source: Source,
    /// `None` until there is a batch: small files take one change of threads.
    sink: Option<Sink>,
    /// The batch before, while the next is gathered.
    writing: Option<JoinHandle<io::Result<Sink>>>,
    batch: Vec<Bytes>,
    gathered: usize,
    /// What the content has to begin with: it is there already.
    expected: Bytes,
    /// Bytes of an earlier beginning that is only given up for a longer one.
    older: u64,
}

/// What came is not what is there already.
#[derive(Debug)]
pub(super) struct Mismatch;

impl Writer {
    /// From the beginning.
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

    /// Leaves this beginning of other content as it is until more than its length has
    /// come, or all there is: a server that breaks off takes nothing away.
    pub(super) fn instead_of(mut self, beginning: &Beginning) -> Self {
        self.older = beginning.length();
        self
    }

    /// Goes on with what is there, of the same `source`.
    pub(super) fn after(to: Destination, mut beginning: Beginning, source: Source) -> Self {
        let expected = std::mem::take(&mut beginning.tail);
        Self {
            sink: Some(Sink::Part(beginning.into_part())),
            expected,
            ..Self::new(to, source)
        }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// If it repeats what is there, and differs.
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

    /// Begins to write what was gathered, once the batch before is written.
    ///
    /// # Errors
    /// If that could not be.
    pub(super) async fn flush(&mut self) -> Result<(), Stop> {
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

    /// Waits until the batch before is written.
    async fn settle(&mut self) -> Result<(), Stop> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        let written = writing.await.map_err(io::Error::other);
        let written = written.and_then(|written| written);
        self.sink = Some(written.map_err(|error| unwritable(&self.to, &error))?);
        Ok(())
    }

    /// Writes the rest; the content is whole.
    ///
    /// # Errors
    /// If it cannot be written or get its name.
    pub(super) async fn finish(mut self) -> Result<(), Stop> {
        self.settle().await?;
        let batch = self.take();
        let (sink, to) = (self.sink.take(), self.to.clone());
        let write = move || {
            // Nothing to go on with: it is whole at once.
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

    /// The rest will not come. What can be gone on with is kept: where, and how
    /// many bytes.
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
