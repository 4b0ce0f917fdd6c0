//! The files that a server answers with, over HTTP/0.9 and HTTP/3.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use clearway::{
    Connection, RecvStream, SendStream,
    http::{self as http3, BoxError},
};
use contract::runner;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};

/// Longest request of HTTP/0.9 in bytes: names of 250 characters are tested.
const MAX_REQUEST: usize = 4096;

/// Application error code for a request that is invalid or names no file.
const NOT_FOUND: u64 = 1;

/// The directory of the files.
#[derive(Clone, Debug)]
pub(crate) struct Pages(Arc<Path>);

impl Pages {
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.into())
    }

    /// Reads the file at the path of a request; `None` if there is none, or the path leads out of
    /// the directory.
    fn read(&self, path: &str) -> Option<Bytes> {
        runner::page(&self.0, path).map(Bytes::from)
    }

    /// Serves the requests of an HTTP/0.9 connection until it ends.
    pub(crate) async fn serve_hq(self, connection: Connection) {
        while let Ok((send, receive)) = connection.accept_bi().await {
            let pages = self.clone();
            tokio::spawn(async move { pages.answer(send, receive).await });
        }
    }

    /// Answers `GET /path`, which ends with the stream or a line break.
    async fn answer(&self, mut send: SendStream, mut receive: RecvStream) {
        let request = receive.read_to_end(MAX_REQUEST).await.unwrap_or_default();
        let path = runner::requested_path(&request);
        // A failure to write means that the client has gone.
        let _ = match path.and_then(|path| self.read(path)) {
            Some(content) => match send.write_chunk(content).await {
                Ok(()) => send.finish(),
                Err(error) => Err(error),
            },
            None => send.reset(NOT_FOUND),
        };
    }
}

impl tower_service::Service<Request<http3::Incoming>> for Pages {
    type Response = Response<File>;
    type Error = Infallible;
    type Future = Ready<Result<Response<File>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<http3::Incoming>) -> Self::Future {
        let content = self.read(request.uri().path());
        let status = match content {
            Some(_) => StatusCode::OK,
            None => StatusCode::NOT_FOUND,
        };
        let mut response = Response::new(File(content));
        *response.status_mut() = status;
        ready(Ok(response))
    }
}

/// A response's body: a file's content, at once.
pub(crate) struct File(Option<Bytes>);

impl Body for File {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.take().map(|content| Ok(Frame::data(content))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}
