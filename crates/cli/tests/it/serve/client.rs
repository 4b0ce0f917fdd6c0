//! Clients of the server under test.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway::http::Client;
use clearway::{ClientConfig, TransportConfig};
use http::{HeaderMap, Method, Request};
use http_body::{Body, Frame};
use http_body_util::Full;

pub(crate) const LIMIT: usize = 100 << 20;

pub(crate) fn client() -> Client {
    Client::new(ClientConfig::dangerous_accept_any_certificate()).unwrap()
}

/// A client that allows its server to send nothing at all (`initial_max_data` 0).
pub(crate) fn client_that_takes_nothing() -> Client {
    let mut transport = TransportConfig::default();
    transport.streams.stream_window = 0;
    transport.streams.connection_window = 0;
    transport.streams.receive_budget = 0;
    let config = ClientConfig::dangerous_accept_any_certificate();
    Client::new(config.transport(transport)).unwrap()
}

pub(crate) fn request(
    method: Method,
    url: &str,
    fields: &[(&str, &str)],
) -> http::request::Builder {
    let mut builder = Request::builder().method(method).uri(url);
    for (name, value) in fields {
        builder = builder.header(*name, *value);
    }
    builder
}

/// Status, fields and body of what is answered.
pub(crate) async fn ask(
    client: &Client,
    method: Method,
    url: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> (u16, HeaderMap, Bytes) {
    let body = Full::new(Bytes::copy_from_slice(body));
    let request = request(method, url, fields).body(body).unwrap();
    let mut response = client.request(request).await.unwrap();
    let bytes = response.body_mut().bytes(LIMIT).await.unwrap();
    (
        response.status().as_u16(),
        response.headers().clone(),
        bytes,
    )
}

pub(crate) async fn get(
    client: &Client,
    url: &str,
    fields: &[(&str, &str)],
) -> (u16, HeaderMap, Bytes) {
    ask(client, Method::GET, url, fields, b"").await
}

/// A body of some bytes that then never continues.
pub(crate) struct StallingBody(pub(crate) Option<Bytes>);

impl Body for StallingBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}
