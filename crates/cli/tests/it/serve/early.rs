//! Requests before the handshake is complete.

use std::fs;

use bytes::Bytes;
use clearway::http::{Client, EarlyData};
use clearway::{ClientConfig, Connection};
use http::Method;
use http_body_util::Full;

use crate::serve::client::{LIMIT, request};
use crate::web::{Site, TempDir};

/// Downloads may be early, uploads have to wait: an attacker could have them
/// happen again.
#[tokio::test]
async fn early_data_allows_downloads_but_not_uploads() {
    let dir = TempDir::new();
    dir.old_file("a", b"before");
    let site = Site::start(dir.path(), &["--early-data", "--writable"]);
    let url = format!("{}/a", site.url);
    let port = site.url.rsplit(':').next().unwrap().parse().unwrap();
    let config = ClientConfig::dangerous_accept_any_certificate();
    for (method, body, status) in [
        // The first time nothing is known of the server.
        (Method::GET, &b""[..], 200),
        (Method::GET, b"", 200),
        (Method::PUT, b"after", 425),
    ] {
        let client = Client::new(config.clone()).unwrap();
        client.resolve("localhost", port, [([127, 0, 0, 1], port).into()]);
        let body = Full::new(Bytes::from(body));
        let mut early = request(method, &url, &[]).body(body).unwrap();
        early.extensions_mut().insert(EarlyData::Allow);
        let mut response = client.request(early).await.unwrap();
        assert_eq!(response.status(), status);
        response.body_mut().bytes(LIMIT).await.unwrap();
        let connection = response.extensions().get::<Connection>().unwrap();
        connection.handshake_complete().await.unwrap();
        let taken = connection.resumed().then_some(true);
        assert_eq!(connection.zero_rtt_accepted(), taken);
        client
            .ready_for_early_data(&url.parse().unwrap())
            .await
            .unwrap();
        client.close().await;
    }
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"before");
}
