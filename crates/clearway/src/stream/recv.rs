//! The receiving half.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway_quic::connection::Connection;
use clearway_quic::stream::{ReadError as TransportReadError, StreamId};
use tokio::io::{AsyncRead, ReadBuf};

use crate::connection::ConnectionRef;
use crate::error::{ReadError, ReadExactError, ReadToEndError};

/// Error code sent to the peer when a stream is dropped before its end.
const DROPPED: u64 = 0;

/// Largest chunk taken at once while reading to the end, in bytes.
const MAX_CHUNK: usize = 64 * 1024;

/// The receiving half of a stream. Dropping it before its end was read asks the peer to
/// stop sending, with code 0.
#[derive(Debug)]
pub struct RecvStream {
    shared: ConnectionRef,
    id: StreamId,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Finished,
    Reset(u64),
    Stopped,
}

/// What a read returns: data, if there was some, and whether the stream ends after it.
struct Data<T> {
    data: Option<T>,
    is_last: bool,
}

fn read(
    quic: &mut Connection,
    id: StreamId,
    buffer: &mut [u8],
) -> Result<Data<usize>, TransportReadError> {
    let data = quic.read(id, buffer)?;
    let is_last = data.is_none();
    Ok(Data { data, is_last })
}

fn read_chunk(
    quic: &mut Connection,
    id: StreamId,
    max: usize,
) -> Result<Data<Bytes>, TransportReadError> {
    let (bytes, is_last) = quic.read_chunk_with_end(id, max)?;
    let data = Some(bytes).filter(|bytes| !bytes.is_empty());
    Ok(Data { data, is_last })
}

impl RecvStream {
    pub(crate) fn new(shared: ConnectionRef, id: StreamId) -> Self {
        Self {
            shared,
            id,
            end: None,
        }
    }

    /// Returns the stream's identifier.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Reads into `buffer` and returns how many bytes were read: at least one unless
    /// `buffer` is empty, or `None` at the end of the stream. Cancel-safe: no data is lost
    /// if the future is dropped before it is ready.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ReadError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        poll_fn(|cx| self.poll_recv(cx, |quic, id| read(quic, id, buffer))).await
    }

    /// Fills `buffer`. Not cancel-safe: what was read is lost if the future is dropped.
    ///
    /// # Errors
    /// [`ReadExactError::FinishedEarly`] if the stream ends before; otherwise see
    /// [`ReadError`].
    pub async fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ReadExactError> {
        let mut filled = 0_usize;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest).await? {
                Some(read) => filled = filled.saturating_add(read),
                None => return Err(ReadExactError::FinishedEarly(filled)),
            }
        }
        Ok(())
    }

    /// Reads at most `max` bytes without a copy. Returns `None` at the end of the stream.
    /// Cancel-safe.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, ReadError> {
        let max = max.max(1);
        poll_fn(|cx| self.poll_recv(cx, |quic, id| read_chunk(quic, id, max))).await
    }

    /// Reads everything up to the end, at most `limit` bytes. Not cancel-safe: what was read
    /// is lost if the future is dropped.
    ///
    /// # Errors
    /// [`ReadToEndError::TooLong`] if the stream is longer; otherwise see [`ReadError`].
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.read_chunk(MAX_CHUNK).await? {
            if chunk.len() > limit.saturating_sub(all.len()) {
                return Err(ReadToEndError::TooLong(limit));
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    /// Stops reading: asks the peer to stop sending, with the application error `code`
    /// (STOP_SENDING, RFC 9000 §3.5). Does nothing after the end of the stream.
    pub fn stop(&mut self, code: u64) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(End::Stopped);
        self.stop_now(code);
    }

    fn stop_now(&self, code: u64) {
        self.shared.call_then_send_if(|state| {
            state.readers.remove(&self.id);
            let alive = state.error.is_none();
            if alive {
                // This fails only if the stream is over.
                let _ = state.quic.stop(self.id, code);
            }
            ((), alive)
        });
    }

    fn poll_recv<T>(
        &mut self,
        cx: &Context<'_>,
        read: impl FnOnce(&mut Connection, StreamId) -> Result<Data<T>, TransportReadError>,
    ) -> Poll<Result<Option<T>, ReadError>> {
        match self.end {
            Some(End::Finished) => return Poll::Ready(Ok(None)),
            Some(End::Reset(code)) => return Poll::Ready(Err(ReadError::Reset(code))),
            Some(End::Stopped) => return Poll::Ready(Err(ReadError::Stopped)),
            None => {}
        }
        let Self { shared, id, end } = self;
        shared.call_then_send_if(|state| match read(&mut state.quic, *id) {
            Ok(Data { data, is_last }) => {
                if is_last {
                    *end = Some(End::Finished);
                }
                // Reading gives the peer flow-control credit.
                (Poll::Ready(Ok(data)), true)
            }
            Err(TransportReadError::Blocked) => {
                // Data that arrived before the connection ended has been read; no more
                // will arrive.
                if let Some(error) = state.error.as_deref() {
                    return (Poll::Ready(Err(error.clone().into())), false);
                }
                match state.readers.get_mut(id) {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => {
                        state.readers.insert(*id, cx.waker().clone());
                    }
                }
                (Poll::Pending, false)
            }
            Err(TransportReadError::Reset(code)) => {
                *end = Some(End::Reset(code));
                (Poll::Ready(Err(ReadError::Reset(code))), true)
            }
            Err(TransportReadError::Unknown) => {
                *end = Some(End::Stopped);
                (Poll::Ready(Err(ReadError::Stopped)), false)
            }
        })
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let room = buffer.initialize_unfilled();
        let read = self.poll_recv(cx, |quic, id| read(quic, id, room));
        read.map(|read| {
            buffer.advance(read?.unwrap_or(0));
            Ok(())
        })
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.stop_now(DROPPED);
        }
    }
}
