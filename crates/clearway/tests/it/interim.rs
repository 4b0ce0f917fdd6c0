//! Interim responses: early hints from handlers, and 100 (Continue).
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::common::{IDENTITY, LOOPBACK};
use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use clearway::ClientConfig;
use clearway::ServerConfig;
use clearway::http::{Client, Error, Interim, InterimSender, OnInterim, Server};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty};
use tokio::sync::oneshot;

fn client() -> Client {
    Client::new(ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap()).unwrap()
}

fn serve(router: Router) -> (Server, String) {
    let (chain, key) = (IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let config = ServerConfig::with_identity(chain, key).unwrap();
    let server = Server::bind(LOOPBACK, config).unwrap();
    let url = format!("https://localhost:{}/", server.local_addr().port());
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router).await });
    (server, url)
}

fn interim(status: u16, link: &str) -> Response<()> {
    let response = Response::builder().status(status).header("link", link);
    response.body(()).unwrap()
}

/// A value for the one call that takes it.
fn once<T>(value: T) -> Arc<Mutex<Option<T>>> {
    Arc::new(Mutex::new(Some(value)))
}

fn take<T>(once: &Mutex<Option<T>>) -> Option<T> {
    once.lock().unwrap().take()
}

#[tokio::test]
async fn early_hints_arrive_before_the_response() {
    let (heard, hears) = oneshot::channel::<()>();
    let (heard, hears) = (once(heard), once(hears));
    let (_server, url) = serve(Router::new().fallback(async move |request: Request| {
        let sender = request.extensions().get::<InterimSender>().unwrap().clone();
        sender.send(interim(103, "</a>")).unwrap();
        sender.send(interim(103, "</b>")).unwrap();
        for wrong in [101, 200] {
            let error = sender.send(interim(wrong, "</c>")).unwrap_err();
            assert!(matches!(error, Error::Unsendable(_)), "{wrong}: {error}");
        }
        // The response waits until the client has received both.
        take(&hears).unwrap().await.unwrap();
        "final"
    }));
    let links = Arc::new(Mutex::new(Vec::new()));
    let seen = links.clone();
    let mut request = http::Request::get(url).body(Empty::<Bytes>::new()).unwrap();
    let hook = OnInterim::new(move |interim| {
        assert_eq!(interim.status().as_u16(), 103);
        let mut links = links.lock().unwrap();
        links.push(interim.headers()["link"].clone());
        if links.len() == 2 {
            take(&heard).unwrap().send(()).unwrap();
        }
    });
    request.extensions_mut().insert(hook);
    let mut response = client().request(request).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["</a>", "</b>"]);
    let all = response.extensions().get::<Interim>().unwrap();
    assert_eq!(all.responses().len(), 2);
    assert_eq!(response.body_mut().text(10).await.unwrap(), "final");
}

#[tokio::test]
async fn interim_response_after_the_final_one_is_rejected() {
    let (give, given) = oneshot::channel::<InterimSender>();
    let give = once(give);
    let (_server, url) = serve(Router::new().fallback(async move |request: Request| {
        let sender = request.extensions().get::<InterimSender>().unwrap();
        take(&give).unwrap().send(sender.clone()).unwrap();
    }));
    let mut response = client().get(&url).await.unwrap();
    response.body_mut().bytes(10).await.unwrap();
    assert!(response.extensions().get::<Interim>().is_none());
    let error = given.await.unwrap().send(interim(103, "</a>")).unwrap_err();
    assert!(matches!(error, Error::Unsendable(_)), "{error}");
}

/// A body that records whether it was polled.
struct Watched {
    asked: Arc<AtomicBool>,
    content: Option<Bytes>,
}

impl Watched {
    fn new() -> (Self, Arc<AtomicBool>) {
        let asked = Arc::new(AtomicBool::new(false));
        let content = Some(Bytes::from_static(b"content"));
        let body = Self {
            asked: asked.clone(),
            content,
        };
        (body, asked)
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.asked.store(true, Ordering::SeqCst);
        Poll::Ready(self.content.take().map(|content| Ok(Frame::data(content))))
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.content.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(length as u64)
    }
}

fn expecting(url: &str, body: Watched) -> http::Request<Watched> {
    let request = http::Request::post(url).header("expect", "100-continue");
    request.body(body).unwrap()
}

/// RFC 9110 §10.1.1: 100 (Continue) is sent when the handler reads the body.
#[tokio::test]
async fn body_with_expect_continue_is_sent_when_the_handler_reads_it() {
    let (body, asked) = Watched::new();
    let before = asked.clone();
    let (_server, url) = serve(Router::new().fallback(async move |request: Request| {
        assert!(!before.load(Ordering::SeqCst), "sent unasked");
        let content = request.into_body().collect().await.unwrap();
        Response::new(axum::body::Body::from(content.to_bytes()))
    }));
    let mut response = client().request(expecting(&url, body)).await.unwrap();
    let interim = response.extensions().get::<Interim>().unwrap();
    let statuses: Vec<_> = interim.responses().iter().map(Response::status).collect();
    assert_eq!(statuses, [StatusCode::CONTINUE]);
    assert_eq!(response.body_mut().text(10).await.unwrap(), "content");
    assert!(asked.load(Ordering::SeqCst));
}

#[tokio::test]
async fn body_with_expect_continue_is_not_sent_after_an_error_status() {
    let (body, asked) = Watched::new();
    let (_server, url) = serve(
        Router::new().fallback(async |_: Request| (StatusCode::FORBIDDEN, "no").into_response()),
    );
    let mut response = client().request(expecting(&url, body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(response.extensions().get::<Interim>().is_none());
    assert_eq!(response.body_mut().text(10).await.unwrap(), "no");
    assert!(!asked.load(Ordering::SeqCst));
}

/// The client does not wait, so no 100 (Continue) is sent.
#[tokio::test]
async fn body_that_does_not_wait_for_100_gets_no_100() {
    let (body, asked) = Watched::new();
    let (_server, url) = serve(Router::new().fallback(async |request: Request| {
        let content = request.into_body().collect().await.unwrap();
        Response::new(axum::body::Body::from(content.to_bytes()))
    }));
    let request = http::Request::post(&url).body(body).unwrap();
    let mut response = client().request(request).await.unwrap();
    assert!(response.extensions().get::<Interim>().is_none());
    assert_eq!(response.body_mut().text(10).await.unwrap(), "content");
    assert!(asked.load(Ordering::SeqCst));
}
