//! A server and a client that trusts it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::LazyLock;

use clearway::{ClientConfig, Connection, DevelopmentIdentity, Endpoint, ServerConfig};

pub(crate) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

pub(crate) static IDENTITY: LazyLock<DevelopmentIdentity> =
    LazyLock::new(|| DevelopmentIdentity::generate(["localhost"]).expect("an identity"));

pub(crate) fn server_config() -> ServerConfig {
    ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem())
        .expect("server settings")
        .alpn(["test"])
}

pub(crate) fn client_config() -> ClientConfig {
    ClientConfig::with_roots(IDENTITY.certificate_pem())
        .expect("client settings")
        .alpn(["test"])
}

pub(crate) fn server() -> Endpoint {
    Endpoint::server(LOOPBACK, server_config()).expect("a server")
}

pub(crate) fn client() -> Endpoint {
    Endpoint::client(LOOPBACK, client_config()).expect("a client")
}

/// A connection, both ends of it, and what keeps them alive.
pub(crate) struct Pair {
    pub(crate) server: Endpoint,
    pub(crate) client: Endpoint,
    pub(crate) near: Connection,
    pub(crate) far: Connection,
}

impl Pair {
    /// A server without a thread of its own.
    pub(crate) async fn on_caller_runtime() -> Self {
        let server = Endpoint::builder(LOOPBACK)
            .server(server_config())
            .on_caller_runtime()
            .build()
            .expect("an endpoint");
        Self::of(server, client()).await
    }

    pub(crate) async fn new() -> Self {
        Self::of(server(), client()).await
    }

    pub(crate) async fn of(server: Endpoint, client: Endpoint) -> Self {
        let (near, far) = tokio::join!(
            client
                .connect(server.local_addr(), "localhost")
                .into_future(),
            server.accept()
        );
        Self {
            near: near.expect("connects"),
            far: far.expect("a shard that works").expect("accepts"),
            server,
            client,
        }
    }
}

/// Binds an address that a server which was closed has used: its thread may not have closed the
/// socket yet.
pub(crate) async fn bind_again<T, E: std::fmt::Display>(
    address: SocketAddr,
    bind: impl Fn(SocketAddr) -> Result<T, E>,
) -> T {
    for _ in 0..2_000 {
        if let Ok(bound) = bind(address) {
            return bound;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    match bind(address) {
        Ok(bound) => bound,
        Err(error) => panic!("{error}"),
    }
}

/// Bytes that depend on their offset.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
