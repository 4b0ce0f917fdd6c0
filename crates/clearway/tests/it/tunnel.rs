//! CONNECT, and services that are not `Sync`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway::http::{Client, Error, Incoming, Server};
use clearway::{ClientConfig, ServerConfig};
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use tokio::sync::mpsc::{Receiver, channel};

use crate::common::{IDENTITY, LOOPBACK};

pub(crate) type Answer = Response<BoxBody<Bytes, Error>>;

/// A body of what is received, of unknown length.
struct Pieces(Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

pub(crate) fn whole(text: &'static str) -> BoxBody<Bytes, Error> {
    Full::from(text).map_err(|never| match never {}).boxed()
}

/// A service that may be sent to another thread and not shared between threads.
#[derive(Clone)]
struct NotSync {
    answered: Cell<u32>,
    respond: fn(Request<Incoming>) -> Answer,
}

impl tower_service::Service<Request<Incoming>> for NotSync {
    type Response = Answer;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        self.answered.set(self.answered.get() + 1);
        std::future::ready(Ok((self.respond)(request)))
    }
}

/// A server of this service, as its authority.
pub(crate) fn serve(respond: fn(Request<Incoming>) -> Answer) -> (Server, String) {
    let identity = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let server = Server::bind(LOOPBACK, identity.unwrap()).unwrap();
    let authority = format!("localhost:{}", server.local_addr().port());
    let serving = server.clone();
    let service = NotSync {
        answered: Cell::new(0),
        respond,
    };
    tokio::spawn(async move { serving.serve(service).await });
    (server, authority)
}

fn client() -> Client {
    Client::new(ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap()).unwrap()
}

#[tokio::test]
async fn service_that_is_not_sync_is_served() {
    let (_server, authority) = serve(|_| Response::new(whole("fine")));
    let mut response = client()
        .get(&format!("https://{authority}/"))
        .await
        .unwrap();
    assert_eq!(response.body_mut().text(10).await.unwrap(), "fine");
}

/// Sends what arrives back, through a body that says nothing about its length, or too much.
fn echo(request: Request<Incoming>) -> Answer {
    assert!(!request.headers().contains_key("content-length"));
    assert_eq!(request.body().size_hint().exact(), None);
    let announced = request.headers().contains_key("x-announce");
    let mut response = Response::new(request.into_body().boxed());
    if announced {
        let zero = http::HeaderValue::from_static("0");
        response.headers_mut().insert("content-length", zero);
    }
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successful_connect_response_has_no_length_and_stays_open() {
    let (_server, authority) = serve(echo);
    for field in ["x-plain", "x-announce"] {
        let (send, pieces) = channel(1);
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(&authority)
            .header(field, "yes")
            .header("content-length", "5")
            .body(Pieces(pieces))
            .unwrap();
        let mut response = client().request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(
            !response.headers().contains_key("content-length"),
            "{field}"
        );
        assert!(!response.body().is_end_stream());
        for word in ["one", "another", "a third"] {
            send.send(Bytes::from(word)).await.unwrap();
            assert_eq!(response.body_mut().chunk().await.unwrap().unwrap(), word);
        }
        drop(send);
        assert_eq!(response.body_mut().chunk().await.unwrap(), None);
    }
}

#[tokio::test]
async fn connect_that_is_answered_without_a_body_has_no_length() {
    let (_server, authority) = serve(|_| Response::new(whole("")));
    let request = Request::builder().method(Method::CONNECT).uri(&authority);
    let response = client()
        .request(request.body(Empty::<Bytes>::new()).unwrap())
        .await;
    assert!(!response.unwrap().headers().contains_key("content-length"));
}

#[tokio::test]
async fn refused_connect_has_a_length() {
    let (_server, authority) = serve(|_| {
        let refusal = Response::builder().status(403);
        refusal.body(whole("no")).unwrap()
    });
    let request = Request::builder().method(Method::CONNECT).uri(&authority);
    let response = client()
        .request(request.body(Empty::<Bytes>::new()).unwrap())
        .await;
    let mut response = response.unwrap();
    assert_eq!(response.headers()["content-length"], "2");
    assert_eq!(response.body_mut().text(10).await.unwrap(), "no");
}
