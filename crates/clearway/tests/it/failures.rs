//! Shards that fail: which calls return the failure, and how they are restarted.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::future::IntoFuture;

use clearway::{
    ConnectError, Connection, ConnectionError, Endpoint, EndpointError, Fault, ServerConfig,
};
use tokio::task::JoinHandle;

use crate::common::{LOOPBACK, Pair, client, pattern, server, server_config};

/// Echoes one stream after the other.
async fn echo(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        if tokio::io::copy(&mut recv, &mut send).await.is_ok() {
            let _ = send.finish();
        }
    }
}

async fn ask(connection: &Connection, content: &[u8]) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(content).await.unwrap();
    send.finish().unwrap();
    assert!(recv.read_to_end(content.len()).await.unwrap() == content);
}

fn serve(server: &Endpoint) -> JoinHandle<Result<(), EndpointError>> {
    let server = server.clone();
    tokio::spawn(async move { server.serve(echo).await })
}

fn lost(error: &ConnectionError) -> String {
    let ConnectionError::Transport(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.code.to_string(), "INTERNAL_ERROR");
    error.reason.to_string()
}

#[tokio::test]
async fn shard_panic_fails_accept_and_its_connections() {
    let Pair {
        server,
        client,
        near: _near,
        far,
    } = Pair::new().await;
    let serving = serve(&server);
    assert!(server.failure().is_none());
    server.inject(0, Fault::Panic);
    let error = serving.await.unwrap().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, EndpointError::Panicked(_)), "{text}");
    assert!(
        text.starts_with("the endpoint's event loop panicked: "),
        "{text}"
    );
    assert!(text.contains("link.rs:"), "says where: {text}");
    assert!(text.ends_with("injected into the event loop"), "{text}");
    assert_eq!(lost(&far.closed().await), text);
    // `failure` returns it until the restart.
    assert_eq!(server.accept().await.unwrap_err().to_string(), text);
    assert_eq!(server.failure().unwrap().to_string(), text);
    // No call waits for ever.
    server.wait_idle().await;
    drop(client);
}

#[tokio::test]
async fn socket_failure_fails_accept_and_its_connections() {
    let pair = Pair::new().await;
    let serving = serve(&pair.server);
    pair.server.inject(0, Fault::Socket);
    let error = serving.await.unwrap().unwrap_err();
    let text = error.to_string();
    assert_eq!(
        text,
        "the endpoint's UDP socket failed: injected into the socket"
    );
    assert_eq!(lost(&pair.far.closed().await), text);
}

#[tokio::test]
async fn connect_after_a_shard_failure_reports_the_failure() {
    let Pair {
        server,
        client,
        near,
        far: _far,
    } = Pair::new().await;
    client.inject(0, Fault::Socket);
    let reason = lost(&near.closed().await);
    let error = client.connect(server.local_addr(), "localhost").await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, ConnectError::Endpoint(EndpointError::Socket(_))),
        "{error}"
    );
    assert_eq!(error.to_string(), reason);
}

/// The address and the secret for stateless resets stay the same, so that a client of the
/// failed shard learns at once that its connection has ended.
#[tokio::test]
async fn restarted_shard_serves_new_clients_and_resets_old_ones() {
    for fault in [Fault::Panic, Fault::Socket] {
        let Pair {
            server,
            client,
            near,
            far,
        } = Pair::new().await;
        let address = server.local_addr();
        assert_eq!(
            server.restart_failed_shards().unwrap(),
            0,
            "none has failed"
        );
        server.inject(0, fault);
        lost(&far.closed().await);
        assert!(server.accept().await.is_err());

        assert_eq!(server.restart_failed_shards().unwrap(), 1);
        assert!(server.failure().is_none());
        assert_eq!(server.local_addr(), address);
        assert_eq!(server.counters()[0].restarts, 1);
        let serving = serve(&server);
        near.ping();
        assert_eq!(near.closed().await, ConnectionError::StatelessReset);
        let again = client.connect(address, "localhost").await.unwrap();
        ask(&again, &pattern(7, 100_000)).await;
        // Handles of the failed shard do not affect its successor.
        far.close(0, b"");
        drop(far);
        ask(&again, b"still here").await;
        assert_eq!(server.open_connections(), 1);

        server.close(0, b"");
        serving.await.unwrap().unwrap();
        server.wait_idle().await;
    }
}

/// When one of two shards fails, the connections of the other go on, and after the restart the
/// kernel steers as before, so that no datagrams have to be forwarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steering_stays_correct_after_one_of_two_shards_restarts() {
    for fault in [Fault::Panic, Fault::Socket] {
        for failing in [0, 1] {
            let server = Endpoint::builder(LOOPBACK)
                .server(server_config())
                .shards(2)
                .build()
                .unwrap();
            let address = server.local_addr();
            let serving = serve(&server);
            let before = connect_to_both(&server).await;
            server.inject(failing, fault);
            assert!(serving.await.unwrap().is_err());
            let mut survivors = Vec::new();
            for (shard, connection) in before {
                if shard == failing {
                    continue;
                }
                ask(&connection, &pattern(1, 50_000)).await;
                survivors.push(connection);
            }
            assert!(!survivors.is_empty());
            assert_eq!(server.restart_failed_shards().unwrap(), 1);
            let serving = serve(&server);
            let strays = strays(&server);
            let after = connect_to_both(&server).await;
            for connection in survivors.iter().chain(after.iter().map(|(_, c)| c)) {
                connection.rotate_connection_ids();
                ask(connection, &pattern(2, 50_000)).await;
            }
            // Only a rotation of connection IDs or GRO can cause forwarding.
            let passed = self::strays(&server) - strays;
            assert!(passed < 40, "{passed} strays after {fault:?} in {failing}");
            assert_eq!(server.local_addr(), address);
            server.close(0, b"");
            serving.await.unwrap().unwrap();
        }
    }
}

fn strays(server: &Endpoint) -> u64 {
    server
        .counters()
        .iter()
        .map(|shard| shard.strays_passed)
        .sum()
}

/// Connects clients until each of two shards has four; returns them with their shard.
async fn connect_to_both(server: &Endpoint) -> Vec<(usize, Connection)> {
    let count = |server: &Endpoint| -> Vec<u64> {
        let counters = server.counters();
        counters
            .iter()
            .map(|shard| shard.endpoint.accepted)
            .collect()
    };
    let mut connections = Vec::new();
    let mut each = [0, 0];
    while each.iter().any(|&count| count < 4) {
        let before = count(server);
        let connection = client().connect(server.local_addr(), "localhost").await;
        let after = count(server);
        let shard = (0..2).find(|&shard| after[shard] > before[shard]).unwrap();
        each[shard] += 1;
        let connection = connection.unwrap();
        ask(&connection, b"hello").await;
        connections.push((shard, connection));
    }
    connections
}

#[tokio::test]
async fn closed_endpoint_is_not_restarted_and_accept_returns_none() {
    let server = server();
    server.inject(0, Fault::Panic);
    assert!(server.accept().await.is_err());
    server.close(0, b"");
    assert_eq!(server.restart_failed_shards().unwrap(), 0);
    // The first event decides.
    assert!(server.accept().await.is_err());
}

#[tokio::test]
async fn accept_after_stop_accepting_returns_none_even_if_a_shard_fails_later() {
    let pair = Pair::new().await;
    pair.server.stop_accepting();
    pair.server.inject(0, Fault::Panic);
    lost(&pair.far.closed().await);
    assert!(pair.server.accept().await.unwrap().is_none());
}

/// A shutdown of the server's runtime is reported to handles on another runtime.
#[test]
fn runtime_shutdown_fails_serve_with_that_reason() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(async {
        let config: ServerConfig = server_config();
        let builder = Endpoint::builder(LOOPBACK).server(config);
        builder.on_caller_runtime().build().unwrap()
    });
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    let error = other.block_on(server.serve(echo)).unwrap_err();
    assert!(matches!(error, EndpointError::RuntimeGone), "{error}");
    // This thread has no runtime either.
    let error = server.restart_failed_shards().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
    other.block_on(async {
        assert_eq!(server.restart_failed_shards().unwrap(), 1);
        let serving = serve(&server);
        let connecting = client().connect(server.local_addr(), "localhost");
        ask(&connecting.into_future().await.unwrap(), b"hello").await;
        server.close(0, b"");
        serving.await.unwrap().unwrap();
    });
}
