//! The demo server's content: at `/N`, N bytes of the pattern.

use core::convert::Infallible;
use core::future::{Ready, ready};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use clearway::Connection;
use clearway::http::Incoming;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tower_service::Service;

use crate::raw::pattern;

/// The service, and the connection of the last request: the sender's end.
#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    sender: Arc<OnceLock<Connection>>,
}

impl Site {
    /// The sender's end of the connection, once there is one.
    pub(super) fn sender(&self) -> Option<&Connection> {
        self.sender.get()
    }
}

impl Service<Request<Incoming>> for Site {
    type Response = Response<Content>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        if let Some(connection) = request.extensions().get::<Connection>() {
            // There is one request; a second would not matter.
            let _ = self.sender.set(connection.clone());
        }
        let size = request.uri().path().trim_start_matches('/').parse();
        let mut response = Response::new(Content::of(*size.as_ref().unwrap_or(&0)));
        if size.is_err() {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        ready(Ok(response))
    }
}

/// The given number of bytes of the pattern.
#[derive(Debug)]
pub(super) struct Content {
    offset: u64,
    size: u64,
}

impl Content {
    fn of(size: u64) -> Self {
        Self { offset: 0, size }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let chunk = pattern::chunk(self.offset, self.size - self.offset);
        self.offset += chunk.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.offset == self.size
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size - self.offset)
    }
}
