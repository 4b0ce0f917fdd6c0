//! What a client that is closed still delivers: what its application has ended.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use axum::extract::Request;
use axum::response::IntoResponse as _;
use axum::routing::any;
use axum::{Extension, Router};
use bytes::Bytes;
use clearway::http::webtransport::{AllowedOrigins, SessionError, SessionRequest};
use clearway::http::{Client, Error, Protocol, Server, Tunnel};
use clearway::{ClientConfig, ServerConfig};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc;

use crate::common::{IDENTITY, LOOPBACK, pattern};

/// How often a test is repeated: the outcome must not depend on which of two threads is faster.
const ROUNDS: u64 = 20;

fn serve(router: Router) -> (Server, String) {
    let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let server = Server::builder(LOOPBACK, config.unwrap()).webtransport(8);
    let server = server.build().unwrap();
    let url = format!("https://localhost:{}/", server.local_addr().port());
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router).await });
    (server, url)
}

fn client() -> Client {
    let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
    Client::new(config).unwrap()
}

fn request(url: &str) -> http::Request<()> {
    http::Request::get(url).body(()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_of_a_session_arrives_with_its_code_and_reason() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let handle = async move |request: Request| {
        let asked = SessionRequest::of(&request, &AllowedOrigins::SameHost).unwrap();
        let session = asked.accept().await.unwrap();
        tell.send(session.closed().await).unwrap();
        StatusCode::OK
    };
    let (_server, url) = serve(Router::new().route("/", any(handle)));
    for _ in 0..ROUNDS {
        let client = client();
        let (session, _) = client.webtransport(request(&url)).await.unwrap();
        session.close(4_711, "enough");
        client.close().await;
        match told.recv().await.unwrap() {
            SessionError::Closed {
                code: 4_711,
                reason,
            } => assert_eq!(reason, "enough"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_that_was_finished_arrives_whole() {
    const LEN: usize = 300_000;
    let (tell, mut told) = mpsc::unbounded_channel();
    let handle = async move |Extension(tunnel): Extension<Tunnel>| {
        let (_tx, mut rx, mut datagrams) = tunnel.accept(Response::new(())).await.unwrap();
        let mut received = Vec::new();
        while let Some(data) = rx.chunk().await.unwrap() {
            received.extend_from_slice(&data);
        }
        let datagram = datagrams.recv().await;
        tell.send((received, datagram.ok().flatten())).unwrap();
        StatusCode::OK
    };
    let (_server, url) = serve(Router::new().route("/", any(handle)));
    let mut datagrams_received = 0;
    for round in 0..ROUNDS {
        let client = client();
        let mut request = request(&url);
        request.extensions_mut().insert(Protocol::new("test"));
        let (mut tx, _rx, datagrams) = client.tunnel(request).await.unwrap().into_parts();
        let data = pattern(round, LEN);
        tx.send(Bytes::from(data.clone())).await.unwrap();
        datagrams.send(b"last").unwrap();
        tx.finish().unwrap();
        client.close().await;
        let (received, datagram) = told.recv().await.unwrap();
        assert!(received == data, "round {round}: {}", received.len());
        if let Some(datagram) = datagram {
            assert_eq!(datagram, &b"last"[..]);
            datagrams_received += 1;
        }
    }
    // On a busy machine a socket's buffer overflows now and then, and datagrams are not repeated.
    assert!(
        datagrams_received > ROUNDS / 2,
        "{datagrams_received} of {ROUNDS} datagrams"
    );
}

/// What has no end is not waited for, and does not look whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_that_was_not_finished_is_cut_off() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let handle = async move |Extension(tunnel): Extension<Tunnel>| {
        let (_tx, mut rx, _) = tunnel.accept(Response::new(())).await.unwrap();
        let end = loop {
            match rx.chunk().await {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        tell.send(end).unwrap();
        StatusCode::OK
    };
    let (_server, url) = serve(Router::new().route("/", any(handle)));
    let client = client();
    let mut request = request(&url);
    request.extensions_mut().insert(Protocol::new("test"));
    let (mut tx, _rx, _datagrams) = client.tunnel(request).await.unwrap().into_parts();
    tx.send(Bytes::from_static(b"begun")).await.unwrap();
    client.close().await;
    let end = told.recv().await.unwrap();
    assert!(matches!(end, Err(Error::ConnectionLost(_))), "{end:?}");
}

/// The body is delivered although nobody waits for the response, which never comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_body_arrives_whole_and_its_response_is_not_waited_for() {
    const LEN: usize = 100_000;
    let (tell, mut told) = mpsc::unbounded_channel();
    let handle = async move |request: Request| {
        let body = request.into_body().collect().await;
        tell.send(body.map(http_body_util::Collected::to_bytes).ok())
            .unwrap();
        std::future::pending::<()>().await;
        StatusCode::OK.into_response()
    };
    let (_server, url) = serve(Router::new().route("/", any(handle)));
    let client = client();
    client.connect(&url.parse().unwrap()).await.unwrap();
    let body = Bytes::from(pattern(1, LEN));
    let request = http::Request::post(&url).body(Full::new(body.clone()));
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.request(request.unwrap()).await.map(|_| ()) }
    });
    assert_eq!(told.recv().await.unwrap(), Some(body));
    client.close().await;
    let answer = asking.await.unwrap();
    assert!(
        matches!(answer, Err(Error::ConnectionLost(_))),
        "{answer:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_client_makes_no_requests_while_it_lingers() {
    let (_server, url) = serve(Router::new().route("/", any(async || "hello")));
    let client = client();
    client.get(&url).await.unwrap();
    let closing = client.clone();
    let mut closing = std::pin::pin!(closing.close());
    let _ = tokio::time::timeout(Duration::ZERO, &mut closing).await;
    let refused = client.get(&url).await;
    assert!(matches!(refused, Err(Error::Connect { .. })), "{refused:?}");
    closing.await;
}
