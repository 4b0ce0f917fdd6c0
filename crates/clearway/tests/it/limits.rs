//! Limits on clients, which hold for all shards of an endpoint together.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway::{ConnectError, Connection, Endpoint, Fault, Limits};

use crate::common::{LOOPBACK, client, server_config};

const SHARDS: usize = 4;

/// Most attempts to observe a condition, and the pause between two.
const ATTEMPTS: usize = 20_000;
const PAUSE: Duration = Duration::from_millis(1);

/// Echoes streams, and keeps the handles of connections that have ended.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<Connection>>>);

impl Keeper {
    async fn serve(self, connection: Connection) {
        self.0.lock().unwrap().push(connection.clone());
        while let Ok((mut send, mut recv)) = connection.accept_bi().await {
            if tokio::io::copy(&mut recv, &mut send).await.is_ok() {
                let _ = send.finish();
            }
        }
    }
}

fn serve(evict_idle_after: Duration, change: impl FnOnce(&mut Limits)) -> Endpoint {
    let server = server(evict_idle_after, change);
    serve_again(&server, &Keeper::default());
    server
}

fn server(evict_idle_after: Duration, change: impl FnOnce(&mut Limits)) -> Endpoint {
    let mut limits = Limits::default();
    change(&mut limits);
    let config = server_config().limits(limits);
    let server = Endpoint::builder(LOOPBACK).server(config.evict_idle_after(evict_idle_after));
    server.shards(SHARDS).build().unwrap()
}

fn serve_again(server: &Endpoint, keeper: &Keeper) {
    let (serving, keeper) = (server.clone(), keeper.clone());
    tokio::spawn(async move {
        let application = move |connection| keeper.clone().serve(connection);
        serving.serve(application).await
    });
}

/// A client with a port of its own, so that the kernel gives it to any shard; `None` if
/// it is refused for a limit.
async fn connect(server: &Endpoint) -> Option<(Endpoint, Connection)> {
    let client = client();
    match client.connect(server.local_addr(), "localhost").await {
        Ok(connection) => {
            ask(&connection).await;
            Some((client, connection))
        }
        Err(error) => {
            assert!(is_limit(&error), "{error}");
            None
        }
    }
}

fn is_limit(error: &ConnectError) -> bool {
    error.to_string().contains("too many connections")
}

fn is_eviction(error: &ConnectError) -> bool {
    error.to_string().contains("closed while idle")
}

/// After the answer, the shard knows that the handshake is complete.
async fn ask(connection: &Connection) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(b"hello").await.unwrap();
    send.finish().unwrap();
    assert_eq!(recv.read_to_end(5).await.unwrap(), b"hello");
}

/// Connects until the limit is reached.
async fn fill(server: &Endpoint, attempts: usize) -> Vec<(Endpoint, Connection)> {
    let mut connected = Vec::new();
    for _ in 0..attempts {
        connected.extend(connect(server).await);
    }
    connected
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..ATTEMPTS {
        if holds() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("never {what}");
}

const NEVER: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_limit_holds_over_all_shards_and_freed_places_are_reused() {
    for by_source in [false, true] {
        let server = serve(NEVER, |limits| {
            if by_source {
                limits.connections_per_source = 12;
            } else {
                limits.connections = 12;
            }
        });
        let mut connected = fill(&server, 30).await;
        assert_eq!(connected.len(), 12, "by source: {by_source}");
        for (_, connection) in connected.drain(..5) {
            connection.close(0, b"");
        }
        until("free again", || server.open_connections() <= 7).await;
        let more = fill(&server, 20).await;
        assert_eq!(more.len(), 5, "by source: {by_source}");
        for (_, connection) in connected.iter().chain(&more) {
            ask(connection).await;
        }
        server.close(0, b"");
    }
}

/// This also holds while the application holds handles of these connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_failed_shard_take_no_places_after_its_restart() {
    let keeper = Keeper::default();
    let server = server(NEVER, |limits| limits.connections = 16);
    serve_again(&server, &keeper);
    let before = fill(&server, 30).await;
    assert_eq!(before.len(), 16);
    let on_shards: Vec<_> = server.counters().iter().map(|c| c.connections).collect();
    let largest = on_shards.iter().max().copied().unwrap();
    let failing = on_shards.iter().position(|n| *n == largest).unwrap();
    server.inject(failing, Fault::Panic);
    until("failed", || server.failure().is_some()).await;
    until("without them", || server.open_connections() == 16 - largest).await;
    assert_eq!(server.restart_failed_shards().unwrap(), 1);
    serve_again(&server, &Keeper::default());
    assert_eq!(fill(&server, 40).await.len(), largest);
    assert_eq!(keeper.0.lock().unwrap().len(), 16);
}

/// The shard of a new client may have no idle connection itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_of_other_shards_are_evicted_for_new_clients() {
    let server = serve(Duration::ZERO, |limits| limits.connections = 8);
    let mut clients = Vec::new();
    let mut connected = 0;
    for _ in 0..ATTEMPTS {
        let client = client();
        match client.connect(server.local_addr(), "localhost").await {
            // It is idle, and may be evicted next.
            Ok(connection) => {
                connected += 1;
                clients.push((client, connection));
            }
            // It was evicted before its client was told that it is connected.
            Err(error) if is_eviction(&error) => connected += 1,
            Err(error) => assert!(is_limit(&error), "{error}"),
        }
        assert!(server.open_connections() <= 8);
        if connected == 40 {
            break;
        }
    }
    assert_eq!(connected, 40);
    let counters = server.counters();
    let evicted: u64 = counters.iter().map(|c| c.evicted_for_new_clients).sum();
    assert!(evicted >= 32, "{evicted}");
}
