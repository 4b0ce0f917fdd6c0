//! Servers that run out of memory, or of places for connections.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use clearway::{
    ConnectError, Connection, ConnectionError, Counters, Endpoint, Limit, ServerConfig, WriteError,
};

use tokio::task::JoinSet;

use crate::common::{LOOPBACK, client, pattern, server_config};

const MIB: usize = 1 << 20;

/// Echoes bidirectional streams and leaves unidirectional ones unread, until the client leaves.
async fn hold(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        if tokio::io::copy(&mut recv, &mut send).await.is_ok() {
            let _ = send.finish();
        }
    }
}

fn serve(config: ServerConfig, shards: usize) -> Endpoint {
    let server = Endpoint::builder(LOOPBACK).server(config).shards(shards);
    let server = server.build().unwrap();
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(hold).await });
    server
}

/// A client that makes the server hold `bytes`, or as many as its windows allow. Returns when
/// they were sent, the client can send no more, or it was evicted.
async fn burden(client: &Endpoint, server: &Endpoint, bytes: usize) -> Burden {
    let connecting = client.connect(server.local_addr(), "localhost");
    let connection = connecting.await.unwrap();
    let mut writing = JoinSet::new();
    for part in pattern(1, bytes).chunks(STREAM) {
        let (connection, part) = (connection.clone(), part.to_vec());
        writing.spawn(async move {
            let mut send = connection.open_uni().await?;
            let written = send.write_all(&part).await;
            // Dropping the stream would reset it and discard its data.
            connection.closed().await;
            written
        });
    }
    while connection.close_reason().is_none()
        && connection.stats().counters.bytes_sent < bytes as u64
        && !is_blocked(&connection)
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Burden {
        connection,
        _writing: writing,
    }
}

/// Whether a connection has been limited by the peer's windows for some time.
fn is_blocked(connection: &Connection) -> bool {
    connection.stats().limits.iter().any(|(limit, time)| {
        let windows = [Limit::StreamFlowControl, Limit::ConnectionFlowControl];
        windows.contains(limit) && *time > Duration::from_millis(20)
    })
}

/// Bytes on each stream: less than any window.
const STREAM: usize = 64 << 10;

/// A connection whose streams the server holds unread.
struct Burden {
    connection: Connection,
    _writing: JoinSet<Result<(), WriteError>>,
}

async fn ask(connection: &Connection) -> Result<(), String> {
    let (mut send, mut recv) = connection.open_bi().await.map_err(|e| e.to_string())?;
    send.write_all(b"hello").await.map_err(|e| e.to_string())?;
    send.finish().map_err(|e| e.to_string())?;
    let answer = recv.read_to_end(5).await.map_err(|e| e.to_string())?;
    assert_eq!(answer, b"hello");
    Ok(())
}

fn total(server: &Endpoint, count: fn(&Counters) -> u64) -> u64 {
    server.counters().iter().map(count).sum()
}

/// Eighty clients try to make a server with a budget of 16 MiB hold 80 MiB: it never does, and
/// a new client is served afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_over_the_memory_budget_are_evicted_and_new_clients_connect() {
    for shards in [1, 2] {
        let budget = 16 * MIB;
        let server = serve(server_config().memory_budget(budget), shards);
        // One after the other, because handshakes take memory too.
        let client = client();
        let mut held = Vec::new();
        let mut most = 0;
        for _ in 0..80 {
            held.push(burden(&client, &server, MIB).await);
            most = most.max(server.memory_used());
        }
        // The data of a batch is charged connection by connection.
        assert!(most <= budget + 2 * MIB, "{most} bytes");
        assert!(most > budget / 2, "{most} bytes: what was to be held is");
        assert!(total(&server, |shard| shard.evicted_for_memory) > 0);
        let newcomer = burden(&client, &server, 1_000).await.connection;
        ask(&newcomer).await.unwrap();
        assert_eq!(total(&server, |shard| shard.panics), 0);
        assert!(server.failure().is_none());
        drop(held);
        newcomer.close(0, b"");
        client.wait_idle().await;
        server.close(0, b"");
        server.wait_idle().await;
    }
}

/// A connection that transfers data stays; those that hold memory without transferring data are
/// evicted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_connection_survives_the_eviction_of_idle_ones_that_hold_memory() {
    let server = serve(server_config().memory_budget(12 * MIB), 1);
    let client = client();
    let busy = client.connect(server.local_addr(), "localhost").await;
    let busy = busy.unwrap();
    let asking = tokio::spawn(async move {
        for _ in 0..300 {
            ask(&busy).await?;
        }
        Ok::<_, String>(busy)
    });
    let mut holders = Vec::new();
    for _ in 0..40 {
        holders.push(burden(&client, &server, MIB).await);
    }
    let busy = asking.await.unwrap().expect("served throughout");
    assert!(busy.close_reason().is_none());
    let count = total(&server, |shard| shard.evicted_for_memory);
    assert!(count > 0);
    // Whose turn it was depends on when what arrived. Words may be lost on the way to a busy
    // client, not all of them.
    let told = |holder: &Burden| match holder.connection.close_reason() {
        Some(ConnectionError::PeerTransport(error)) => error.reason == "server out of memory",
        Some(error) => error == ConnectionError::StatelessReset,
        None => false,
    };
    while !holders.iter().any(told) {
        let open = |holder: &Burden| holder.connection.close_reason().is_none();
        assert!(holders.iter().any(open), "none was told");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Connections without data are charged too: ten thousand of them need memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_count_against_the_memory_budget() {
    let budget = 2 * MIB;
    let server = serve(server_config().memory_budget(budget), 1);
    let client = client();
    let mut connections = Vec::new();
    for n in 0..300 {
        let connecting = client.connect(server.local_addr(), "localhost");
        connections.push(connecting.await.unwrap());
        assert!(server.memory_used() <= budget + MIB, "after {n}");
    }
    // 16 KiB each, in 15/16 of the budget at least.
    let open = server.open_connections();
    assert!((100..=128).contains(&open), "{open} connections");
    drop(connections);
}

/// Once half of the budget is used, the windows of a new connection are a part of what is left,
/// so that it cannot exceed the budget at once.
#[tokio::test]
async fn new_connections_get_small_windows_while_memory_is_short() {
    let server = serve(server_config().memory_budget(4 * MIB), 1);
    let client = client();
    let mut quiet = Vec::new();
    while server.memory_used() < 9 * MIB / 4 {
        let connecting = client.connect(server.local_addr(), "localhost");
        quiet.push(connecting.await.unwrap());
    }
    let connecting = client.connect(server.local_addr(), "localhost");
    let newcomer = connecting.await.unwrap();
    let before = server.memory_used();
    let mut send = newcomer.open_uni().await.unwrap();
    let writing = tokio::spawn(async move { send.write_all(&pattern(1, MIB)).await });
    while !is_blocked(&newcomer) {
        assert_eq!(newcomer.close_reason(), None);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A quarter of 7/4 MiB in powers of two, not the 512 KiB that a stream begins with.
    let window = 256 << 10;
    let range = window..window + (64 << 10);
    let sent = newcomer.stats().counters.bytes_sent as usize;
    assert!(range.contains(&sent), "{sent} bytes");
    // The memory of the handshake is released.
    let held = server.memory_used() + (24 << 10) - before;
    assert!(range.contains(&held), "{held} bytes");
    assert_eq!(total(&server, |shard| shard.evicted_for_memory), 0);
    writing.abort();
}

/// Memory charged by the application limits windows and evicts like that of connections.
#[tokio::test]
async fn memory_charged_by_the_application_evicts_idle_connections() {
    let server = serve(server_config().memory_budget(4 * MIB), 1);
    let client = client();
    let mut quiet = Vec::new();
    for _ in 0..32 {
        let connecting = client.connect(server.local_addr(), "localhost");
        quiet.push(connecting.await.unwrap());
    }
    assert_eq!(total(&server, |shard| shard.evicted_for_memory), 0);
    let before = server.memory_used();
    let charge = server.memory_account().charge(15 * MIB / 4);
    assert_eq!(server.memory_used(), before + 15 * MIB / 4);
    // Each new client causes a turn of the shard.
    while total(&server, |shard| shard.evicted_for_memory) < 16 {
        let connecting = client.connect(server.local_addr(), "localhost");
        quiet.extend(connecting.await);
    }
    let open = server.open_connections();
    assert!(open <= 32, "{open} connections");
    drop(charge);
    assert!(server.memory_used() <= MIB);
}

/// The memory of connections that end is returned to the budget.
#[tokio::test]
async fn closed_connections_release_their_memory() {
    let server = serve(server_config().memory_budget(64 * MIB), 1);
    let client = client();
    let mut connections = Vec::new();
    for _ in 0..5 {
        connections.push(burden(&client, &server, MIB).await);
    }
    while server.memory_used() < 5 * MIB / 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for burden in &connections {
        burden.connection.close(0, b"");
    }
    drop(connections);
    client.wait_idle().await;
    server.wait_idle().await;
    // The application's last handles are dropped with its task.
    while server.memory_used() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn limited(connections: usize, evict_idle_after: Duration) -> ServerConfig {
    let mut limits = clearway::Limits::default();
    limits.connections = connections;
    server_config()
        .limits(limits)
        .evict_idle_after(evict_idle_after)
}

/// The connection that has been idle longest is closed for a new client.
#[tokio::test]
async fn longest_idle_connection_is_closed_for_a_new_client_near_the_limit() {
    let server = serve(limited(8, Duration::ZERO), 1);
    let client = client();
    let mut connections = Vec::new();
    for n in 0..20 {
        let connecting = client.connect(server.local_addr(), "localhost");
        let connection = connecting
            .await
            .unwrap_or_else(|error| panic!("{n}: {error}"));
        // It counts as idle after the shard has processed the end of the handshake.
        connection.handshake_complete().await.unwrap();
        connections.push(connection);
        assert!(server.open_connections() <= 8);
    }
    // The shard keeps one place free after its next turn.
    for (n, connection) in connections.iter().enumerate().take(12) {
        let error = connection.closed().await;
        let ConnectionError::PeerTransport(said) = &error else {
            panic!("{n}: {error}");
        };
        assert_eq!(said.code.to_string(), "NO_ERROR");
        assert_eq!(said.reason, "closed while idle because the server is full");
    }
    let last = &connections[19];
    assert!(last.close_reason().is_none());
    assert!(total(&server, |shard| shard.evicted_for_new_clients) >= 12);
    assert_eq!(total(&server, |shard| shard.endpoint.refused), 0);
}

/// Connections with an open stream are not evicted, however long they are idle.
#[tokio::test]
async fn connections_with_an_open_stream_are_not_evicted() {
    let server = serve(limited(8, Duration::ZERO), 1);
    let client = client();
    let mut busy = Vec::new();
    for _ in 0..6 {
        let connection = client.connect(server.local_addr(), "localhost").await;
        let connection = connection.unwrap();
        let mut send = connection.open_uni().await.unwrap();
        send.write_all(b"more follows").await.unwrap();
        // The answer shows that everything sent before has arrived.
        ask(&connection).await.unwrap();
        busy.push((connection, send));
    }
    for _ in 0..20 {
        let connection = client.connect(server.local_addr(), "localhost").await;
        // It is idle, and so the first to be evicted.
        connection.unwrap().handshake_complete().await.unwrap();
    }
    assert!(total(&server, |shard| shard.evicted_for_new_clients) > 0);
    for (connection, _) in &busy {
        ask(connection).await.unwrap();
    }
}

/// A new client is refused when no connection has been idle for long enough.
#[tokio::test]
async fn new_client_is_refused_when_no_connection_can_be_evicted() {
    let server = serve(limited(4, Duration::from_secs(3_600)), 1);
    let client = client();
    let mut connections = Vec::new();
    for _ in 0..4 {
        let connection = client.connect(server.local_addr(), "localhost").await;
        connections.push(connection.unwrap());
    }
    let error = client.connect(server.local_addr(), "localhost").await;
    let error = error.unwrap_err();
    assert!(
        matches!(
            &error,
            ConnectError::Connection(ConnectionError::PeerTransport(said))
                if said.code.to_string() == "CONNECTION_REFUSED"
        ),
        "{error}"
    );
    for connection in &connections {
        ask(connection).await.unwrap();
    }
    assert_eq!(total(&server, |shard| shard.evicted_for_new_clients), 0);
    // When one of them ends, there is a place again.
    connections.pop().unwrap().close(0, b"");
    let connection = loop {
        match client.connect(server.local_addr(), "localhost").await {
            Ok(connection) => break connection,
            Err(error) => assert!(error.to_string().contains("too many"), "{error}"),
        }
    };
    assert!(connection.close_reason().is_none());
}
