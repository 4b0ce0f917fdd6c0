//! How connections and endpoints end.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use crate::common::{IDENTITY, LOOPBACK, Pair, client, client_config, pattern, server};
use clearway::{
    ClientConfig, ConnectError, ConnectionError, DevelopmentIdentity, Endpoint, EndpointBuilder,
    Observer, ReadError, TraceEvent, WriteError,
};

#[tokio::test]
async fn close_reason_is_reported_at_both_ends() {
    let pair = Pair::new().await;
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    let waiting = tokio::spawn(async move { recv.read_chunk(10).await });
    let accepting = tokio::spawn({
        let far = pair.far.clone();
        async move { far.accept_uni().await.map(|_| ()) }
    });
    tokio::task::yield_now().await;
    pair.near.close(42, b"enough");

    let local = ConnectionError::LocalApplication { code: 42 };
    let remote = ConnectionError::PeerApplication {
        code: 42,
        reason: b"enough".to_vec(),
    };
    assert_eq!(pair.near.closed().await, local);
    assert_eq!(pair.near.close_reason(), Some(local.clone()));
    assert_eq!(pair.far.closed().await, remote);
    assert_eq!(
        waiting.await.unwrap(),
        Err(ReadError::ConnectionLost(local.clone()))
    );
    assert_eq!(accepting.await.unwrap(), Err(remote));
    assert_eq!(
        send.write(b"x").await,
        Err(WriteError::ConnectionLost(local.clone()))
    );
    assert!(matches!(pair.near.open_bi().await, Err(error) if error == local));
}

/// The peer gets the reason of `Endpoint::close`, whether the shard acts on it first or the
/// handles are dropped first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_reason_is_sent_even_if_all_handles_are_dropped() {
    let gone = |error: ConnectionError| {
        let expected = ConnectionError::PeerApplication {
            code: 7,
            reason: b"gone".to_vec(),
        };
        assert_eq!(error, expected);
    };
    for _ in 0..10 {
        let pair = Pair::new().await;
        pair.client.close(7, b"gone");
        drop((pair.near, pair.client));
        gone(pair.far.closed().await);
        drop(pair.server);

        let pair = Pair::new().await;
        pair.server.close(7, b"gone");
        drop((pair.far, pair.server));
        gone(pair.near.closed().await);

        // A connection that was not accepted yet.
        let (server, client) = (crate::common::server(), crate::common::client());
        let connecting = client.connect(server.local_addr(), "localhost");
        let near = connecting.await.unwrap();
        // Possible once the handshake is confirmed, that is, complete at the server.
        while near.update_keys().is_err() {
            tokio::task::yield_now().await;
        }
        server.close(7, b"gone");
        drop(server);
        gone(near.closed().await);
    }
}

/// An observer that can be counted.
#[derive(Debug)]
struct Counted(#[expect(dead_code, reason = "it is held")] Arc<()>);

impl Observer for Counted {
    fn on_event(&mut self, _: clearway::Instant, _: &TraceEvent<'_>) {}
}

/// An idle endpoint has freed its connections, and a dropped endpoint has freed everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_connections_are_freed() {
    for _ in 0..10 {
        let (observers, factories) = (Arc::new(()), Arc::new(()));
        let observed = |builder: EndpointBuilder| {
            let (observer, factory) = (Arc::downgrade(&observers), factories.clone());
            let builder = builder.observe(move |_, _| {
                let _held = &factory;
                Some(Box::new(Counted(observer.upgrade()?)))
            });
            builder.build().unwrap()
        };
        let server = observed(Endpoint::builder(LOOPBACK).server(crate::common::server_config()));
        let client = observed(Endpoint::builder(LOOPBACK).client(client_config()));
        let pair = Pair::of(server, client).await;
        assert_eq!(Arc::strong_count(&observers), 3);
        let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
        send.write_all(b"x").await.unwrap();
        let far = pair.far.clone();
        let (echo, _) = far.accept_bi().await.unwrap();
        // One end waits for a stream that never comes.
        let waiting = tokio::spawn(async move { recv.read_chunk(1).await });
        let Pair {
            server,
            client,
            near,
            far: other,
        } = pair;
        client.close(0, b"");
        assert!(waiting.await.unwrap().is_err());
        far.closed().await;
        drop((near, send, far, other, echo));
        client.wait_idle().await;
        server.wait_idle().await;
        assert_eq!(Arc::strong_count(&observers), 1);
        drop((client, server));
        // Their event loops end by themselves, soon.
        while Arc::strong_count(&factories) > 1 {
            tokio::task::yield_now().await;
        }
    }
}

/// Data that arrived before the close can still be read.
#[tokio::test]
async fn data_received_before_a_close_is_readable() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"last words").await.unwrap();
    send.finish().unwrap();
    send.finished().await.unwrap();
    let mut recv = pair.far.accept_uni().await.unwrap();
    pair.near.close(0, b"");
    pair.far.closed().await;
    assert_eq!(recv.read_to_end(100).await.unwrap(), b"last words");
}

/// When everything is dropped after `finish`, the connection closes after delivery.
#[tokio::test]
async fn dropping_the_last_handle_closes_after_delivery() {
    let pair = Pair::new().await;
    let content = pattern(1, 2 << 20);
    let sent = content.clone();
    tokio::spawn(async move {
        let mut send = pair.near.open_uni().await.unwrap();
        drop(pair.near);
        send.write_all(&sent).await.unwrap();
        send.finish().unwrap();
    });
    let mut recv = pair.far.accept_uni().await.unwrap();
    assert!(recv.read_to_end(4 << 20).await.unwrap() == content);
    assert_eq!(
        pair.far.closed().await,
        ConnectionError::PeerApplication {
            code: 0,
            reason: Vec::new()
        }
    );
    pair.client.wait_idle().await;
    assert_eq!(pair.client.open_connections(), 0);
}

#[tokio::test]
async fn closed_endpoint_closes_its_connections_and_refuses_new_ones() {
    let Pair {
        server,
        client,
        near,
        far,
    } = Pair::new().await;
    let accepting = tokio::spawn({
        let server = server.clone();
        async move { server.accept().await.unwrap().is_none() }
    });
    server.close(9, b"restarting");
    assert_eq!(
        near.closed().await,
        ConnectionError::PeerApplication {
            code: 9,
            reason: b"restarting".to_vec()
        }
    );
    assert_eq!(
        far.closed().await,
        ConnectionError::LocalApplication { code: 9 }
    );
    assert!(accepting.await.unwrap(), "accept ends");
    // New clients are refused.
    let late = client.connect(server.local_addr(), "localhost").await;
    assert!(
        matches!(
            late,
            Err(ConnectError::Connection(ConnectionError::PeerTransport(_)))
        ),
        "{late:?}"
    );
    server.wait_idle().await;
    client.wait_idle().await;
    assert_eq!(server.open_connections(), 0);
}

#[tokio::test]
async fn connections_outlive_the_endpoint_handle() {
    let pair = Pair::new().await;
    drop((pair.server, pair.client));
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"still here").await.unwrap();
    send.finish().unwrap();
    let mut recv = pair.far.accept_uni().await.unwrap();
    assert_eq!(recv.read_to_end(100).await.unwrap(), b"still here");
}

/// The event loop of a client runs on the caller's runtime. When that shuts down, no task may
/// wait for ever.
#[test]
fn runtime_shutdown_fails_its_connections() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pair = runtime.block_on(Pair::new());
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    let error = other.block_on(pair.near.closed());
    assert!(matches!(error, ConnectionError::Transport(_)), "{error}");
    let Err(error) = other.block_on(std::future::IntoFuture::into_future(
        pair.client.connect(pair.server.local_addr(), "localhost"),
    )) else {
        panic!("connected without an event loop");
    };
    assert!(
        matches!(
            error,
            ConnectError::Endpoint(clearway::EndpointError::RuntimeGone)
        ),
        "{error}"
    );
    other.block_on(pair.client.wait_idle());
}

#[tokio::test]
async fn failed_handshakes_report_their_cause() {
    let server = server();
    let address = server.local_addr();
    let connect = async |config: ClientConfig, name: &str| {
        let client = Endpoint::client(LOOPBACK, config).unwrap();
        client.connect(address, name).await.unwrap_err().to_string()
    };

    let other = connect(client_config().alpn(["other"]), "localhost").await;
    assert!(other.contains("TLS alert 120"), "{other}");

    let name = connect(client_config(), "example.org").await;
    assert!(name.contains("certificate"), "{name}");

    let stranger = DevelopmentIdentity::generate(["localhost"]).unwrap();
    let config = ClientConfig::with_fingerprint(stranger.fingerprint()).alpn(["test"]);
    let pinned = connect(config, "localhost").await;
    for fingerprint in [IDENTITY.fingerprint(), stranger.fingerprint()] {
        assert!(pinned.contains(&fingerprint.to_string()), "{pinned}");
    }

    let text = connect(client_config(), "no name").await;
    let expected = "invalid server name \"no name\": expected a DNS name or an IP address";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn certificate_is_trusted_by_fingerprint_or_without_any_check() {
    for config in [
        ClientConfig::with_fingerprint(IDENTITY.fingerprint()),
        ClientConfig::dangerous_accept_any_certificate(),
    ] {
        let client = Endpoint::client(LOOPBACK, config.alpn(["test"])).unwrap();
        let pair = Pair::of(server(), client).await;
        let certificates = pair.near.peer_certificates().unwrap();
        assert_eq!(
            clearway::Fingerprint::of(&certificates[0]),
            IDENTITY.fingerprint()
        );
        assert_eq!(pair.far.peer_certificates(), None);
    }
}

#[tokio::test]
async fn connect_to_an_unreachable_address_fails_at_once() {
    let client = client();
    for (remote, reason) in [
        ("[::1]:9", "the endpoint is bound to an IPv4 address"),
        ("127.0.0.1:0", "the port must be between 1 and 65535"),
    ] {
        let error = client
            .connect(remote.parse().unwrap(), "localhost")
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable(_)), "{error}");
        let message = format!("cannot connect to {remote}: {reason}");
        assert!(error.to_string().starts_with(&message), "{error}");
    }
    let server = server();
    let error = server.connect(LOOPBACK, "localhost").await.unwrap_err();
    assert!(matches!(error, ConnectError::NoClientConfig), "{error}");
}
