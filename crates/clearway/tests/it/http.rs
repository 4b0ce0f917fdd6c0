//! HTTP/3 through the public API: a server and a client on loopback.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::common::{IDENTITY, LOOPBACK, pattern};
use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use bytes::Bytes;
use clearway::http::{Client, Code, Error, Incoming, Server};
use clearway::{ClientConfig, Connection, ServerConfig};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};

const LIMIT: usize = 100 << 20;

fn server_config() -> ServerConfig {
    ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem()).unwrap()
}

fn client() -> Client {
    Client::new(ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap()).unwrap()
}

/// A server of `router`, and the base of its URLs.
fn serve(router: Router) -> (Server, String) {
    start(Server::bind(LOOPBACK, server_config()).unwrap(), router)
}

fn start(server: Server, router: Router) -> (Server, String) {
    let url = format!("https://localhost:{}", server.local_addr().port());
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router).await });
    (server, url)
}

fn echo() -> Router {
    let echo = async |request: Request| Response::new(request.into_body());
    Router::new().route("/echo", post(echo))
}

#[tokio::test]
async fn get_and_head_return_200_and_404() {
    let (_server, url) = serve(Router::new().route("/hello", get(async || "hello")));
    let client = client();
    let mut found = client.get(&format!("{url}/hello")).await.unwrap();
    assert_eq!(found.status(), StatusCode::OK);
    assert_eq!(found.version(), http::Version::HTTP_3);
    assert_eq!(found.headers()["content-length"], "5");
    assert_eq!(found.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(found.body_mut().text(LIMIT).await.unwrap(), "hello");
    let mut missing = client.get(&format!("{url}/else?x=y")).await.unwrap();
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(missing.body_mut().bytes(LIMIT).await.unwrap().is_empty());
    let head = http::Request::head(format!("{url}/hello"));
    let head = head.body(Full::<Bytes>::default()).unwrap();
    let mut head = client.request(head).await.unwrap();
    assert_eq!(head.headers()["content-length"], "5");
    assert!(head.body_mut().bytes(LIMIT).await.unwrap().is_empty());
    // All requests used one connection.
    let connection = found.extensions().get::<Connection>().unwrap();
    assert_eq!(
        connection.id(),
        head.extensions().get::<Connection>().unwrap().id()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_with_trailers_stream_in_both_directions() {
    let (_server, url) = serve(echo());
    let content = pattern(1, 8 << 20);
    let mut pieces = content.chunks(100_000).map(Bytes::copy_from_slice);
    let mut trailers = Some(http::HeaderMap::new());
    trailers
        .as_mut()
        .unwrap()
        .insert("x-sum", "42".parse().unwrap());
    let pieces: Vec<Result<Frame<Bytes>, Infallible>> = std::iter::from_fn(|| pieces.next())
        .map(Frame::data)
        .chain(trailers.map(Frame::trailers))
        .map(Ok)
        .collect();
    let body = StreamBody::new(Pieces(pieces.into_iter()));
    let request = http::Request::post(format!("{url}/echo"))
        .body(body)
        .unwrap();
    let mut response = client().request(request).await.unwrap();
    let answer = response.body_mut().bytes(LIMIT).await.unwrap();
    assert!(answer == content);
    assert_eq!(response.body().trailers().unwrap()["x-sum"], "42");
}

/// An iterator as a stream that is always ready.
struct Pieces<I>(I);

impl<I: Iterator + Unpin> futures_core::Stream for Pieces<I> {
    type Item = I::Item;

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_concurrent_requests_share_one_connection() {
    let router = Router::new().route(
        "/{n}",
        get(async |axum::extract::Path(n): axum::extract::Path<u32>| (n * 2).to_string()),
    );
    let (_server, url) = serve(router);
    let client = client();
    let tasks: Vec<_> = (0..3_000_u32)
        .map(|n| {
            let (client, url) = (client.clone(), format!("{url}/{n}"));
            tokio::spawn(async move {
                let mut response = client.get(&url).await.unwrap();
                response.body_mut().text(100).await.unwrap()
            })
        })
        .collect();
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), (n * 2).to_string());
    }
    assert_eq!(client.endpoint().open_connections(), 1);
}

/// A body that fails after half of its announced length.
struct Broken(bool);

impl Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(if std::mem::replace(&mut self.0, true) {
            Err(std::io::Error::other("the disk is gone"))
        } else {
            Ok(Frame::data(Bytes::from_static(b"half")))
        }))
    }
}

#[tokio::test]
async fn failing_response_body_resets_the_stream() {
    let router = Router::new().route(
        "/",
        get(async || Response::new(axum::body::Body::new(Broken(false)))),
    );
    let (_server, url) = serve(router);
    // The reset may overtake data that was sent before.
    let broken = async {
        let mut response = client().get(&url).await?;
        while let Some(piece) = response.body_mut().chunk().await? {
            assert_eq!(piece, "half");
        }
        Ok::<_, Error>(())
    };
    let error = broken.await.expect_err("the body looks whole");
    assert!(
        matches!(error, Error::Reset(Code::INTERNAL_ERROR)),
        "{error}"
    );
}

#[tokio::test]
async fn panicking_handler_returns_500() {
    let panicking = async |_: Request| -> Response<axum::body::Body> { panic!("a bug") };
    let router = echo().route("/", get(panicking));
    let (_server, url) = serve(router);
    let client = client();
    assert_eq!(client.get(&url).await.unwrap().status(), 500);
    let request = http::Request::post(format!("{url}/echo")).body(Full::<Bytes>::from("alive"));
    let mut response = client.request(request.unwrap()).await.unwrap();
    assert_eq!(response.body_mut().text(LIMIT).await.unwrap(), "alive");
}

/// Notifies when it is dropped.
struct Tell(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn cancelled_request_drops_its_handler() {
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let router = Router::new().route(
        "/",
        get(move || {
            let told = told.clone();
            async move {
                told.send(()).unwrap();
                let _tell = Tell(told);
                poll_fn::<(), _>(|_| Poll::Pending).await;
            }
        }),
    );
    let (_server, url) = serve(router);
    let client = client();
    let asking = tokio::spawn(async move { client.get(&url).await.map(drop) });
    hears.recv().await.unwrap();
    asking.abort();
    hears.recv().await.unwrap();
}

#[tokio::test]
async fn dropped_response_body_stops_the_server() {
    let endless = async || {
        let piece = || {
            Some((
                Ok::<_, Infallible>(Frame::data(Bytes::from(vec![7; 9_000]))),
                (),
            ))
        };
        let endless = std::iter::from_fn(move || piece().map(|(frame, ())| frame));
        Response::new(axum::body::Body::new(StreamBody::new(Pieces(endless))))
    };
    let router = echo().route("/", get(endless));
    let (server, url) = serve(router);
    let client = client();
    let mut response = client.get(&url).await.unwrap();
    assert!(response.body_mut().chunk().await.unwrap().is_some());
    drop(response);
    // The server becomes idle once it has received the STOP_SENDING.
    server.shutdown(Duration::from_secs(20)).await;
    assert_eq!(server.endpoint().open_connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_finishes_running_requests_and_accepts_no_new_ones() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let router = Router::new().route(
        "/",
        get(move || {
            let mut gone = gone.clone();
            async move {
                gone.wait_for(|go| *go).await.unwrap();
                "at last".into_response()
            }
        }),
    );
    let (server, url) = serve(router);
    let client = client();
    let asking = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move {
            let mut response = client.get(&url).await.unwrap();
            response.body_mut().text(LIMIT).await.unwrap()
        }
    });
    while server.endpoint().open_connections() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let closing = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown(Duration::from_secs(20)).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let refused = tokio::time::timeout(Duration::from_secs(10), client.get(&url)).await;
    assert!(
        refused.unwrap().is_err(),
        "a closing server takes no requests"
    );
    go.send(true).unwrap();
    assert_eq!(asking.await.unwrap(), "at last");
    closing.await.unwrap();
}

#[tokio::test]
async fn handlers_run_on_two_shards() {
    let server = Server::builder(LOOPBACK, server_config())
        .shards(2)
        .build()
        .unwrap();
    let name = async || std::thread::current().name().map(str::to_owned).unwrap();
    let (_server, url) = start(server, Router::new().route("/", get(name)));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let mut response = client().get(&url).await.unwrap();
        seen.insert(response.body_mut().text(LIMIT).await.unwrap());
    }
    assert_eq!(Vec::from_iter(seen), ["clearway-0", "clearway-1"]);
}

#[tokio::test]
async fn handlers_run_on_the_caller_runtime_if_configured() {
    let server = Server::builder(LOOPBACK, server_config())
        .handlers_on_caller_runtime()
        .build()
        .unwrap();
    let name = async || std::thread::current().name().map(str::to_owned).unwrap();
    let (_server, url) = start(server, Router::new().route("/", get(name)));
    let mut response = client().get(&url).await.unwrap();
    let answered_on = response.body_mut().text(LIMIT).await.unwrap();
    assert_eq!(Some(answered_on.as_str()), std::thread::current().name());
}

#[tokio::test]
async fn oversized_upload_is_rejected_without_reading_it() {
    let refuse = async || StatusCode::PAYLOAD_TOO_LARGE;
    let (_server, url) = serve(Router::new().route("/", post(refuse)));
    let body = Full::<Bytes>::from(pattern(2, 20 << 20));
    let request = http::Request::post(&url).body(body).unwrap();
    let response = client().request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn invalid_urls_are_rejected_with_the_reason() {
    let client = client();
    for (url, why) in [
        ("http://localhost/", "the scheme must be https"),
        ("/a/path", "missing host (expected https://HOST/PATH)"),
        ("not a url", "not a valid URI"),
        (
            "https://no.such.host.invalid/",
            "cannot resolve no.such.host.invalid",
        ),
    ] {
        let error = client.get(url).await.unwrap_err().to_string();
        assert!(error.contains(why), "{url}: {error}");
    }
}

#[tokio::test]
async fn response_body_implements_http_body() {
    let (_server, url) = serve(echo());
    let request = http::Request::post(format!("{url}/echo")).body(Full::<Bytes>::from("abc"));
    let response = client().request(request.unwrap()).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(3));
    let body: Incoming = response.into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
}

#[tokio::test]
async fn requests_use_the_connection_made_by_connect() {
    let (_server, url) = serve(Router::new().route("/", get(async || "hello")));
    let client = client();
    let made = client.connect(&url.parse().unwrap()).await.unwrap();
    let response = client.get(&url).await.unwrap();
    let used = response.extensions().get::<Connection>().unwrap();
    assert_eq!(made.id(), used.id());
    let nowhere = client.connect(&"/path".parse().unwrap()).await;
    assert!(matches!(nowhere, Err(Error::Url(..))), "{nowhere:?}");
}
