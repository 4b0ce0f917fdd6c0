//! Configuration of servers.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_quic::connection::Config;
use clearway_quic::crypto::{
    ClientAuth, ConfigError, Identity, ReplayFilter, ServerCrypto, TokenKey,
};
use clearway_quic::endpoint::{self, Limits};
use clearway_quic::wire::VersionPreference;
use clearway_recovery::congestion::CongestionControl;

use super::Certificates;
use super::memory::default_budget;
use crate::endpoint::AdmitCallback;
use crate::shard::Clock;

/// NEW_TOKEN tokens that a server remembers as used.
const REPLAY_CAPACITY: usize = 64 * 1024;

/// Default of [`ServerConfig::backlog`].
const DEFAULT_BACKLOG: usize = 1024;

/// Default of [`ServerConfig::evict_idle_after`]: many times the pause of a client between two
/// requests for one page.
const EVICT_IDLE_AFTER: Duration = Duration::from_secs(10);

/// The decision about a new client, before anything is spent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Begins the handshake.
    Accept,
    /// Refuses the connection with CONNECTION_REFUSED.
    Refuse,
}

/// Configuration of a server. The defaults suit most servers.
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
    /// Uses one certificate for every name: its chain, leaf first, and its key, in PEM.
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

    /// Uses certificates that depend on the name a client asks for, and that can be replaced
    /// while the server runs.
    pub fn with_certificates(certificates: &Certificates) -> Self {
        Self::with_crypto(ServerCrypto::with_resolver(certificates.resolver()))
    }

    /// Uses these TLS settings, which control certificates, clocks, the session store,
    /// algorithms and the key log.
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

    /// Sets the application protocols (ALPN), most preferred first. A client that supports
    /// none of them is refused.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.crypto = self.crypto.alpn(protocols);
        self
    }

    /// Sets the transport configuration: stream counts, windows, timeouts, the congestion
    /// controller. It replaces what
    /// [`congestion_control`](Self::congestion_control) set before.
    pub fn transport(mut self, transport: Config) -> Self {
        self.transport = transport;
        self
    }

    /// Sets the congestion control of every path, in place of the one in
    /// [`transport`](Self::transport): a built-in one
    /// ([`CongestionController`](crate::CongestionController)), or one of your own, of which
    /// [`ClientConfig::congestion_control`](crate::ClientConfig::congestion_control) has an
    /// example. The default is CUBIC, which shares a bottleneck fairly with what most hosts
    /// use. A later call of [`transport`](Self::transport) replaces it again.
    pub fn congestion_control(mut self, control: impl Into<CongestionControl>) -> Self {
        self.transport.controller = control.into();
        self
    }

    /// Sets the QUIC versions that clients may use, most preferred first, in place of those in
    /// [`transport`](Self::transport). A client is switched to the first one that it speaks, without
    /// a round trip; one that begins with a version that is not listed is told which are. By default
    /// version 1, then version 2, so that a client is not switched away from version 1: that costs
    /// the handshake some key derivations, and both versions have the same features.
    pub fn versions(mut self, versions: VersionPreference) -> Self {
        self.transport.versions = versions;
        self
    }

    /// Whether to validate every client's address with a Retry packet, which costs a round
    /// trip. By default that is done only under load.
    pub fn always_retry(mut self, always: bool) -> Self {
        self.always_retry = always;
        self
    }

    /// Whether to accept 0-RTT data. Off by default, because an attacker on the path may
    /// replay it (RFC 9001 §9.2). If it is on, [`Endpoint::accept`](crate::Endpoint::accept)
    /// returns connections as soon as they have such data, and
    /// [`Connection::handshake_complete`](crate::Connection::handshake_complete) waits for
    /// proof that it is not a replay.
    pub fn early_data(mut self, accept: bool) -> Self {
        self.crypto = self.crypto.early_data(accept);
        self
    }

    /// Sets whether clients must have a certificate. The default is no, as on the web.
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.crypto = self.crypto.client_auth(client_auth);
        self
    }

    /// Sets the secret for address tokens and stateless resets. With the same secret after a
    /// restart, clients of the previous run learn at once that their connections are gone,
    /// and their tokens stay valid. Random by default.
    pub fn secret(mut self, secret: [u8; 32]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Sets the limits on handshakes in progress and on connections, in total and by source,
    /// over all shards of the endpoint.
    ///
    /// When nearly all of `limits.connections` are in use, the shards keep a place free for a
    /// new client: they close the connection that has been idle longest, if it has no open
    /// request or stream and has been idle for at least
    /// [`evict_idle_after`](Self::evict_idle_after). While there is no such connection, new
    /// clients are refused once all places are in use.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the addresses to which clients should migrate after the handshake (RFC 9000 §9.6).
    pub fn preferred_address(mut self, v4: Option<SocketAddrV4>, v6: Option<SocketAddrV6>) -> Self {
        self.preferred_address = Some((v4, v6));
        self
    }

    /// Calls `admit` with the address of every new client, which may be spoofed. It is called
    /// on the event loop and has to be quick. By default every client is admitted.
    pub fn admit(
        mut self,
        admit: impl Fn(SocketAddr) -> Admission + Send + Sync + 'static,
    ) -> Self {
        self.admit = Some(Arc::new(admit));
        self
    }

    /// Sets the memory that the connections of the endpoint may use together, over all
    /// shards, in bytes: their buffers in both directions, and the fixed cost of each. The
    /// default is a quarter of the memory of the machine (or of its control group), at most
    /// 1 GiB, which is enough for 80 Gbit/s at 100 ms.
    ///
    /// When half of it is used, each connection may buffer a part of what is left, so that
    /// windows shrink, though not below an eighth of what it has transferred, up to 256 KiB, or a
    /// 64th of it, up to 1 MiB; new connections begin with small windows (except where 0-RTT data
    /// is accepted, which forbids it, RFC 9000 §7.4.1). From seven eighths on, connections that
    /// have transferred nothing for two seconds (up to eleven, if they did much before) are
    /// closed. When the budget is exceeded, any are, until a sixteenth is free again: first those
    /// that hold the most memory for the longest time without transferring data.
    /// Their peers receive INTERNAL_ERROR, "server out of memory". New clients are still accepted.
    ///
    /// Memory that does not grow with connections is not part of it, some 3 MiB for each
    /// shard; nor is the application's own, unless it is charged to
    /// [`Endpoint::memory_account`](crate::Endpoint::memory_account).
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Sets how long a connection without an open request or stream has to be idle before it
    /// may be closed in favour of a new client ([`limits`](Self::limits)). The default is
    /// 10 s, many times the pause of a client between two requests for one page.
    pub fn evict_idle_after(mut self, idle: Duration) -> Self {
        self.evict_idle_after = idle;
        self
    }

    /// Sets how many connections may wait for [`Endpoint::accept`](crate::Endpoint::accept)
    /// before new clients are refused. The default is 1,024, so that a short pause of the
    /// application refuses nobody.
    pub fn backlog(mut self, connections: usize) -> Self {
        self.backlog = connections;
        self
    }

    /// Returns the transport's configuration and the secret for stateless resets, which is
    /// `random` if none was configured.
    pub(crate) fn into_transport(
        self,
        random: [u8; 32],
    ) -> Result<(endpoint::ServerConfig, Arc<Config>, [u8; 32]), ConfigError> {
        let replay = ReplayFilter::new(REPLAY_CAPACITY);
        // Before a restart with the same secret, tokens may have been used that this filter does
        // not know (RFC 9000 §8.1.4). Their clients are validated again.
        let replay = match self.secret {
            Some(_) => replay.distrusting_until(Clock::unix_seconds()),
            None => replay,
        };
        let secret = self.secret.unwrap_or(random);
        let server = endpoint::ServerConfig {
            crypto: self.crypto.build()?,
            token_key: Arc::new(TokenKey::new(&secret)),
            replay: Arc::new(Mutex::new(replay)),
            always_retry: self.always_retry,
            limits: self.limits,
            preferred_address: self.preferred_address,
        };
        Ok((server, Arc::new(self.transport), secret))
    }
}

impl std::fmt::Debug for ServerConfig {
    /// Shows everything but the secret.
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

#[cfg(test)]
mod tests {
    use clearway_quic::crypto::AddressToken;

    use super::*;
    use crate::DevelopmentIdentity;

    /// Returns whether a server that starts now with `secret` accepts a NEW_TOKEN token that was
    /// issued `after` seconds from now.
    fn accepts(secret: Option<[u8; 32]>, after: u64) -> bool {
        let identity = DevelopmentIdentity::generate(["localhost"]).expect("an identity");
        let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem());
        let mut config = config.expect("server settings");
        if let Some(secret) = secret {
            config = config.secret(secret);
        }
        let issued = Clock::unix_seconds() - 60 + after;
        let (server, ..) = config.into_transport([1; 32]).expect("server settings");
        let token = AddressToken {
            version: clearway_quic::wire::Version::V1,
            issued,
            ip: [127, 0, 0, 1].into(),
            id: [7; 16],
            path: None,
        };
        server.replay.lock().expect("one thread").admit(&token)
    }

    #[test]
    fn tokens_issued_before_a_restart_with_the_same_secret_are_rejected() {
        assert!(!accepts(Some([2; 32]), 0));
        assert!(accepts(Some([2; 32]), 600));
        // Nobody else has sealed tokens with a random secret.
        assert!(accepts(None, 0));
    }
}
