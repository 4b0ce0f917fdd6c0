//! An upload that is larger than the memory used: the server counts the bytes that arrive,
//! piece by piece, and flow control slows the client down to the pace of reading.
//!
//! `cargo run --example uploads`

mod site;

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::routing::put;
use bytes::Bytes;
use clearway::http::BoxError;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use site::Site;

const PIECES: u64 = 640;
const PIECE: usize = 100_000;

/// A body that is generated while it is sent: here the same piece again and again, in practice
/// a file or a camera.
struct Made {
    piece: Bytes,
    left: u64,
}

impl Body for Made {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Poll::Ready(None);
        };
        self.left = left;
        Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
    }

    /// Known, so that the request has a `content-length`.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left * self.piece.len() as u64)
    }
}

/// Reads an upload without ever holding more than a piece of it.
async fn count(request: Request) -> Result<String, String> {
    let announced = request.headers().get("content-length").cloned();
    let mut body = request.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(format!("{bytes} bytes of {announced:?}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let site = Site::open(Router::new().route("/", put(count)))?;
    let body = Made {
        piece: vec![7; PIECE].into(),
        left: PIECES,
    };
    let request = http::Request::put(&site.url).body(body)?;
    let mut response = site.client.request(request).await?;
    let answer = response.body_mut().text(1_000).await?;
    println!("the server got {answer}");
    assert!(answer.starts_with("64000000 bytes"));

    site.close().await
}
