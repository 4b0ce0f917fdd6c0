//! The handle of one exchange, shared by who reads and who writes.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway_http3::{Code, Field, Response, SendError};
use clearway_quic::stream::StreamId;

use super::error::Error;
use super::view::{BodyPart, HttpView, ResponsePart};
use crate::connection::{ConnectionRef, OnLost};

/// One exchange. When the last clone is gone, nobody cares for it any more.
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
        self.shared.http(|view| view.layer.forget(id));
    }
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a path is not general over the lifetime of the view"
)]
impl RequestStream {
    /// The exchange `id`, which the layer knows already.
    pub(super) fn new(shared: ConnectionRef, id: StreamId) -> Self {
        Self(Arc::new(Inner { shared, id }))
    }

    fn call<R: OnLost>(&self, act: impl FnOnce(&mut HttpView<'_>, StreamId) -> R) -> R {
        let Inner { shared, id } = &*self.0;
        shared.http(|view| act(view, *id))
    }

    pub(super) fn poll_read(&self, cx: &Context<'_>) -> Poll<Result<BodyPart, Error>> {
        ready(self.call(|view, id| view.read(id, cx.waker())))
    }

    /// The next interim response, or the final one.
    pub(super) async fn next_response(&self) -> Result<ResponsePart, Error> {
        poll_fn(|cx| ready(self.call(|view, id| view.next_response(id, cx.waker())))).await
    }

    /// A handle that does not count.
    pub(super) fn downgrade(&self) -> WeakRequestStream {
        WeakRequestStream(Arc::downgrade(&self.0))
    }

    pub(super) fn inform(&self, head: &Response) -> Result<(), Error> {
        self.call(|view, id| view.inform(id, head))
    }

    /// Looks at the exchange, or leaves a waker; changes nothing that would have to be
    /// sent. `None`: the connection does not speak HTTP/3, a defect of ours.
    fn look<R>(&self, act: impl FnOnce(&mut HttpView<'_>, StreamId) -> R) -> Option<R>
    where
        Option<R>: OnLost,
    {
        let Inner { shared, id } = &*self.0;
        shared.call(|state| state.http_view().map(|mut view| act(&mut view, *id)))
    }

    /// Whether the peer has given up on the exchange.
    pub(super) fn is_cancelled(&self) -> bool {
        let wanted = self.look(|view, id| view.check_wanted(id));
        !matches!(wanted, Some(Ok(())))
    }

    /// Waits until the peer has given up on the exchange.
    pub(super) fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        match self.look(|view, id| view.poll_cancelled(id, cx.waker())) {
            Some(Ok(())) => Poll::Pending,
            Some(Err(_)) | None => Poll::Ready(()),
        }
    }

    /// Waits until nobody wants what we send any more, and says why.
    pub(super) fn poll_unwanted(&self, cx: &Context<'_>) -> Poll<Error> {
        match self.look(|view, id| view.poll_unwanted(id, cx.waker())) {
            Some(Ok(())) => Poll::Pending,
            Some(Err(error)) => Poll::Ready(error),
            None => Poll::Ready(Error::Unsendable(SendError::Unknown)),
        }
    }

    pub(super) fn respond(&self, head: &Response, end: bool) -> Result<(), Error> {
        self.call(|view, id| view.respond(id, head, end))
    }

    pub(super) fn respond_with(&self, head: &Response, body: Bytes) -> Result<(), Error> {
        self.call(|view, id| view.respond_with(id, head, body))
    }

    /// Sends a piece, waiting for room.
    pub(super) async fn write(&self, mut data: Bytes) -> Result<(), Error> {
        poll_fn(|cx| ready(self.call(|view, id| view.write(id, &mut data, cx.waker())))).await
    }

    pub(super) fn trailers(&self, fields: &[Field]) -> Result<(), Error> {
        self.call(|view, id| view.trailers(id, fields))
    }

    pub(super) fn finish(&self) -> Result<(), Error> {
        self.call(|view, id| view.finish(id))
    }

    pub(super) fn reset(&self, code: Code) {
        self.call(|view, id| view.reset(id, code));
    }

    pub(super) fn stop(&self, code: Code) {
        self.call(|view, id| view.stop(id, code));
    }

    pub(super) fn cancel(&self) {
        self.call(|view, id| view.cancel(id));
    }
}

/// An exchange for whoever does not care how long it lasts.
#[derive(Clone, Debug)]
pub(super) struct WeakRequestStream(Weak<Inner>);

impl WeakRequestStream {
    /// # Errors
    /// If it cannot be sent, or nobody holds the exchange any more.
    pub(super) fn inform(&self, head: &Response) -> Result<(), Error> {
        match self.0.upgrade() {
            Some(inner) => RequestStream(inner).inform(head),
            None => Err(Error::Unsendable(SendError::Unknown)),
        }
    }
}

fn ready<T>(value: Option<T>) -> Poll<T> {
    value.map_or(Poll::Pending, Poll::Ready)
}
