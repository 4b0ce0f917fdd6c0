//! The halves of a session's streams.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use clearway_http3::Code;
use clearway_http3::webtransport::{StreamHeader, code_from_wire, code_to_wire};
use clearway_quic::connection::ConnectionError;
use clearway_quic::stream::StreamId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::session::WebTransportSession;
use crate::error::{ReadError, WriteError};
use crate::stream as quic;

/// The error code of a half that is dropped before its end.
const DROPPED: u32 = 0;

/// Largest chunk taken at once while reading to the end, in bytes.
const MAX_CHUNK: usize = 64 * 1024;

/// Keeps the session of a stream, and forgets the stream when both halves are dropped.
#[derive(Debug)]
pub(super) struct StreamGuard {
    session: WebTransportSession,
    id: StreamId,
}

impl StreamGuard {
    pub(super) fn new(session: WebTransportSession, id: StreamId) -> Self {
        Self { session, id }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let stream = self.session.stream();
        stream.call(|view, _| view.layer.h3.forget_session_stream(self.id));
    }
}

/// An error of a session's stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer reset the stream with this code of the application.
    #[error("the peer reset the stream with code {0}")]
    Reset(u32),
    /// The peer stopped reading the stream with this code of the application.
    #[error("the peer stopped reading the stream with code {0}")]
    Stopped(u32),
    /// The peer reset the stream or stopped reading it with a code that is not the application's.
    #[error("the peer ended the stream: {0}")]
    Protocol(Code),
    /// The session has ended ([`WebTransportSession::closed`] returns why).
    #[error("the session of the stream has ended")]
    SessionEnded,
    /// The half was finished, reset or stopped here.
    #[error("the stream was finished, reset or stopped here")]
    Closed,
    /// The connection ended.
    #[error("connection lost: {0}")]
    ConnectionLost(ConnectionError),
}

impl StreamError {
    fn of_code(code: u64, application: impl FnOnce(u32) -> Self) -> Self {
        match code_from_wire(code) {
            Some(code) => application(code),
            None if code == Code::WEBTRANSPORT_SESSION_GONE.0 => Self::SessionEnded,
            None => Self::Protocol(Code(code)),
        }
    }

    fn of_read(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::of_code(code, Self::Reset),
            // Not by this half, which would know.
            ReadError::Stopped => Self::SessionEnded,
            ReadError::ConnectionLost(error) => Self::ConnectionLost(error),
        }
    }

    fn of_write(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::of_code(code, Self::Stopped),
            WriteError::Closed => Self::SessionEnded,
            WriteError::ConnectionLost(error) => Self::ConnectionLost(error),
        }
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        let kind = match &error {
            StreamError::Reset(_) | StreamError::Stopped(_) | StreamError::Protocol(_) => {
                io::ErrorKind::ConnectionReset
            }
            StreamError::SessionEnded | StreamError::ConnectionLost(_) => {
                io::ErrorKind::ConnectionAborted
            }
            StreamError::Closed => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

/// The error of [`RecvStream::read_to_end`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadToEndError {
    /// The stream is longer than the caller's limit, in bytes.
    #[error("the stream is longer than the limit of {0} bytes")]
    TooLong(usize),
    /// Reading failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// The sending half of a session's stream. Dropping it before [`finish`](Self::finish) resets it
/// with code 0, so that the peer does not mistake a part for the whole.
#[derive(Debug)]
pub struct SendStream {
    inner: quic::SendStream,
    /// The rest of the stream's header, which has to be written first.
    header: Bytes,
    /// Length of that header, which a reset still delivers; 0 on a stream of the peer.
    header_size: u64,
    is_open: bool,
    _guard: Arc<StreamGuard>,
}

impl SendStream {
    /// The half of a stream that the peer opened.
    pub(super) fn of_peer(guard: Arc<StreamGuard>) -> Self {
        Self::new(guard, Bytes::new(), 0)
    }

    /// The half of a stream that was opened here.
    pub(super) fn opened(guard: Arc<StreamGuard>, header: Bytes) -> Self {
        let session = guard.session.stream().id();
        let whole = StreamHeader::new(guard.id.directionality(), session).encode();
        Self::new(guard, header, whole.len() as u64)
    }

    fn new(guard: Arc<StreamGuard>, header: Bytes, header_size: u64) -> Self {
        let connection = guard.session.stream().connection().clone();
        Self {
            inner: quic::SendStream::new(connection, guard.id),
            header,
            header_size,
            is_open: true,
            _guard: guard,
        }
    }

    /// Returns the stream's identifier.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.inner.id()
    }

    /// Writes as much of `data` as there is room for and returns the number of bytes, at least one;
    /// waits while there is no room. Cancel-safe: nothing is written if the future is dropped before
    /// it is ready.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub async fn write(&mut self, data: &[u8]) -> Result<usize, StreamError> {
        self.write_header().await?;
        (self.inner.write(data).await).map_err(StreamError::of_write)
    }

    /// Writes all of `data`. Not cancel-safe.
    ///
    /// # Errors
    /// See [`StreamError`]. A part of `data` may have been written.
    pub async fn write_all(&mut self, data: &[u8]) -> Result<(), StreamError> {
        self.write_header().await?;
        (self.inner.write_all(data).await).map_err(StreamError::of_write)
    }

    /// Writes all of `data` without a copy. Not cancel-safe.
    ///
    /// # Errors
    /// See [`StreamError`]. A part of `data` may have been written.
    pub async fn write_chunk(&mut self, data: Bytes) -> Result<(), StreamError> {
        self.write_header().await?;
        (self.inner.write_chunk(data).await).map_err(StreamError::of_write)
    }

    /// Ends the stream after the data that has been written. Does not wait for delivery:
    /// [`finished`](Self::finished) does.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn finish(&mut self) -> Result<(), StreamError> {
        self.check_open()?;
        if !self.header.is_empty() {
            // Without its header, nobody would know whose stream it is.
            self.reset(DROPPED);
            return Err(StreamError::Closed);
        }
        self.inner.finish().map_err(StreamError::of_write)?;
        self.is_open = false;
        Ok(())
    }

    /// Resets the stream with an error code of the application. Data that was not delivered yet is
    /// discarded. The peer learns of the stream even so, if it supports RESET_STREAM_AT.
    pub fn reset(&mut self, code: u32) {
        if std::mem::replace(&mut self.is_open, false) {
            // It fails only if the connection has ended.
            let _ = self.inner.reset_at(code_to_wire(code), self.header_size);
        }
    }

    /// Waits until the peer has acknowledged everything, after [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`StreamError::Stopped`] if the peer stopped reading it; see [`StreamError`].
    pub async fn finished(&self) -> Result<(), StreamError> {
        self.inner.finished().await.map_err(StreamError::of_write)
    }

    /// Waits until the peer does not read the stream any more, and returns why; or until it has
    /// acknowledged everything including the end, and returns `None`.
    pub async fn stopped(&self) -> Option<StreamError> {
        match self.inner.stopped().await {
            Ok(Some(code)) => Some(StreamError::of_code(code, StreamError::Stopped)),
            Ok(None) => None,
            Err(error) => Some(StreamError::ConnectionLost(error)),
        }
    }

    fn check_open(&self) -> Result<(), StreamError> {
        if self.is_open {
            return Ok(());
        }
        Err(StreamError::Closed)
    }

    /// Writes the rest of the header. Cancel-safe.
    async fn write_header(&mut self) -> Result<(), StreamError> {
        self.check_open()?;
        while !self.header.is_empty() {
            let written = self.inner.write(&self.header).await;
            self.header.advance(written.map_err(StreamError::of_write)?);
        }
        Ok(())
    }

    fn poll_header(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_open()?;
        while !self.header.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.header))?;
            self.header.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_header(cx))?;
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_open {
            ready!(self.poll_header(cx))?;
            self.finish()?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        self.reset(DROPPED);
    }
}

/// The receiving half of a session's stream. Dropping it before its end asks the peer to stop
/// sending, with code 0.
#[derive(Debug)]
pub struct RecvStream {
    inner: quic::RecvStream,
    /// What was read together with the stream's header.
    buffered: Bytes,
    is_open: bool,
    _guard: Arc<StreamGuard>,
}

impl RecvStream {
    pub(super) fn new(guard: Arc<StreamGuard>, buffered: Bytes) -> Self {
        let connection = guard.session.stream().connection().clone();
        Self {
            inner: quic::RecvStream::new(connection, guard.id),
            buffered,
            is_open: true,
            _guard: guard,
        }
    }

    /// Returns the stream's identifier.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.inner.id()
    }

    /// Reads at most `max` bytes without a copy. Returns `None` at the end of the stream.
    /// Cancel-safe.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub async fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, StreamError> {
        if !self.is_open {
            return Err(StreamError::Closed);
        }
        if !self.buffered.is_empty() {
            let taken = max.clamp(1, self.buffered.len());
            return Ok(Some(self.buffered.split_to(taken)));
        }
        self.inner
            .read_chunk(max)
            .await
            .map_err(StreamError::of_read)
    }

    /// Reads everything up to the end, at most `limit` bytes. Not cancel-safe: what was read is lost
    /// if the future is dropped.
    ///
    /// # Errors
    /// See [`ReadToEndError`].
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

    /// Stops reading: asks the peer to stop sending, with an error code of the application. Does
    /// nothing after the end of the stream.
    pub fn stop(&mut self, code: u32) {
        self.is_open = false;
        self.inner.stop(code_to_wire(code));
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.buffered.is_empty() {
            let taken = self.buffered.len().min(buffer.remaining());
            let taken = self.buffered.split_to(taken);
            buffer.put_slice(&taken);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        self.inner.stop(code_to_wire(DROPPED));
    }
}
