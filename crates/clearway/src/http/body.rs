//! Bodies: those that arrive, and sending those that leave.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use clearway_http3::Code;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::error::{BoxError, Error};
use super::message;
use super::request_stream::{BodyPart, RequestStream};

/// The status that asks a client to send the body it has announced.
const CONTINUE: u16 = 100;

/// The body of a request or response that arrives, read as it comes: what is not
/// read is not sent either, once the stream's flow control window is full.
///
/// Dropped before its end, it asks the peer to stop. It is a [`Body`] as the
/// `http-body` crate has it, so axum and tower read it; the methods here are for
/// everybody else.
#[derive(Debug)]
pub struct Incoming {
    /// `None` at the end.
    stream: Option<RequestStream>,
    /// Bytes to come, if the peer said.
    left: Option<u64>,
    trailers: Option<HeaderMap>,
    /// What the peer is told if the rest is not wanted.
    stop_code: Code,
    /// The peer waits for 100 (Continue).
    send_continue: bool,
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
        }
    }

    /// The peer may wait to be told that its body is wanted, which it is when it is
    /// first asked for.
    pub(super) fn with_continue(mut self, send_continue: bool) -> Self {
        self.send_continue = send_continue;
        self
    }

    /// The next piece of the body as it arrived; `None` at the end.
    ///
    /// # Errors
    /// If the peer gives up, breaks the protocol, or the connection ends: what
    /// came before is **not** the whole body then.
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

    /// The whole body, if it has no more than `limit` bytes.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk), and if it is longer.
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
                // Most bodies are one piece.
                None if whole.is_empty() => return Ok(last),
                None => {
                    whole.extend_from_slice(&last);
                    return Ok(whole.freeze());
                }
                Some(next) => whole.extend_from_slice(&std::mem::replace(&mut last, next)),
            }
        }
    }

    /// The whole body as text, if it is UTF-8 and has no more than `limit` bytes.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and if it is not UTF-8.
    pub async fn text(&mut self, limit: usize) -> Result<String, Error> {
        let bytes = self.bytes(limit).await?;
        String::from_utf8(bytes.into()).map_err(|_| Error::NotText)
    }

    /// The trailers, after [`chunk`](Self::chunk), [`bytes`](Self::bytes) or
    /// [`text`](Self::text) came to the end; `None` if there are none.
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
        let Some(stream) = &self.stream else {
            return Poll::Ready(None);
        };
        let piece = match stream.poll_read(cx) {
            Poll::Pending => {
                // A peer that has begun to send needs no invitation, one that has
                // had the final response neither: refused then (RFC 9110 §10.1.1).
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
        if let Some(stream) = &self.stream {
            stream.stop(self.stop_code);
        }
    }
}

/// The next frame of any body, its error made ours.
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

/// The sending half of an exchange: dropped before the end it is reset, so that
/// half a message never looks whole.
#[derive(Debug)]
pub(super) struct BodySender {
    stream: RequestStream,
    /// What the peer is told then; `None` once there is nothing to tell.
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

    /// Everything was sent.
    pub(super) fn done(mut self) {
        self.reset_code = None;
    }

    /// The peer does not want it.
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
            // A body that takes its time is not waited for when nobody wants it.
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
