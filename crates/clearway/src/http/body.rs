//! Received bodies, and sending of bodies.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use clearway_http3::Code;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::error::{BoxError, Error};
use super::message;
use super::request_stream::{BodyPart, RequestStream};
use super::tunnel::TunnelOffer;

/// The status that tells a client to send the body it has announced.
const CONTINUE: u16 = 100;

/// The body of a received request or response, read as it arrives: when it is not read, the
/// peer has to stop sending once the stream's flow-control window is full.
///
/// Dropping it before its end asks the peer to stop sending. It implements [`Body`] of the
/// `http-body` crate, so that axum and tower can read it, and has methods to read it without
/// them.
#[derive(Debug)]
pub struct Incoming {
    /// `None` after the end.
    stream: Option<RequestStream>,
    /// Bytes to come, if the peer sent `content-length`.
    left: Option<u64>,
    trailers: Option<HeaderMap>,
    /// The error code for the peer if this is dropped before the end.
    stop_code: Code,
    /// The peer may wait for 100 (Continue).
    send_continue: bool,
    /// It is the half of a tunnel that may be accepted, and then has another reader.
    tunnel: Option<Arc<TunnelOffer>>,
}

impl Incoming {
    pub(super) fn new(stream: Option<RequestStream>, headers: &HeaderMap, stop_code: Code) -> Self {
        let length = headers.get(http::header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        Self {
            left: if stream.is_some() { length } else { Some(0) },
            stream,
            trailers: None,
            stop_code,
            send_continue: false,
            tunnel: None,
        }
    }

    /// Makes it the body of a request for a tunnel: dropping it does not stop the peer.
    pub(super) fn with_tunnel(mut self, tunnel: Option<Arc<TunnelOffer>>) -> Self {
        self.tunnel = tunnel;
        self
    }

    /// Sets whether the peer may wait for 100 (Continue), which is then sent when the body is
    /// first polled.
    pub(super) fn with_continue(mut self, send_continue: bool) -> Self {
        self.send_continue = send_continue;
        self
    }

    /// Returns the next piece of the body, or `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// If the peer resets the stream, violates the protocol, or the connection ends: then the
    /// pieces so far are **not** the whole body.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
            match frame.transpose()?.map(Frame::into_data) {
                None => return Ok(None),
                Some(Ok(data)) => return Ok(Some(data)),
                Some(Err(frame)) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// Reads the whole body, at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::TooLong`] if it is longer; otherwise as [`chunk`](Self::chunk).
    pub async fn bytes(&mut self, limit: usize) -> Result<Bytes, Error> {
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        let mut whole = BytesMut::new();
        let mut last = first;
        loop {
            if last.len() > limit.saturating_sub(whole.len()) {
                return Err(Error::TooLong(limit));
            }
            let next = self.chunk().await?;
            match next {
                // Most bodies arrive in one piece, which is not copied.
                None if whole.is_empty() => return Ok(last),
                None => {
                    whole.extend_from_slice(&last);
                    return Ok(whole.freeze());
                }
                Some(next) => whole.extend_from_slice(&std::mem::replace(&mut last, next)),
            }
        }
    }

    /// Reads the whole body as UTF-8 text, at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::NotText`] if it is not UTF-8; otherwise as [`bytes`](Self::bytes).
    pub async fn text(&mut self, limit: usize) -> Result<String, Error> {
        let bytes = self.bytes(limit).await?;
        String::from_utf8(bytes.into()).map_err(|_| Error::NotText)
    }

    /// Returns the trailers, if there are any, after [`chunk`](Self::chunk),
    /// [`bytes`](Self::bytes) or [`text`](Self::text) has reached the end of the body.
    #[must_use]
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.tunnel.as_ref().is_some_and(|it| it.is_accepted()) {
            self.stream = None;
        }
        let Some(stream) = &self.stream else {
            return Poll::Ready(None);
        };
        let piece = match stream.poll_read(cx) {
            Poll::Pending => {
                // After the final response this fails, and it is not needed any more
                // (RFC 9110 §10.1.1).
                if std::mem::take(&mut self.send_continue)
                    && let Some(stream) = &self.stream
                {
                    let _ = stream.inform(&clearway_http3::Response::new(CONTINUE));
                }
                return Poll::Pending;
            }
            Poll::Ready(piece) => piece,
        };
        self.send_continue = false;
        Poll::Ready(match piece {
            Ok(BodyPart::Data(data)) => {
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                Some(Ok(Frame::data(data)))
            }
            Ok(BodyPart::Last(data)) => {
                self.stream = None;
                self.left = Some(0);
                Some(Ok(Frame::data(data)))
            }
            Ok(BodyPart::Trailers(fields)) => match message::header_map(fields) {
                Ok(trailers) => Some(Ok(Frame::trailers(trailers))),
                Err(why) => {
                    self.stream = None;
                    let malformed = clearway_http3::StreamError::malformed(why);
                    Some(Err(Error::Malformed(malformed)))
                }
            },
            Ok(BodyPart::End) => {
                self.stream = None;
                self.left = Some(0);
                None
            }
            Err(error) => {
                self.stream = None;
                Some(Err(error))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream
            && self.tunnel.is_none()
        {
            stream.stop(self.stop_code);
        }
    }
}

/// Polls any body for its next frame, and converts its error.
pub(super) fn poll_frame<B>(
    body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<B::Data>, Error>>>
where
    B: Body<Error: Into<BoxError>>,
{
    let frame = body.poll_frame(cx);
    frame.map(|frame| frame.map(|frame| frame.map_err(Error::body)))
}

/// The sending half of an exchange. Dropping it before the end resets the stream, so that the
/// peer does not mistake half a message for a whole one.
#[derive(Debug)]
pub(super) struct BodySender {
    stream: RequestStream,
    /// The error code of that reset; `None` once everything was sent.
    reset_code: Option<Code>,
}

impl BodySender {
    pub(super) fn new(stream: RequestStream, reset_code: Code) -> Self {
        Self {
            stream,
            reset_code: Some(reset_code),
        }
    }

    pub(super) fn stream(&self) -> &RequestStream {
        &self.stream
    }

    /// Ends it without a reset, because everything was sent.
    pub(super) fn done(mut self) {
        self.reset_code = None;
    }

    /// Resets the stream because the peer has cancelled the exchange.
    pub(super) fn cancelled(mut self) {
        self.reset_code = Some(Code::REQUEST_CANCELLED);
    }

    /// Sends a body to its end.
    pub(super) async fn send<B>(self, body: B) -> Result<(), Error>
    where
        B: Body<Data: Into<Bytes>, Error: Into<BoxError>>,
    {
        let mut body = pin!(body);
        loop {
            // A slow body is not awaited when the peer does not want it any more.
            let frame = poll_fn(|cx| match poll_frame(body.as_mut(), cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => self.stream.poll_stopped(cx).map(Err),
            });
            let Some(frame) = frame.await? else {
                self.stream.finish()?;
                break;
            };
            match frame?.into_data() {
                Ok(data) => {
                    let data = data.into();
                    if !data.is_empty() {
                        self.stream.write(data).await?;
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.stream.trailers(&message::fields(trailers))?;
                        break;
                    }
                }
            }
        }
        self.done();
        Ok(())
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        if let Some(code) = self.reset_code {
            self.stream.reset(code);
        }
    }
}
