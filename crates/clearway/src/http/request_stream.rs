//! The handle of one exchange (a request and its response), shared by reader and writer.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use clearway_http3 as h3;
use clearway_http3::{Code, Field, Response, SendError};
use clearway_quic::connection as quic;
use clearway_quic::stream::StreamId;

use super::error::Error;
use super::view::{HttpView, store};
use crate::connection::{ConnectionRef, OnLost, Signal, State};

/// One exchange. The connection forgets its state when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct RequestStream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: ConnectionRef,
    id: StreamId,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let id = self.id;
        self.shared.look_at_http(|view| view.layer.forget(id));
    }
}

/// What a client receives in response to a request.
pub(super) enum ResponsePart {
    /// An interim response (1xx).
    Interim(Response),
    /// The final response, and whether it has no body.
    Final(Response, bool),
}

/// What a read of the peer's body returned.
pub(super) enum BodyPart {
    Data(Bytes),
    /// Data with which the body ends.
    Last(Bytes),
    Trailers(Vec<Field>),
    End,
}

impl RequestStream {
    /// Returns a handle of the exchange `id`, which the HTTP layer knows already.
    pub(super) fn new(shared: ConnectionRef, id: StreamId) -> Self {
        Self(Arc::new(Inner { shared, id }))
    }

    /// Returns a handle that does not keep the exchange.
    pub(super) fn downgrade(&self) -> WeakRequestStream {
        WeakRequestStream(Arc::downgrade(&self.0))
    }

    /// Returns the connection.
    pub(super) fn id(&self) -> StreamId {
        self.0.id
    }

    /// Returns the connection.
    pub(super) fn connection(&self) -> &ConnectionRef {
        &self.0.shared
    }

    /// Works on the exchange under the connection's lock, then has the shard send what
    /// came of it.
    pub(super) fn call<R: OnLost>(&self, act: impl FnOnce(&mut HttpView<'_>, StreamId) -> R) -> R {
        let Inner { shared, id } = &*self.0;
        shared.http(|view| act(view, *id))
    }

    /// Does the same as soon as `act` returns a value; it is called again after each `signal`.
    pub(super) async fn call_when<T: OnLost>(
        &self,
        signal: Signal,
        mut act: impl FnMut(&mut HttpView<'_>, StreamId) -> Option<T>,
    ) -> T {
        let Inner { shared, id } = &*self.0;
        shared.http_when(signal, |view| act(view, *id)).await
    }

    /// Waits until the handshake is complete, after which nothing that arrived is a replay.
    pub(super) async fn handshake_complete(&self) -> Result<(), Error> {
        let attempt = |state: &mut State| match state.error.as_deref() {
            Some(error) => Some(Err(Error::from(error.clone()))),
            None => state.connected.then_some(Ok(())),
        };
        self.0.shared.wait_for(Signal::Connected, attempt).await
    }

    /// Sends something in one call of HTTP/3.
    fn send(
        &self,
        act: impl FnOnce(&mut h3::Connection, &mut quic::Connection, StreamId) -> Result<(), SendError>,
    ) -> Result<(), Error> {
        self.call(|view, id| {
            let result = act(&mut view.layer.h3, view.quic, id);
            view.send_result(result)
        })
    }

    /// Looks at the exchange, stores a waker or takes what has arrived; changes nothing that would
    /// have to be sent.
    pub(super) fn look<R: OnLost>(&self, act: impl FnOnce(&mut HttpView<'_>, StreamId) -> R) -> R {
        let Inner { shared, id } = &*self.0;
        shared.look_at_http(|view| act(view, *id))
    }

    /// Waits for the next interim response, or the final one (client).
    pub(super) async fn next_response(&self) -> Result<ResponsePart, Error> {
        poll_fn(|cx| self.poll_response(cx)).await
    }

    fn poll_response(&self, cx: &Context<'_>) -> Poll<Result<ResponsePart, Error>> {
        self.look(|view, id| {
            let cause = view.cause();
            let Some(exchange) = view.layer.exchange_mut(id) else {
                return Poll::Ready(Err(view.closed()));
            };
            if let Some(response) = exchange.informational.pop_front() {
                return Poll::Ready(Ok(ResponsePart::Interim(response)));
            }
            if let Some((response, end)) = exchange.response.take() {
                return Poll::Ready(Ok(ResponsePart::Final(response, end)));
            }
            if let Some(failure) = exchange.failure {
                return Poll::Ready(Err(failure.into()));
            }
            if let Some(cause) = cause {
                return Poll::Ready(Err(cause));
            }
            store(&mut exchange.reader, cx.waker());
            Poll::Pending
        })
    }

    /// Reads the next part of the peer's body.
    pub(super) fn poll_read(&self, cx: &Context<'_>) -> Poll<Result<BodyPart, Error>> {
        use clearway_http3::{Body, BodyError};
        self.call(|view, id| {
            Poll::Ready(match view.layer.h3.read_body(view.quic, id) {
                Ok(Body::Data(data)) if view.layer.h3.take_end(view.quic, id) => {
                    Ok(BodyPart::Last(data))
                }
                Ok(Body::Data(data)) => Ok(BodyPart::Data(data)),
                Ok(Body::Trailers(fields)) => Ok(BodyPart::Trailers(fields)),
                Ok(Body::End) => Ok(BodyPart::End),
                Ok(Body::Blocked) => match view.cause() {
                    Some(cause) => Err(cause),
                    None => {
                        let exchange = view.layer.requests().exchanges.entry(id).or_default();
                        store(&mut exchange.reader, cx.waker());
                        return Poll::Pending;
                    }
                },
                Err(BodyError::Reset(code)) => Err(Error::Reset(code)),
                Err(BodyError::Failed(error)) => Err(Error::Malformed(error)),
                Err(BodyError::Unknown | BodyError::Closed) => {
                    let exchange = view.layer.exchange(id);
                    let failure = exchange.and_then(|exchange| exchange.failure);
                    Err(failure.map_or_else(|| view.closed(), Error::from))
                }
            })
        })
    }

    /// Sends a piece of a body, waiting until the stream takes it.
    pub(super) async fn write(&self, mut data: Bytes) -> Result<(), Error> {
        poll_fn(|cx| self.poll_write(&mut data, cx)).await
    }

    pub(super) fn poll_write(&self, data: &mut Bytes, cx: &Context<'_>) -> Poll<Result<(), Error>> {
        self.call(|view, id| {
            if let Some(cause) = view.cause() {
                return Poll::Ready(Err(cause));
            }
            match view.layer.h3.write_body(view.quic, id, data) {
                Err(SendError::Blocked) => {
                    let exchange = view.layer.requests().exchanges.entry(id).or_default();
                    store(&mut exchange.writer, cx.waker());
                    Poll::Pending
                }
                // The peer may have stopped the stream.
                Err(SendError::Unknown) => Poll::Ready(
                    view.check_response_wanted(id)
                        .and(Err(Error::Unsendable(SendError::Unknown))),
                ),
                result => Poll::Ready(view.send_result(result)),
            }
        })
    }

    /// Sends a piece of a body if the stream takes it now. Returns whether it has.
    pub(super) fn try_write(&self, mut data: Bytes) -> Result<bool, Error> {
        let noop = &mut Context::from_waker(Waker::noop());
        match self.poll_write(&mut data, noop) {
            Poll::Ready(sent) => sent.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Whether the peer has given up on the exchange.
    pub(super) fn is_cancelled(&self) -> bool {
        self.look(|view, id| view.check_wanted(id)).is_err()
    }

    /// Waits until the peer gives up on the exchange.
    pub(super) fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        let wanted = self.look(|view, id| {
            view.check_wanted(id)?;
            view.store_writer(id, cx.waker());
            Ok::<(), Error>(())
        });
        match wanted {
            Ok(()) => Poll::Pending,
            Err(_) => Poll::Ready(()),
        }
    }

    /// Waits until the peer does not want what we send any more, and returns why. A peer
    /// that reset what it was sending may still read.
    pub(super) fn poll_stopped(&self, cx: &Context<'_>) -> Poll<Error> {
        let wanted = self.look(|view, id| {
            view.check_response_wanted(id)?;
            view.store_writer(id, cx.waker());
            Ok(())
        });
        match wanted {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }

    /// Sends an interim response (1xx).
    pub(super) fn inform(&self, head: &Response) -> Result<(), Error> {
        self.send(|h3, quic, id| h3.send_informational(quic, id, head))
    }

    /// Begins the final response; with `end` it has no body.
    pub(super) fn respond(&self, head: &Response, end: bool) -> Result<(), Error> {
        self.send(|h3, quic, id| h3.respond(quic, id, head, end))
    }

    /// Sends a whole response.
    pub(super) fn respond_with(&self, head: &Response, body: Bytes) -> Result<(), Error> {
        self.send(|h3, quic, id| h3.respond_with_body(quic, id, head, body))
    }

    /// Sends trailers and the end of the stream.
    pub(super) fn trailers(&self, fields: &[Field]) -> Result<(), Error> {
        self.send(|h3, quic, id| h3.send_trailers(quic, id, fields))
    }

    /// Sends the end of the stream.
    pub(super) fn finish(&self) -> Result<(), Error> {
        self.send(h3::Connection::finish)
    }

    /// Abandons what we send.
    pub(super) fn reset(&self, code: Code) {
        self.call(|view, id| view.layer.h3.reset(view.quic, id, code));
    }

    /// Asks the peer to stop sending.
    pub(super) fn stop(&self, code: Code) {
        self.call(|view, id| view.layer.h3.stop(view.quic, id, code));
    }

    /// Abandons both directions.
    pub(super) fn cancel(&self) {
        self.call(|view, id| view.layer.h3.cancel(view.quic, id));
    }
}

/// A handle that does not keep the exchange.
#[derive(Clone, Debug)]
pub(super) struct WeakRequestStream(Weak<Inner>);

impl WeakRequestStream {
    /// Returns the exchange, or `None` if no other handle of it is left.
    pub(super) fn upgrade(&self) -> Option<RequestStream> {
        self.0.upgrade().map(RequestStream)
    }
}
