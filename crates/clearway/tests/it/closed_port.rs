//! Connecting to a port where nobody listens.
#![cfg(target_os = "linux")]

use std::net::UdpSocket;
use std::time::Duration;

use clearway::{ConnectError, ConnectionError, Endpoint, TransportConfig};

use crate::common::{LOOPBACK, client_config};

/// Only an ICMP error can end this before an hour is over.
#[tokio::test]
async fn connect_to_closed_port_fails_long_before_its_timeouts() {
    let mut transport = TransportConfig::default();
    transport.handshake_timeout = Duration::from_secs(3_600);
    transport.idle_timeout = Duration::from_secs(3_600);
    let config = client_config().transport(transport);
    let client = Endpoint::client(LOOPBACK, config).expect("a client");
    let closed = UdpSocket::bind(LOOPBACK).and_then(|socket| socket.local_addr());
    let connecting = client.connect(closed.expect("a port"), "localhost");
    let end = tokio::time::timeout(Duration::from_secs(300), connecting).await;
    let error = end.expect("it gives up").err();
    assert!(
        matches!(
            error,
            Some(ConnectError::Connection(ConnectionError::HandshakeTimeout))
        ),
        "{error:?}"
    );
}
