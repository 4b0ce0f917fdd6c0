//! Transfers between endpoints whose sockets are flooded with forged ICMP errors.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::SocketAddr;
use std::time::Duration;

use clearway::udp::testing::{Flood, Forger, IcmpMessage};
use clearway::{Connection, Endpoint};

use crate::common::{Pair, client_config, pattern, server_config};

const SIZE: usize = 2_000_000;

/// Sends forged errors of every kind as fast as possible. Returns `None`, with a message on
/// stderr, where raw sockets are not permitted.
fn flood(local: SocketAddr) -> Option<Flood> {
    // Not an address that others use: the host remembers a path MTU for it.
    let elsewhere = if local.is_ipv4() {
        SocketAddr::from(([127, 9, 9, 9], 9))
    } else {
        "[2001:db8::9]:9".parse().unwrap()
    };
    match Forger::new(local, elsewhere) {
        Ok(forger) => Some(forger.flood(IcmpMessage::all(local.ip()))),
        Err(error) => {
            eprintln!("skipped: forging ICMP needs a raw socket (CAP_NET_RAW): {error}");
            None
        }
    }
}

async fn echo(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        tokio::io::copy(&mut recv, &mut send).await.unwrap();
        send.finish().unwrap();
    }
}

async fn transfer_under_flood(address: &str) {
    let address = address.parse().unwrap();
    let Ok(server) = Endpoint::server(address, server_config()) else {
        eprintln!("skipped: no address {address}");
        return;
    };
    let client = Endpoint::client(address, client_config()).unwrap();
    let floods = (flood(server.local_addr()), flood(client.local_addr()));
    let (Some(to_server), Some(to_client)) = floods else {
        return;
    };
    while to_server.sent() < 100 || to_client.sent() < 100 {
        tokio::task::yield_now().await;
    }
    let pair = Pair::of(server, client).await;
    tokio::spawn(echo(pair.far.clone()));
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    let content = pattern(1, SIZE);
    let sent = content.clone();
    let sending = tokio::spawn(async move {
        send.write_all(&sent).await.unwrap();
        send.finish().unwrap();
    });
    assert!(recv.read_to_end(SIZE).await.unwrap() == content);
    sending.await.unwrap();
    for endpoint in [&pair.server, &pair.client] {
        let counters = &endpoint.counters()[0];
        let socket = counters.socket;
        // Those that calls met, and those that were read before any did.
        let heard = socket.icmp_errors + counters.icmp_errors;
        assert!(heard > 0, "the flood reached it");
        assert_eq!(
            (socket.send_drops, socket.send_too_large),
            (0, 0),
            "{socket:?}"
        );
        assert_eq!(socket.gso_refusals, 0);
    }
}

#[tokio::test]
async fn transfer_over_ipv4_finishes_while_both_sockets_are_flooded() {
    transfer_under_flood("127.0.0.1:0").await;
}

#[tokio::test]
async fn transfer_over_ipv6_finishes_while_both_sockets_are_flooded() {
    transfer_under_flood("[::1]:0").await;
}

/// Errors fill the receive buffer of an idle server, which then receives no datagrams: unless it
/// reads them, no client ever reaches it again.
#[tokio::test]
async fn idle_server_answers_after_a_flood_that_fills_its_receive_buffer() {
    let server = Endpoint::server("127.0.0.1:0".parse().unwrap(), server_config()).unwrap();
    let Some(flood) = flood(server.local_addr()) else {
        return;
    };
    // Each takes more than half a kilobyte, and no system grants more than a few megabytes.
    while flood.sent() < 40_000 {
        tokio::task::yield_now().await;
    }
    drop(flood);
    let client = Endpoint::client("127.0.0.1:0".parse().unwrap(), client_config()).unwrap();
    let connecting = Pair::of(server, client);
    let pair = tokio::time::timeout(Duration::from_secs(60), connecting).await;
    let pair = pair.expect("a client reaches the server");
    assert!(pair.server.counters()[0].socket.icmp_pauses > 0);
}
