//! Asking it.

use bytes::Bytes;
use clearway::ClientConfig;
use clearway::http::Client;
use http::{HeaderMap, Method, Request};
use http_body_util::Full;

pub(crate) const LIMIT: usize = 100 << 20;

pub(crate) fn client() -> Client {
    Client::new(ClientConfig::dangerous_accept_any_certificate()).unwrap()
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
