//! The sending half of a tunnel.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use clearway_http3::{Code, SendError, capsule};
use tokio::io::AsyncWrite;

use super::TunnelOffer;
use crate::http::error::Error;
use crate::http::request_stream::RequestStream;

/// Most bytes that one call of [`AsyncWrite::poll_write`] takes.
const MAX_WRITE: usize = 64 << 10;

/// The sending half of a [`Tunnel`](super::Tunnel). Dropping it before
/// [`finish`](Self::finish) resets the stream, so that the peer does not mistake a part for the
/// whole.
#[derive(Debug)]
pub struct TunnelSender {
    stream: RequestStream,
    /// The error code of that reset; `None` after the end.
    reset_code: Option<Code>,
    _offer: Option<Arc<TunnelOffer>>,
}

impl TunnelSender {
    pub(in crate::http) fn new(
        stream: RequestStream,
        reset_code: Code,
        offer: Option<Arc<TunnelOffer>>,
    ) -> Self {
        Self {
            stream,
            reset_code: Some(reset_code),
            _offer: offer,
        }
    }

    /// Sends data, waiting until the stream takes it. Cancel-safe: it is taken whole or not at all.
    ///
    /// # Errors
    /// If the peer does not read any more, or the connection has ended.
    pub async fn send(&mut self, data: Bytes) -> Result<(), Error> {
        self.check_open()?;
        self.stream.write(data).await
    }

    /// Sends a capsule (RFC 9297 §3.2).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_capsule(&mut self, kind: u64, value: Bytes) -> Result<(), Error> {
        self.send(encode(kind, value)).await
    }

    /// Sends a capsule unless the stream is full. Returns whether it was sent.
    pub(in crate::http) fn try_send_capsule(
        &mut self,
        kind: u64,
        value: Bytes,
    ) -> Result<bool, Error> {
        self.check_open()?;
        self.stream.try_write(encode(kind, value))
    }

    /// Ends this half: the peer reads the end after all data.
    ///
    /// # Errors
    /// If this half has ended, or the connection has.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.check_open()?;
        self.reset_code = None;
        self.stream.finish()
    }

    /// Abandons this half with an error code.
    pub fn reset(&mut self, code: Code) {
        if self.reset_code.take().is_some() {
            self.stream.reset(code);
        }
    }

    /// Waits until the peer does not read any more, or the connection ends, and returns why.
    pub async fn stopped(&mut self) -> Error {
        poll_fn(|cx| self.stream.poll_stopped(cx)).await
    }

    fn check_open(&self) -> Result<(), Error> {
        match self.reset_code {
            Some(_) => Ok(()),
            None => Err(Error::Unsendable(SendError::Unknown)),
        }
    }
}

impl AsyncWrite for TunnelSender {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_open()?;
        let taken = data.len().min(MAX_WRITE);
        let mut piece = Bytes::copy_from_slice(data.get(..taken).unwrap_or_default());
        ready!(self.stream.poll_write(&mut piece, cx))?;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset_code.is_some() {
            self.finish()?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TunnelSender {
    fn drop(&mut self) {
        if let Some(code) = self.reset_code {
            self.stream.reset(code);
        }
    }
}

fn encode(kind: u64, value: Bytes) -> Bytes {
    let mut encoded = Vec::with_capacity(value.len().saturating_add(16));
    capsule::Capsule { kind, value }.encode(&mut encoded);
    encoded.into()
}
