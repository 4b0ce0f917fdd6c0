//! The receiving half of a tunnel.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use clearway_http3::Code;
use tokio::io::{AsyncRead, ReadBuf};

use super::TunnelOffer;
use crate::http::error::Error;
use crate::http::request_stream::{BodyPart, RequestStream};

/// The receiving half of a [`Tunnel`](super::Tunnel). What is not read stays with the peer, whose
/// flow-control window is then full. Dropping it before the end asks the peer to stop sending.
#[derive(Debug)]
pub struct TunnelReceiver {
    stream: RequestStream,
    /// What a read has not taken yet.
    left: Bytes,
    /// The error code for the peer if this is dropped before the end; `None` after it.
    stop_code: Option<Code>,
    _offer: Option<Arc<TunnelOffer>>,
}

impl TunnelReceiver {
    pub(in crate::http) fn new(
        stream: RequestStream,
        stop_code: Code,
        offer: Option<Arc<TunnelOffer>>,
    ) -> Self {
        Self {
            stream,
            left: Bytes::new(),
            stop_code: Some(stop_code),
            _offer: offer,
        }
    }

    /// The end has arrived with the header section.
    pub(super) fn set_ended(&mut self) {
        self.stop_code = None;
    }

    /// Returns the next piece of data, or `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// If the peer has reset its half, or the connection has ended.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    pub(super) fn poll_chunk(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        if !self.left.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.left))));
        }
        if self.stop_code.is_none() {
            return Poll::Ready(Ok(None));
        }
        let part = ready!(self.stream.poll_read(cx));
        Poll::Ready(match part {
            // A tunnel has no length, with which one could end.
            Ok(BodyPart::Data(data) | BodyPart::Last(data)) => Ok(Some(data)),
            // HTTP/3 accepts no trailers in a tunnel.
            Ok(BodyPart::End | BodyPart::Trailers(_)) => {
                self.stop_code = None;
                Ok(None)
            }
            Err(error) => {
                self.stop_code = None;
                Err(error)
            }
        })
    }

    /// Asks the peer to stop sending, with an error code.
    pub fn stop(&mut self, code: Code) {
        if self.stop_code.take().is_some() {
            self.stream.stop(code);
        }
    }
}

impl AsyncRead for TunnelReceiver {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut data) = ready!(self.poll_chunk(cx))? {
            let taken = data.len().min(buffer.remaining());
            buffer.put_slice(data.get(..taken).unwrap_or_default());
            data.advance(taken);
            self.left = data;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TunnelReceiver {
    fn drop(&mut self) {
        if let Some(code) = self.stop_code {
            self.stream.stop(code);
        }
    }
}
