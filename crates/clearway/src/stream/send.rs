//! The sending half of a stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway_quic::connection::{Connection, ConnectionError};
use clearway_quic::stream::{Priority, StreamId, WriteError as TransportWriteError};
use tokio::io::AsyncWrite;

use crate::connection::{ConnectionRef, SendEnd, State};
use crate::error::WriteError;

/// Error code sent to the peer when a stream is dropped before it was finished.
const DROPPED: u64 = 0;

/// The sending half of a stream. **Dropping it before [`finish`](Self::finish) or
/// [`reset`](Self::reset) resets it** with code 0, so that the peer does not mistake half a
/// message for a whole one.
#[derive(Debug)]
pub struct SendStream {
    shared: ConnectionRef,
    id: StreamId,
    /// Set once the stream was finished or reset here.
    ended: Option<LocalEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalEnd {
    Finished,
    Reset,
}

impl SendStream {
    pub(crate) fn new(shared: ConnectionRef, id: StreamId) -> Self {
        Self {
            shared,
            id,
            ended: None,
        }
    }

    /// Returns the stream's identifier.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Writes as much of `data` as there is room for and returns the number of bytes, at
    /// least one; waits while there is no room. Cancel-safe: nothing is written if the future
    /// is dropped before it is ready.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        poll_fn(|cx| self.poll_send(cx, |quic, id| quic.write(id, data))).await
    }

    /// Writes all of `data`. Not cancel-safe.
    ///
    /// # Errors
    /// See [`WriteError`]. A part of `data` may have been written.
    pub async fn write_all(&mut self, mut data: &[u8]) -> Result<(), WriteError> {
        while !data.is_empty() {
            let written = self.write(data).await?;
            data = data.get(written..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Writes all of `data` without a copy. Not cancel-safe.
    ///
    /// # Errors
    /// See [`WriteError`]. A part of `data` may have been written.
    pub async fn write_chunk(&mut self, mut data: Bytes) -> Result<(), WriteError> {
        while !data.is_empty() {
            poll_fn(|cx| self.poll_send(cx, |quic, id| quic.write_chunk(id, &mut data))).await?;
        }
        Ok(())
    }

    /// Ends the stream after the data that has been written. Does not wait for delivery:
    /// [`finished`](Self::finished) does.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.shared.call_then_send(|state| {
            if let Some(error) = self.write_error(state) {
                return Err(error);
            }
            state.quic.finish(self.id).map_err(|error| match error {
                TransportWriteError::Stopped(code) => WriteError::Stopped(code),
                TransportWriteError::Blocked
                | TransportWriteError::Unknown
                | TransportWriteError::Finished => WriteError::Closed,
            })
        })?;
        self.ended = Some(LocalEnd::Finished);
        Ok(())
    }

    /// Resets the stream with an application error `code`, finished or not (RESET_STREAM,
    /// RFC 9000 §3.1). Data that was not delivered yet is discarded.
    ///
    /// # Errors
    /// [`WriteError::ConnectionLost`] if the connection has ended.
    pub fn reset(&mut self, code: u64) -> Result<(), WriteError> {
        self.reset_at(code, 0)
    }

    /// Resets the stream as [`reset`](Self::reset), but still delivers the first `reliable_size`
    /// bytes of what was written, such as a header that tells the peer whose stream it was
    /// (RESET_STREAM_AT, draft-ietf-quic-reliable-stream-reset). A peer that does not support it is
    /// sent a plain reset.
    ///
    /// # Errors
    /// [`WriteError::ConnectionLost`] if the connection has ended.
    pub fn reset_at(&mut self, code: u64, reliable_size: u64) -> Result<(), WriteError> {
        let id = self.id;
        self.shared
            .call_then_send(|state| match state.error.as_deref() {
                Some(error) => Err(WriteError::from(error.clone())),
                None => {
                    // This fails only if the stream is over already.
                    let _ = state.quic.reset_at(id, code, reliable_size);
                    Ok(())
                }
            })?;
        self.ended = Some(LocalEnd::Reset);
        Ok(())
    }

    /// Changes how the stream is scheduled relative to others.
    pub fn set_priority(&mut self, priority: Priority) {
        let id = self.id;
        self.shared
            .call(|state| state.quic.set_priority(id, priority));
    }

    /// Waits until the peer stops reading the stream, and returns its error code; or until it
    /// has acknowledged everything including the end, and returns `None`.
    ///
    /// # Errors
    /// The reason why the connection ended.
    pub async fn stopped(&self) -> Result<Option<u64>, ConnectionError> {
        let end = poll_fn(|cx| self.shared.call(|state| self.poll_end(cx, state)));
        Ok(match end.await? {
            Some(SendEnd::Stopped(code)) => Some(code),
            Some(SendEnd::Delivered) | None => None,
        })
    }

    /// Waits until the peer has acknowledged everything, after [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`WriteError::Closed`] if the stream was not finished, [`WriteError::Stopped`] if the
    /// peer stopped reading it, [`WriteError::ConnectionLost`] if the connection ended.
    pub async fn finished(&self) -> Result<(), WriteError> {
        if self.ended != Some(LocalEnd::Finished) {
            return Err(WriteError::Closed);
        }
        match self.stopped().await? {
            Some(code) => Err(WriteError::Stopped(code)),
            None => Ok(()),
        }
    }

    /// Returns how the stream ended; `None` if no state of it is left.
    fn poll_end(
        &self,
        cx: &Context<'_>,
        state: &mut State,
    ) -> Poll<Result<Option<SendEnd>, ConnectionError>> {
        let error = state.error.as_deref().cloned();
        let Some(slot) = state.sends.get_mut(&self.id) else {
            return Poll::Ready(Ok(None));
        };
        if let Some(end) = slot.end {
            return Poll::Ready(Ok(Some(end)));
        }
        if let Some(error) = error {
            return Poll::Ready(Err(error));
        }
        if !slot.watchers.iter().any(|w| w.will_wake(cx.waker())) {
            slot.watchers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn write_error(&self, state: &State) -> Option<WriteError> {
        if let Some(error) = state.error.as_deref() {
            return Some(error.clone().into());
        }
        if let Some(SendEnd::Stopped(code)) = state.sends.get(&self.id).and_then(|slot| slot.end) {
            return Some(WriteError::Stopped(code));
        }
        self.ended.map(|_| WriteError::Closed)
    }

    fn poll_send(
        &mut self,
        cx: &Context<'_>,
        write: impl FnOnce(&mut Connection, StreamId) -> Result<usize, TransportWriteError>,
    ) -> Poll<Result<usize, WriteError>> {
        self.shared.write_then_send_if(|state| {
            if let Some(error) = self.write_error(state) {
                return (Poll::Ready(Err(error)), false);
            }
            match write(&mut state.quic, self.id) {
                Ok(written) => (Poll::Ready(Ok(written)), true),
                Err(TransportWriteError::Blocked) => {
                    let slot = state.sends.entry(self.id).or_default();
                    match &mut slot.writer {
                        Some(waker) => waker.clone_from(cx.waker()),
                        None => slot.writer = Some(cx.waker().clone()),
                    }
                    // A STREAM_DATA_BLOCKED frame may have to be sent.
                    (Poll::Pending, true)
                }
                Err(TransportWriteError::Stopped(code)) => {
                    (Poll::Ready(Err(WriteError::Stopped(code))), false)
                }
                Err(TransportWriteError::Unknown | TransportWriteError::Finished) => {
                    (Poll::Ready(Err(WriteError::Closed)), false)
                }
            }
        })
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_send(cx, |quic, id| quic.write(id, data))
            .map_err(Into::into)
    }

    /// Does nothing: written data is sent without a flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the stream, as [`finish`](Self::finish) does.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ended == Some(LocalEnd::Finished) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.finish().map_err(Into::into))
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        self.shared.call_then_send_if(|state| {
            if self.ended == Some(LocalEnd::Finished)
                && let Some(slot) = state.sends.get_mut(&self.id)
                && slot.end.is_none()
            {
                slot.detached = true;
                slot.writer = None;
                slot.watchers.clear();
                return ((), false);
            }
            state.sends.remove(&self.id);
            let unfinished = self.ended.is_none() && state.error.is_none();
            if unfinished {
                // This fails only if the peer stopped the stream and it is over.
                let _ = state.quic.reset(self.id, DROPPED);
            }
            ((), unfinished)
        });
    }
}
