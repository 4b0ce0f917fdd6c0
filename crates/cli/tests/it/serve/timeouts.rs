//! Timeouts for slow clients.

use std::time::Duration;

use bytes::Bytes;
use clearway::{
    ClientConfig, Connection, ConnectionError, Endpoint, ReadError, SendStream, TransportConfig,
};
use http::Method;

use super::limits::{PATIENCE, begin, until};
use crate::serve::client::{StallingBody, client, client_that_takes_nothing, get, request};
use crate::web::{Site, TempDir, pattern};

/// RFC 9114 §8.1.
const H3_NO_ERROR: u64 = 0x0100;
const H3_REQUEST_REJECTED: u64 = 0x010b;

/// A client that writes what it likes on its streams, and shows all the time that it is
/// there.
struct RawClient {
    connection: Connection,
    _control: SendStream,
    _endpoint: Endpoint,
}

impl RawClient {
    async fn connect(site: &Site) -> Self {
        let mut transport = TransportConfig::default();
        transport.keep_alive = Some(Duration::from_millis(50));
        let config = ClientConfig::dangerous_accept_any_certificate().alpn(["h3"]);
        let any = ([127, 0, 0, 1], 0).into();
        let endpoint = Endpoint::client(any, config.transport(transport)).unwrap();
        let port: u16 = site.url.rsplit(':').next().unwrap().parse().unwrap();
        let connecting = endpoint.connect(([127, 0, 0, 1], port).into(), "localhost");
        let connection = connecting.await.unwrap();
        let mut control = connection.open_uni().await.unwrap();
        // The type of the stream, and empty SETTINGS (RFC 9114 §6.2.1).
        control.write_all(&[0, 4, 0]).await.unwrap();
        Self {
            connection,
            _control: control,
            _endpoint: endpoint,
        }
    }
}

/// Byte by byte, more than one in each tenth of the timeout.
#[tokio::test]
async fn request_whose_headers_dribble_is_rejected_after_the_header_timeout() {
    let dir = TempDir::new();
    dir.old_file("small", b"text");
    let site = Site::start(dir.path(), &["--header-timeout", "300ms"]);
    let raw = RawClient::connect(&site).await;
    let (mut send, mut recv) = raw.connection.open_bi().await.unwrap();
    // HEADERS of 16,383 bytes, the field section's prefix, `:method: GET` and so on.
    send.write_all(&[0x01, 0x7f, 0xff, 0, 0]).await.unwrap();
    let dribbling = async {
        // Until the server rejects the request.
        while send.write_all(&[0xd1]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let both = async { tokio::join!(dribbling, recv.read_chunk(100)) };
    let ((), read) = tokio::time::timeout(PATIENCE, both).await.expect("an end");
    assert!(
        matches!(read, Err(ReadError::Reset(H3_REQUEST_REJECTED))),
        "{read:?}"
    );
    let (status, _, body) = get(&client(), &format!("{}/small", site.url), &[]).await;
    assert_eq!((status, &body[..]), (200, &b"text"[..]));
}

#[tokio::test]
async fn connection_without_requests_is_closed_after_the_keepalive_timeout() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &["--keepalive-timeout", "300ms"]);
    let raw = RawClient::connect(&site).await;
    let closed = tokio::time::timeout(PATIENCE, raw.connection.closed()).await;
    match closed.expect("an end") {
        ConnectionError::PeerApplication { code, .. } => assert_eq!(code, H3_NO_ERROR),
        other => panic!("closed otherwise: {other}"),
    }
}

/// Its temporary file goes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_stalls_ends_after_the_body_timeout() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &["--writable", "--body-timeout", "300ms"]);
    let client = client();
    let url = format!("{}/a", site.url);
    let body = StallingBody(Some(Bytes::from(pattern(300_000))));
    let request = request(Method::PUT, &url, &[]).body(body).unwrap();
    let answered = tokio::time::timeout(PATIENCE, client.request(request)).await;
    let complete = matches!(answered.expect("it ends"), Ok(answer) if answer.status() == 201);
    assert!(!complete, "an upload that did not end");
    until("tidy", || dir.names().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_response_ends_after_the_response_timeout() {
    let dir = TempDir::new();
    dir.old_file("large", &pattern(1 << 20));
    let site = Site::start(dir.path(), &["--response-timeout", "300ms"]);
    let greedy = client_that_takes_nothing();
    let _requests = begin(&greedy, &format!("{}/large", site.url), 3);
    for _ in 0..3 {
        // Told by the server when it gives the response up.
        assert_eq!(site.logged()["complete"], false);
    }
}
