//! A client that asks for a tunnel before the server's SETTINGS have arrived (RFC 9220 §3).
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use clearway::http::{Client, Protocol};
use clearway::{ClientConfig, Connection, Endpoint, SendStream, ServerConfig};
use http_body_util::Empty;
use tokio::task::JoinHandle;

use crate::common::{IDENTITY, LOOPBACK};

/// A control stream with SETTINGS_ENABLE_CONNECT_PROTOCOL = 1, or without settings.
const ALLOW: &[u8] = &[0, 4, 2, 8, 1];
const FORBID: &[u8] = &[0, 4, 0];

/// A HEADERS frame with `:status: 200` (RFC 9204 appendix A).
const STATUS_200: [u8; 5] = [0x01, 3, 0, 0, 0xc0 | 25];

/// How a client asks for a tunnel.
#[derive(Clone, Copy, Debug)]
enum Way {
    Tunnel,
    Request,
    WebTransport,
    WebSocket,
}

/// A client that asks a server, which is the test.
struct World {
    far: Connection,
    /// What the client gets.
    asking: JoinHandle<Result<(), String>>,
    _server: Endpoint,
    _client: Client,
}

impl World {
    async fn asking(way: Way) -> Self {
        let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
        let server = Endpoint::server(LOOPBACK, config.unwrap().alpn(["h3"])).unwrap();
        let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
        let client = Client::new(config).unwrap();
        let url = format!("https://localhost:{}/", server.local_addr().port());
        let asking = tokio::spawn(ask(client.clone(), way, url));
        let far = server.accept().await.unwrap().unwrap();
        Self {
            far,
            asking,
            _server: server,
            _client: client,
        }
    }

    /// Checks that the client sends no request, however long it is waited for.
    async fn assert_no_request(&self) {
        let request = tokio::time::timeout(Duration::from_millis(50), self.far.accept_bi());
        assert!(request.await.is_err(), "a request before SETTINGS");
    }

    async fn settings(&self, settings: &[u8]) -> SendStream {
        let mut control = self.far.open_uni().await.unwrap();
        control.write_all(settings).await.unwrap();
        control
    }
}

async fn ask(client: Client, way: Way, url: String) -> Result<(), String> {
    let mut request = http::Request::get(&url).body(()).unwrap();
    request.extensions_mut().insert(Protocol::new("test"));
    let told = |error: &dyn std::error::Error| error.to_string();
    match way {
        Way::Tunnel => (client.tunnel(request).await).map_or_else(|e| Err(told(&e)), |_| Ok(())),
        Way::Request => {
            let mut request = http::Request::connect(&url);
            request
                .extensions_mut()
                .unwrap()
                .insert(Protocol::new("test"));
            let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
            (client.request(request).await).map_or_else(|e| Err(told(&e)), |_| Ok(()))
        }
        Way::WebTransport => {
            (client.webtransport(request).await).map_or_else(|e| Err(told(&e)), |_| Ok(()))
        }
        Way::WebSocket => (client.websocket(&url).await).map_or_else(|e| Err(told(&e)), |_| Ok(())),
    }
}

#[tokio::test]
async fn extended_connect_waits_for_settings_that_allow_it() {
    for way in [Way::Tunnel, Way::Request, Way::WebSocket] {
        let world = World::asking(way).await;
        world.assert_no_request().await;
        let _control = world.settings(ALLOW).await;
        let (mut send, _recv) = world.far.accept_bi().await.unwrap();
        send.write_all(&STATUS_200).await.unwrap();
        let answered = world.asking.await.unwrap();
        assert_eq!(answered, Ok(()), "{way:?}");
    }
}

#[tokio::test]
async fn extended_connect_fails_without_a_request_if_settings_do_not_allow_it() {
    for (way, settings, missing) in [
        (Way::Tunnel, FORBID, "extended CONNECT"),
        (Way::Request, FORBID, "extended CONNECT"),
        (Way::WebSocket, FORBID, "extended CONNECT"),
        (Way::WebTransport, FORBID, "extended CONNECT"),
        (Way::WebTransport, ALLOW, "WebTransport"),
    ] {
        let world = World::asking(way).await;
        let _control = world.settings(settings).await;
        let error = world.asking.await.unwrap().unwrap_err();
        assert!(error.contains(missing), "{way:?}: {error}");
        let request = tokio::time::timeout(Duration::from_millis(50), world.far.accept_bi());
        assert!(request.await.is_err(), "{way:?}: a request all the same");
    }
}

#[tokio::test]
async fn extended_connect_does_not_wait_for_ever_for_a_server_that_leaves() {
    for way in [Way::Tunnel, Way::Request, Way::WebTransport, Way::WebSocket] {
        let world = World::asking(way).await;
        world.far.close(0x100, b"leaving");
        let error = world.asking.await.unwrap().unwrap_err();
        assert!(error.contains("leaving"), "{way:?}: {error}");
    }
}
