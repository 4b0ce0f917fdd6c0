//! Trailers: fields after the body, here a checksum that is known only when all of the body was
//! sent. A body that fails resets the stream, so it is not mistaken for a whole one.
//!
//! `cargo run --example trailers`

mod site;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Frame;
use site::Site;

/// Adler-32 (RFC 1950 §8.2).
fn checksum(sum: u32, data: &[u8]) -> u32 {
    let (a, b) = data
        .iter()
        .fold((sum & 0xffff, sum >> 16), |(a, b), &byte| {
            let a = (a + u32::from(byte)) % 65_521;
            (a, (b + a) % 65_521)
        });
    b << 16 | a
}

/// Pieces, then the checksum over them.
struct Summed {
    pieces: VecDeque<Bytes>,
    sum: Option<u32>,
}

impl http_body::Body for Summed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(piece) = self.pieces.pop_front() {
            self.sum = self.sum.map(|sum| checksum(sum, &piece));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let trailers = self.sum.take().map(|sum| {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-checksum", sum.into());
            Ok(Frame::trailers(trailers))
        });
        Poll::Ready(trailers)
    }
}

async fn summed() -> Response<Body> {
    let body = Summed {
        pieces: (0..100).map(|n| vec![n; 10_000].into()).collect(),
        sum: Some(1),
    };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    // Announces the trailer, so that the recipient can prepare (RFC 9110 §6.6.2).
    headers.insert("trailer", http::HeaderValue::from_static("x-checksum"));
    response
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let site = Site::open(Router::new().route("/", get(summed)))?;
    let mut response = site.client.get(&site.url).await?;
    let mut sum = 1;
    while let Some(piece) = response.body_mut().chunk().await? {
        sum = checksum(sum, &piece);
    }
    let trailers = response.body().trailers().ok_or("no trailers")?;
    println!(
        "we have {sum}, the server says {:?}",
        trailers["x-checksum"]
    );
    assert_eq!(trailers["x-checksum"], sum.to_string().as_str());

    site.close().await
}
