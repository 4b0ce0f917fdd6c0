//! The configuration of both ends.

use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, OnceLock};

use clearway_quic::cid::generator::RandomGenerator;
use clearway_quic::cid::quic_lb;
use clearway_quic::connection::Config;
use clearway_quic::crypto::{
    ClientCrypto, ClientSessions, Identity, ReplayFilter, ResetKey, Roots, ServerCrypto, ServerId,
    TokenKey,
};
use clearway_quic::endpoint::{EndpointConfig, GeneratorFactory, Limits, ServerConfig};
use clearway_quic::rng::Rng;

/// The configuration of a client and a server that trust each other.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The transport configuration of the client.
    pub client: Config,
    /// The transport configuration of the server.
    pub server: Config,
    /// The TLS configuration of the client.
    pub client_crypto: Arc<rustls::ClientConfig>,
    /// The TLS configuration of the server.
    pub server_crypto: Arc<rustls::ServerConfig>,
    /// The sessions that the client has stored.
    pub sessions: Arc<ClientSessions>,
    /// Whether the server answers every first Initial with a Retry.
    pub always_retry: bool,
    /// The limits of the server.
    pub limits: Limits,
    /// The preferred address that the server announces.
    pub preferred: Option<SocketAddrV4>,
    /// Length of the connection IDs of both ends in bytes.
    pub cid_len: usize,
    /// How the server makes connection IDs for a load balancer, instead of random ones of
    /// `cid_len` bytes.
    pub load_balancer: Option<Arc<quic_lb::Server>>,
}

/// Returns the server of every world, as its clients remember it.
///
/// # Panics
/// Never: the name is valid.
#[must_use]
pub fn server_id() -> ServerId {
    ServerId {
        name: "localhost".try_into().expect("a name"),
        port: 443,
    }
}

/// Returns a certificate for "localhost" and its key in PEM form, made once for the process.
#[must_use]
pub fn identity() -> (String, String) {
    static IDENTITY: OnceLock<(String, String)> = OnceLock::new();
    IDENTITY.get_or_init(make_identity).clone()
}

fn make_identity() -> (String, String) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let cert = rcgen::CertificateParams::new(vec!["localhost".into()])
        .expect("parameters")
        .self_signed(&key)
        .expect("a certificate");
    (cert.pem(), key.serialize_pem())
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

impl Setup {
    /// Creates the default configuration with the application protocol "test".
    #[must_use]
    pub fn new() -> Self {
        Self::with_alpn("test")
    }

    /// Creates the default configuration with the application protocol `alpn`.
    ///
    /// # Panics
    /// If the configuration cannot be built.
    #[must_use]
    pub fn with_alpn(alpn: &str) -> Self {
        let (cert, key) = identity();
        let sessions = Arc::new(ClientSessions::new(16));
        let roots = Roots::from_pem(cert.as_bytes()).expect("roots");
        let identity = Identity::from_pem(cert.as_bytes(), key.as_bytes()).expect("identity");
        Self {
            client: Config::default(),
            server: Config::default(),
            client_crypto: ClientCrypto::new(roots)
                .alpn([alpn])
                .sessions(sessions.clone())
                .build()
                .expect("client settings"),
            server_crypto: ServerCrypto::new(identity)
                .alpn([alpn])
                .early_data(true)
                .build()
                .expect("server settings"),
            sessions,
            always_retry: false,
            limits: Limits::default(),
            preferred: None,
            cid_len: 8,
            load_balancer: None,
        }
    }

    /// Creates a configuration with another certificate chain than [`new`](Self::new): `chain`, issued
    /// by `root`, and the key of its first certificate, all PEM.
    ///
    /// # Panics
    /// If the configuration cannot be built.
    #[must_use]
    pub fn with_identity(root: &str, chain: &str, key: &str) -> Self {
        let mut this = Self::new();
        let roots = Roots::from_pem(root.as_bytes()).expect("roots");
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).expect("identity");
        this.client_crypto = ClientCrypto::new(roots)
            .alpn(["test"])
            .build()
            .expect("client settings");
        this.server_crypto = ServerCrypto::new(identity)
            .alpn(["test"])
            .build()
            .expect("server settings");
        this
    }

    /// Returns the configuration of the client's endpoint.
    pub fn client_endpoint(&self, rng: &mut Rng) -> EndpointConfig {
        EndpointConfig {
            generator: self.generator(),
            ..EndpointConfig::client(Arc::new(self.client.clone()), rng)
        }
    }

    fn generator(&self) -> GeneratorFactory {
        let len = self.cid_len;
        Arc::new(move || Box::new(RandomGenerator::new(len)))
    }

    fn server_generator(&self) -> GeneratorFactory {
        match self.load_balancer.clone() {
            Some(server) => Arc::new(move || Box::new(quic_lb::Generator::new(server.clone()))),
            None => self.generator(),
        }
    }

    /// Returns the configuration of the server's endpoint.
    #[must_use]
    pub fn server_endpoint(&self) -> EndpointConfig {
        EndpointConfig {
            transport: Arc::new(self.server.clone()),
            server: Some(ServerConfig {
                crypto: self.server_crypto.clone(),
                token_key: Arc::new(TokenKey::new(&[7; 32])),
                replay: Arc::new(Mutex::new(ReplayFilter::new(1024))),
                always_retry: self.always_retry,
                limits: self.limits.clone(),
                preferred_address: self.preferred.map(|v4| (Some(v4), None)),
            }),
            reset_key: Arc::new(ResetKey::new(&[9; 32])),
            generator: self.server_generator(),
        }
    }
}
