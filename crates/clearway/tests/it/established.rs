//! Established connections: migration, key updates, timeouts, observers.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{LOOPBACK, Pair, client, client_config, pattern, server, server_config};
use clearway::{Endpoint, Observer, Role, TraceEvent, TransportConfig};

/// No data is lost when the client moves to another socket during a transfer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_survives_a_rebind() {
    const PIECE: usize = 1 << 20;
    let pair = Pair::new().await;
    let old = pair.client.local_addr();
    let far = pair.far.clone();
    let reader = tokio::spawn(async move {
        let mut recv = far.accept_uni().await.unwrap();
        recv.read_to_end(8 * PIECE).await.unwrap()
    });
    let content = pattern(1, 6 * PIECE);
    let mut send = pair.near.open_uni().await.unwrap();
    for (index, piece) in content.chunks(PIECE).enumerate() {
        if index == 3 {
            pair.client
                .rebind(UdpSocket::bind(LOOPBACK).unwrap())
                .unwrap();
        }
        send.write_all(piece).await.unwrap();
    }
    send.finish().unwrap();
    send.finished().await.unwrap();
    assert!(reader.await.unwrap() == content);
    assert_ne!(pair.client.local_addr(), old);
    assert_eq!(pair.far.remote_address(), pair.client.local_addr());
}

#[tokio::test]
async fn times_of_limits_sum_to_the_connections_lifetime() {
    let (server, client) = (server(), client());
    let before = Instant::now();
    let connecting = client.connect(server.local_addr(), "localhost");
    let begun = Instant::now();
    let near = connecting.await.unwrap();
    let far = server.accept().await.unwrap().unwrap();
    let mut send = near.open_uni().await.unwrap();
    let reader = tokio::spawn(async move {
        let mut recv = far.accept_uni().await.unwrap();
        recv.read_to_end(4 << 20).await.unwrap().len()
    });
    send.write_all(&pattern(1, 2 << 20)).await.unwrap();
    send.finish().unwrap();
    assert_eq!(reader.await.unwrap(), 2 << 20);
    let at_least = begun.elapsed();
    let stats = near.stats();
    let at_most = before.elapsed();
    let sum: Duration = stats.limits.iter().map(|(_, spent)| *spent).sum();
    assert!(
        at_least <= sum && sum <= at_most,
        "{at_least:?} {sum:?} {at_most:?} {:?}",
        stats.limits
    );
    assert!(stats.counters.bytes_sent > 2 << 20);
    assert!(stats.counters.packets_sent > 1000);
    assert!(stats.min_rtt.is_some());
    assert_eq!(near.role(), Role::Client);
}

#[tokio::test]
async fn key_updates_during_a_transfer_lose_nothing() {
    let pair = Pair::new().await;
    let far = pair.far.clone();
    tokio::spawn(async move {
        while let Ok((mut send, mut recv)) = far.accept_bi().await {
            tokio::io::copy(&mut recv, &mut send).await.unwrap();
            send.finish().unwrap();
        }
    });
    let mut updates = 0;
    while updates < 3 {
        let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
        send.write_all(b"x").await.unwrap();
        send.finish().unwrap();
        assert_eq!(recv.read_to_end(1).await.unwrap(), b"x");
        // It fails until the update before is acknowledged.
        updates += u64::from(pair.near.update_keys().is_ok());
    }
    assert!(pair.near.stats().counters.key_updates >= 3);
    assert!(pair.far.stats().counters.key_updates >= 2);
    pair.near.ping();
}

/// A connection with keep-alive outlasts the idle timeout, one without does not.
#[tokio::test]
async fn idle_connection_without_keep_alive_times_out() {
    let mut transport = TransportConfig::default();
    transport.idle_timeout = Duration::from_secs(1);
    let quiet = Endpoint::client(LOOPBACK, client_config().transport(transport.clone())).unwrap();
    transport.keep_alive = Some(Duration::from_millis(50));
    let alive = Endpoint::client(LOOPBACK, client_config().transport(transport)).unwrap();
    let server = Endpoint::server(LOOPBACK, server_config()).unwrap();
    let alive = Pair::of(server.clone(), alive).await;
    let quiet = Pair::of(server, quiet).await;
    assert_eq!(
        quiet.near.closed().await,
        clearway::ConnectionError::IdleTimeout
    );
    assert_eq!(
        quiet.far.closed().await,
        clearway::ConnectionError::IdleTimeout
    );
    assert_eq!(alive.near.close_reason(), None);
    assert_eq!(alive.far.close_reason(), None);
}

#[derive(Debug)]
struct Count(Arc<Mutex<[u64; 2]>>);

impl Observer for Count {
    fn on_event(&mut self, _: clearway::Instant, event: &TraceEvent<'_>) {
        let mut counts = self.0.lock().unwrap();
        match event {
            TraceEvent::PacketSent { .. } => counts[0] += 1,
            TraceEvent::PacketReceived { .. } => counts[1] += 1,
            _ => {}
        }
    }
}

#[tokio::test]
async fn observers_see_events_from_the_first_packet_on() {
    let counts = Arc::new(Mutex::new([0; 2]));
    let client = Endpoint::builder(LOOPBACK)
        .client(client_config())
        .observe({
            let counts = counts.clone();
            move |role, _| {
                assert_eq!(role, Role::Client);
                Some(Box::new(Count(counts.clone())))
            }
        })
        .build()
        .unwrap();
    let pair = Pair::of(server(), client).await;
    let later = Arc::new(Mutex::new([0; 2]));
    pair.far.set_observer(Box::new(Count(later.clone())));
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    pair.far.accept_uni().await.unwrap();
    let stats = pair.near.stats().counters;
    let [sent, received] = *counts.lock().unwrap();
    assert!(sent >= stats.packets_sent, "{sent} {stats:?}");
    assert!(received >= stats.packets_received, "{received} {stats:?}");
    assert!(later.lock().unwrap()[1] > 0);
}

/// A socket for both families connects to a server that listens on one of two addresses,
/// whichever is tried first.
#[tokio::test]
async fn connect_any_uses_the_address_that_answers() {
    let server = crate::common::server();
    let right = server.local_addr();
    tokio::spawn(async move {
        while let Ok(Some(connection)) = server.accept().await {
            tokio::spawn(async move { connection.closed().await });
        }
    });
    // Receives datagrams and never answers.
    let mute = std::net::UdpSocket::bind("[::1]:0").unwrap();
    let wrong = mute.local_addr().unwrap();
    let client =
        Endpoint::client("[::]:0".parse().unwrap(), crate::common::client_config()).unwrap();
    for addresses in [[wrong, right], [right, wrong]] {
        let connection = client.connect_any(addresses, "localhost").await.unwrap();
        assert_eq!(connection.remote_address().port(), right.port());
        connection.close(0, b"");
    }
    let unreachable = "127.0.0.1:0".parse().unwrap();
    let error = client.connect_any([unreachable], "localhost").await;
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("127.0.0.1:0: "), "{error}");
    let none = client.connect_any([], "localhost").await;
    assert!(matches!(none, Err(clearway::ConnectAnyError::NoAddress)));
}
