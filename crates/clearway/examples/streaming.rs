//! An endless response: the client prints each piece when it arrives, and the server notices
//! at once when the client stops reading.
//!
//! `cargo run --example streaming`

mod site;

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use clearway::http::BoxError;
use http_body::Frame;
use http_body_util::StreamBody;
use site::Site;
use tokio::sync::mpsc;

/// A body from a channel, written by a task that ends when the body is dropped.
fn ticks(gone: mpsc::UnboundedSender<u32>) -> Body {
    let (feed, pieces) = mpsc::channel::<Result<Frame<Bytes>, BoxError>>(1);
    tokio::spawn(async move {
        let mut tick = 0;
        loop {
            let piece = Frame::data(Bytes::from(format!("tick {tick}\n")));
            if feed.send(Ok(piece)).await.is_err() {
                let _ = gone.send(tick);
                return;
            }
            tick += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    Body::new(StreamBody::new(Pieces(pieces)))
}

/// The receiver of a channel as a stream.
struct Pieces<T>(mpsc::Receiver<T>);

impl<T> futures_core::Stream for Pieces<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (gone, mut hears) = mpsc::unbounded_channel();
    let router = Router::new().route("/ticks", get(move || async move { ticks(gone) }));
    let site = Site::open(router)?;

    let mut response = site.client.get(&format!("{}/ticks", site.url)).await?;
    for _ in 0..5 {
        let piece = response.body_mut().chunk().await?.ok_or("an early end")?;
        print!("{}", String::from_utf8_lossy(&piece));
    }
    // Dropping a body before its end asks the server to stop.
    drop(response);
    let ticks = hears.recv().await.ok_or("the server never heard")?;
    println!("the server stopped before tick {ticks}");

    site.close().await
}
