//! What an endpoint is made with.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::{Arc, Mutex};

use super::limits::Limits;
use crate::cid::generator::{CidGenerator, RandomGenerator};
use crate::connection::Config;
use crate::crypto::{ReplayFilter, ResetKey, TokenKey};
use crate::rng::Rng;

/// Makes a connection-ID generator for each connection.
pub type GeneratorFactory = Arc<dyn Fn() -> Box<dyn CidGenerator> + Send + Sync>;

/// What a server needs beside the transport settings.
#[derive(Clone)]
pub struct ServerConfig {
    /// TLS settings, from [`ServerCrypto`](crate::crypto::ServerCrypto).
    pub crypto: Arc<rustls::ServerConfig>,
    /// Seals Retry and NEW_TOKEN tokens; the same key over restarts and shards.
    pub token_key: Arc<TokenKey>,
    /// NEW_TOKEN tokens seen, shared over shards.
    pub replay: Arc<Mutex<ReplayFilter>>,
    /// Validate every address by Retry, not only under load.
    pub always_retry: bool,
    /// Bounds on handshakes and connections.
    pub limits: Limits,
    /// Addresses clients should move to (RFC 9000 §9.6).
    pub preferred_address: Option<(Option<SocketAddrV4>, Option<SocketAddrV6>)>,
}

/// Settings of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// For every connection.
    pub transport: Arc<Config>,
    /// `None` = clients only.
    pub server: Option<ServerConfig>,
    /// Derives stateless reset tokens; the same over restarts, so that a
    /// restarted server can tell its old clients.
    pub reset_key: Arc<ResetKey>,
    /// Connection IDs of every connection; all of one length.
    pub generator: GeneratorFactory,
}

impl EndpointConfig {
    /// Clients only, with random eight-byte connection IDs.
    #[must_use]
    pub fn client(transport: Arc<Config>, rng: &mut Rng) -> Self {
        Self {
            transport,
            server: None,
            reset_key: Arc::new(ResetKey::new(&rng.array())),
            generator: Arc::new(|| Box::new(RandomGenerator::new(8))),
        }
    }
}
