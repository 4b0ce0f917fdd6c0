//! The settings of an endpoint.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::{Arc, Mutex};

use super::limits::Limits;
use crate::cid::generator::{CidGenerator, RandomGenerator};
use crate::connection::Config;
use crate::crypto::{ReplayFilter, ResetKey, TokenKey};
use crate::rng::Rng;

/// Creates a connection-ID generator for each connection.
pub type GeneratorFactory = Arc<dyn Fn() -> Box<dyn CidGenerator> + Send + Sync>;

/// The settings of a server in addition to the transport settings.
#[derive(Clone)]
pub struct ServerConfig {
    /// TLS settings, from [`ServerCrypto`](crate::crypto::ServerCrypto).
    pub crypto: Arc<rustls::ServerConfig>,
    /// The key that protects Retry and NEW_TOKEN tokens. Use the same key across restarts
    /// and shards.
    pub token_key: Arc<TokenKey>,
    /// Recognises NEW_TOKEN tokens that were used before. Shared by all shards.
    pub replay: Arc<Mutex<ReplayFilter>>,
    /// Whether to validate every address by Retry, and not only under load.
    pub always_retry: bool,
    /// Limits on handshakes and connections.
    pub limits: Limits,
    /// The preferred addresses that clients should move to (RFC 9000 §9.6).
    pub preferred_address: Option<(Option<SocketAddrV4>, Option<SocketAddrV6>)>,
}

/// Settings of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// The transport settings of every connection.
    pub transport: Arc<Config>,
    /// The settings of the server; `None` = only client connections.
    pub server: Option<ServerConfig>,
    /// Derives stateless reset tokens. Use the same key across restarts, so that a
    /// restarted server can reset its old connections.
    pub reset_key: Arc<ResetKey>,
    /// Creates the connection-ID generator of each connection, and one for the endpoint. The
    /// lengths of the IDs must be those of [`CidGenerator::cid_lengths`].
    pub generator: GeneratorFactory,
}

impl EndpointConfig {
    /// Returns the settings of an endpoint for client connections, with random connection
    /// IDs of eight bytes.
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
