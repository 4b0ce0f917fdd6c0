//! Requests as early data: accepted, rejected, answered with 425, with changed settings.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{IDENTITY, LOOPBACK, bind_again};
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use clearway::http::{ArrivedEarly, Client, Code, EarlyData, Error, Incoming, Server};
use clearway::{
    BuildError, ClientConfig, Connection, Identity, ServerConfig, ServerCrypto, ServerSessions,
    TransportConfig,
};
use http::{Method, StatusCode};
use http_body_util::Full;

fn identity() -> Identity {
    let (chain, key) = (IDENTITY.certificate_pem(), IDENTITY.key_pem());
    Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()
}

/// A server that accepts early data with tickets of `sessions`.
fn server(sessions: &Arc<ServerSessions>, http: clearway::http::Config) -> Server {
    server_at(LOOPBACK, sessions, http).unwrap()
}

fn server_at(
    address: SocketAddr,
    sessions: &Arc<ServerSessions>,
    http: clearway::http::Config,
) -> Result<Server, BuildError> {
    let crypto = ServerCrypto::new(identity())
        .sessions(sessions.clone())
        .early_data(true);
    let config = ServerConfig::with_crypto(crypto);
    Server::builder(address, config).http(http).build()
}

/// Another server at the address of `old`, which is closed.
async fn replace(
    old: Server,
    sessions: &Arc<ServerSessions>,
    http: clearway::http::Config,
) -> Server {
    let address = old.local_addr();
    old.shutdown(Duration::from_secs(10)).await;
    drop(old);
    bind_again(address, |address| {
        server_at(address, sessions, http.clone())
    })
    .await
}

fn serve(server: &Server, router: Router) {
    let server = server.clone();
    tokio::spawn(async move { server.serve(router).await });
}

/// Responds with whether the request was early data.
fn telling() -> Router {
    Router::new().fallback(async |request: Request| {
        let early = request.extensions().get::<ArrivedEarly>().is_some();
        if early { "early" } else { "late" }
    })
}

/// A server with that response.
fn told() -> Server {
    let server = server(&Arc::default(), clearway::http::Config::default());
    serve(&server, telling());
    server
}

fn config() -> ClientConfig {
    ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap()
}

/// A client without connections that resolves the server without DNS.
fn client(config: &ClientConfig, server: &Server) -> Client {
    let client = Client::bind(LOOPBACK, config.clone()).unwrap();
    let address = server.local_addr();
    client.resolve("localhost", address.port(), [address]);
    client
}

fn url(server: &Server) -> String {
    format!("https://localhost:{}/", server.local_addr().port())
}

/// Stores a session with the server in `config`.
async fn meet(config: &ClientConfig, server: &Server) {
    let client = client(config, server);
    let mut response = client.get(&url(server)).await.unwrap();
    response.body_mut().bytes(100).await.unwrap();
    client
        .ready_for_early_data(&url(server).parse().unwrap())
        .await
        .unwrap();
    client.close().await;
}

fn request(method: Method, server: &Server, body: &'static [u8]) -> http::Request<Full<Bytes>> {
    let request = http::Request::builder().method(method).uri(url(server));
    request.body(Full::from(body)).unwrap()
}

fn connection(response: &http::Response<Incoming>) -> Connection {
    let connection = response.extensions().get::<Connection>();
    connection.unwrap().clone()
}

async fn text(mut response: http::Response<Incoming>) -> String {
    response.body_mut().text(100).await.unwrap()
}

#[tokio::test]
async fn safe_requests_are_sent_as_early_data() {
    let server = told();
    let config = config();
    meet(&config, &server).await;
    let client = client(&config, &server);
    let url = url(&server);
    // All of them share the connection that is being established.
    let (first, second) = tokio::join!(client.get(&url), client.get(&url));
    let (first, second) = (first.unwrap(), second.unwrap());
    let connection = connection(&first);
    connection.handshake_complete().await.unwrap();
    assert_eq!(connection.zero_rtt_accepted(), Some(true));
    assert!(connection.resumed());
    assert_eq!(text(first).await, "early");
    assert_eq!(text(second).await, "early");
    // The connection is kept, and later requests on it are not early data.
    let third = client.get(&url).await.unwrap();
    assert_eq!(self::connection(&third).id(), connection.id());
    assert_eq!(text(third).await, "late");
}

/// A restarted server does not know the ticket, so the request is sent again, once.
#[tokio::test]
async fn refused_early_requests_are_sent_again() {
    let config = config();
    let old = told();
    meet(&config, &old).await;
    let new = replace(old, &Arc::default(), clearway::http::Config::default()).await;
    serve(&new, telling());
    let client = client(&config, &new);
    let response = client.get(&url(&new)).await.unwrap();
    assert_eq!(connection(&response).zero_rtt_accepted(), Some(false));
    assert_eq!(text(response).await, "late");
    assert_eq!(new.endpoint().counters()[0].endpoint.accepted, 1);
}

#[tokio::test]
async fn early_data_follows_method_safety_or_the_callers_choice() {
    let server = told();
    let config = config();
    meet(&config, &server).await;
    for (method, body, choice, expected) in [
        (Method::GET, &b""[..], None, "early"),
        (Method::GET, b"", Some(EarlyData::Avoid), "late"),
        (Method::GET, b"body", None, "late"),
        (Method::POST, b"", None, "late"),
        (Method::DELETE, b"", None, "late"),
        (Method::DELETE, b"", Some(EarlyData::Allow), "early"),
        (Method::POST, b"body", Some(EarlyData::Allow), "early"),
    ] {
        let client = client(&config, &server);
        let what = format!("{method} {body:?} {choice:?}");
        let mut request = request(method, &server, body);
        if let Some(choice) = choice {
            request.extensions_mut().insert(choice);
        }
        let response = client.request(request).await.unwrap();
        assert!(connection(&response).resumed(), "{what}");
        assert_eq!(text(response).await, expected, "{what}");
        let url = url(&server).parse().unwrap();
        client.ready_for_early_data(&url).await.unwrap();
        client.close().await;
    }
    let never = client(&config.early_data(false), &server);
    let response = never.get(&url(&server)).await.unwrap();
    assert!(connection(&response).resumed());
    assert_eq!(text(response).await, "late");
}

/// An unsafe request is not sent as early data on a connection that is being established for
/// a safe one.
#[tokio::test]
async fn unsafe_request_waits_for_the_handshake_beside_an_early_one() {
    let server = told();
    let config = config();
    meet(&config, &server).await;
    let client = client(&config, &server);
    let url = url(&server);
    let post = request(Method::POST, &server, b"");
    let (get, post) = tokio::join!(client.get(&url), client.request(post));
    let (get, post) = (get.unwrap(), post.unwrap());
    assert_eq!(connection(&get).id(), connection(&post).id());
    assert_eq!(
        (text(get).await, text(post).await),
        ("early".into(), "late".into())
    );
}

/// RFC 8470 §5.2.
#[tokio::test]
async fn request_answered_with_425_is_sent_again_after_the_handshake() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let cautious = Router::new().fallback(async move |request: Request| -> Response {
        count.fetch_add(1, Ordering::Relaxed);
        match request.extensions().get::<ArrivedEarly>() {
            Some(ArrivedEarly { .. }) => StatusCode::TOO_EARLY.into_response(),
            None => "in time".into_response(),
        }
    });
    let server = server(&Arc::default(), clearway::http::Config::default());
    serve(&server, cautious);
    let config = config();
    meet(&config, &server).await;
    assert_eq!(asked.swap(0, Ordering::Relaxed), 1);
    let again = client(&config, &server);
    let response = again.get(&url(&server)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(connection(&response).zero_rtt_accepted(), Some(true));
    assert_eq!(text(response).await, "in time");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    again
        .ready_for_early_data(&url(&server).parse().unwrap())
        .await
        .unwrap();
    again.close().await;

    // A body that was sent cannot be sent again, so the caller gets the 425.
    let client = client(&config, &server);
    let mut post = request(Method::POST, &server, b"body");
    post.extensions_mut().insert(EarlyData::Allow);
    let response = client.request(post).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_EARLY);
}

/// A server that accepts early data must not reduce its settings (RFC 9114 §7.2.4.2). One that
/// does is forgotten, so that the next connection succeeds.
#[tokio::test]
async fn reduced_settings_after_early_data_close_the_connection() {
    let sessions = Arc::default();
    let generous = server(&sessions, clearway::http::Config::default());
    serve(&generous, telling());
    let config = config();
    meet(&config, &generous).await;

    let mut mean = clearway::http::Config::default();
    mean.limits.max_field_section -= 1;
    let mean = replace(generous, &sessions, mean).await;
    // No response can arrive before the settings.
    let silent = Router::new().fallback(async |request: Request| {
        if request.extensions().get::<ArrivedEarly>().is_some() {
            std::future::pending::<()>().await;
        }
        "late"
    });
    serve(&mean, silent);
    let client = client(&config, &mean);
    let error = client.get(&url(&mean)).await.unwrap_err();
    assert!(
        matches!(&error, Error::Protocol(error) if error.code == Code::SETTINGS_ERROR),
        "{error}"
    );
    let response = client.get(&url(&mean)).await.unwrap();
    assert!(!connection(&response).resumed());
    assert_eq!(text(response).await, "late");
}

/// When the first address does not answer, the early request is sent again on the connection
/// that is established.
#[tokio::test]
async fn early_requests_are_sent_again_to_the_address_that_answers() {
    let server = told();
    let config = config();
    meet(&config, &server).await;
    let client = client(&config, &server);
    let silent = UdpSocket::bind(LOOPBACK).unwrap();
    let addresses = [silent.local_addr().unwrap(), server.local_addr()];
    client.resolve("localhost", server.local_addr().port(), addresses);
    let response = client.get(&url(&server)).await.unwrap();
    let connection = connection(&response);
    assert_eq!(connection.remote_address(), server.local_addr());
    assert_eq!(text(response).await, "late");
    let mut datagram = [0; 2000];
    let (first, _) = silent.recv_from(&mut datagram).unwrap();
    assert!(first >= 1200, "early data was sent there before");
}

/// When no address answers, the error is that of connecting.
#[tokio::test]
async fn early_request_to_an_unreachable_server_fails_with_connect_error() {
    let server = told();
    let config = config();
    meet(&config, &server).await;
    let mut impatient = TransportConfig::default();
    impatient.idle_timeout = Duration::from_millis(200);
    let client = client(&config.transport(impatient), &server);
    let port = server.local_addr().port();
    let closed = UdpSocket::bind(LOOPBACK).unwrap().local_addr().unwrap();
    client.resolve("localhost", port, [closed]);
    let error = client.get(&url(&server)).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}
