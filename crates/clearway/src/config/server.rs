//! How a server serves.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_quic::connection::Config;
use clearway_quic::crypto::{
    ClientAuth, ConfigError, Identity, ReplayFilter, ServerCrypto, TokenKey,
};
use clearway_quic::endpoint::{self, Limits};
use clearway_recovery::congestion::CongestionControl;

use super::Certificates;
use super::memory::default_budget;
use crate::endpoint::AdmitCallback;

/// NEW_TOKEN tokens remembered as used, of one server.
const REPLAY_CAPACITY: usize = 64 * 1024;

/// Connections that may wait for [`Endpoint::accept`](crate::Endpoint::accept)
/// unless configured.
const DEFAULT_BACKLOG: usize = 1024;

/// How long a connection has to have done nothing before it makes room for a newcomer,
/// unless configured: many times what a client takes between two requests of one page.
const EVICT_IDLE_AFTER: Duration = Duration::from_secs(10);

/// What to do with a client before anything is spent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Let the handshake begin.
    Accept,
    /// Answer CONNECTION_REFUSED.
    Refuse,
}

/// Settings of a server. Every default is meant to be left alone.
#[derive(Clone)]
#[must_use]
pub struct ServerConfig {
    crypto: ServerCrypto,
    transport: Config,
    always_retry: bool,
    limits: Limits,
    secret: Option<[u8; 32]>,
    preferred_address: Option<(Option<SocketAddrV4>, Option<SocketAddrV6>)>,
    pub(crate) admit: Option<AdmitCallback>,
    pub(crate) backlog: usize,
    pub(crate) memory_budget: usize,
    pub(crate) evict_idle_after: Duration,
}

impl ServerConfig {
    /// A server with one certificate for every name: its chain, leaf first, and
    /// its key, PEM.
    ///
    /// # Errors
    /// If either cannot be parsed.
    pub fn with_identity(
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Result<Self, ConfigError> {
        let identity = Identity::from_pem(certificates_pem.as_ref(), key_pem.as_ref())?;
        Ok(Self::with_crypto(ServerCrypto::new(identity)))
    }

    /// A server whose certificates depend on the name a client asks for, and
    /// may be replaced while it runs.
    pub fn with_certificates(certificates: &Certificates) -> Self {
        Self::with_crypto(ServerCrypto::with_resolver(certificates.resolver()))
    }

    /// A server with full control of TLS: certificates by name, clocks, session
    /// store, algorithms, key log.
    pub fn with_crypto(crypto: ServerCrypto) -> Self {
        Self {
            crypto,
            transport: Config::default(),
            always_retry: false,
            limits: Limits::default(),
            secret: None,
            preferred_address: None,
            admit: None,
            backlog: DEFAULT_BACKLOG,
            memory_budget: default_budget(),
            evict_idle_after: EVICT_IDLE_AFTER,
        }
    }

    /// Application protocols, most preferred first; a client without any of
    /// them is refused.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.crypto = self.crypto.alpn(protocols);
        self
    }

    /// Stream counts, windows, timeouts, the congestion controller.
    pub fn transport(mut self, transport: Config) -> Self {
        self.transport = transport;
        self
    }

    /// Congestion control of every path, in place of what
    /// [`transport`](Self::transport) has said so far: one of ours
    /// ([`CongestionController`](crate::CongestionController)), or one of your own.
    /// CUBIC by default, which shares a bottleneck fairly with what most hosts run.
    /// [`ClientConfig::congestion_control`](crate::ClientConfig::congestion_control) has
    /// an example of one's own.
    pub fn congestion_control(mut self, control: impl Into<CongestionControl>) -> Self {
        self.transport.controller = control.into();
        self
    }

    /// Validate every client's address by a Retry, at the price of a round
    /// trip. By default only under load.
    pub fn always_retry(mut self, always: bool) -> Self {
        self.always_retry = always;
        self
    }

    /// Accept 0-RTT data; off by default, because an attacker on the path may
    /// replay it (RFC 9001 §9.2). Connections then come out of
    /// [`Endpoint::accept`](crate::Endpoint::accept) as soon as they carry such
    /// data; [`Connection::handshake_complete`](crate::Connection::handshake_complete) waits for
    /// proof that it is no replay.
    pub fn early_data(mut self, accept: bool) -> Self {
        self.crypto = self.crypto.early_data(accept);
        self
    }

    /// Whether clients must show a certificate; not by default.
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.crypto = self.crypto.client_auth(client_auth);
        self
    }

    /// The secret behind tokens and stateless resets. With the same one after a
    /// restart, clients of the previous run learn at once that their
    /// connections are gone, and their tokens stay good. Random by default.
    pub fn secret(mut self, secret: [u8; 32]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Bounds on handshakes under way and on connections, in all and of one source, over
    /// all shards of the endpoint.
    ///
    /// When nearly all of `limits.connections` are taken, the shards keep a place free
    /// for a newcomer: they close the connection that has done nothing for longest, if
    /// no request or stream is open on it and that for at least
    /// [`evict_idle_after`](Self::evict_idle_after). While there is none, newcomers
    /// are refused when all are taken.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Addresses clients should move to after the handshake (RFC 9000 §9.6).
    pub fn preferred_address(mut self, v4: Option<SocketAddrV4>, v6: Option<SocketAddrV6>) -> Self {
        self.preferred_address = Some((v4, v6));
        self
    }

    /// Asks `admit` about every new client's address, which may be
    /// spoofed. It is called on the event loop: be quick.
    pub fn admit(
        mut self,
        admit: impl Fn(SocketAddr) -> Admission + Send + Sync + 'static,
    ) -> Self {
        self.admit = Some(Arc::new(admit));
        self
    }

    /// Bytes of memory that the connections of the endpoint may take together, over
    /// all shards: what they buffer in either direction, and what each costs besides.
    /// By default a quarter of the memory of the machine (or of its control group), at
    /// most 1 GiB, which is enough for 80 Gbit/s at 100 ms.
    ///
    /// From half of it on, each connection may buffer a share of what is left, so
    /// that windows narrow; newcomers begin with narrow windows (except where 0-RTT
    /// data is accepted, which forbids it, RFC 9000 §7.4.1). When it is exceeded, those
    /// connections are closed that take the most for the longest without moving any
    /// data, until a sixteenth is free again; their peers hear INTERNAL_ERROR, "server
    /// out of memory". Newcomers are let in all the while.
    ///
    /// Not part of it is what does not grow with connections, some 3 MiB for each
    /// shard, and what the application itself keeps, unless it charges that to
    /// [`Endpoint::memory_account`](crate::Endpoint::memory_account).
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// How long a connection without an open request or stream has to have done
    /// nothing before it may be closed in favour of a newcomer
    /// ([`limits`](Self::limits)); 10 s by default.
    pub fn evict_idle_after(mut self, idle: Duration) -> Self {
        self.evict_idle_after = idle;
        self
    }

    /// Connections that may wait for [`Endpoint::accept`](crate::Endpoint::accept)
    /// before new clients are refused; 1,024 by default.
    pub fn backlog(mut self, connections: usize) -> Self {
        self.backlog = connections;
        self
    }

    /// What the transport needs, and the secret for stateless resets. `random`
    /// stands in for a secret that was not configured.
    pub(crate) fn into_transport(
        self,
        random: [u8; 32],
    ) -> Result<(endpoint::ServerConfig, Arc<Config>, [u8; 32]), ConfigError> {
        let secret = self.secret.unwrap_or(random);
        let server = endpoint::ServerConfig {
            crypto: self.crypto.build()?,
            token_key: Arc::new(TokenKey::new(&secret)),
            replay: Arc::new(Mutex::new(ReplayFilter::new(REPLAY_CAPACITY))),
            always_retry: self.always_retry,
            limits: self.limits,
            preferred_address: self.preferred_address,
        };
        Ok((server, Arc::new(self.transport), secret))
    }
}

impl std::fmt::Debug for ServerConfig {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConfig")
            .field("crypto", &self.crypto)
            .field("transport", &self.transport)
            .field("always_retry", &self.always_retry)
            .field("limits", &self.limits)
            .field("backlog", &self.backlog)
            .field("memory_budget", &self.memory_budget)
            .finish_non_exhaustive()
    }
}
