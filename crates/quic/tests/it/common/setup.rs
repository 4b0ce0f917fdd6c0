//! What both ends agree on before they meet.

use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, OnceLock};

use clearway_quic::cid::generator::RandomGenerator;
use clearway_quic::connection::Config;
use clearway_quic::crypto::{
    ClientCrypto, ClientSessions, Identity, ReplayFilter, ResetKey, Roots, ServerCrypto, TokenKey,
};
use clearway_quic::endpoint::{EndpointConfig, GeneratorFactory, Limits, ServerConfig};
use clearway_quic::rng::Rng;

/// What both ends agree on before they meet.
#[derive(Clone)]
pub struct Setup {
    pub client: Config,
    pub server: Config,
    pub client_crypto: Arc<rustls::ClientConfig>,
    pub server_crypto: Arc<rustls::ServerConfig>,
    pub sessions: Arc<ClientSessions>,
    pub always_retry: bool,
    pub limits: Limits,
    pub preferred: Option<SocketAddrV4>,
    /// Bytes of both ends' connection IDs.
    pub cid_len: usize,
}

/// A certificate and its key, PEM; one for all tests of a binary.
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

impl Setup {
    pub fn new() -> Self {
        let (cert, key) = identity();
        let sessions = Arc::new(ClientSessions::new(16));
        let roots = Roots::from_pem(cert.as_bytes()).expect("roots");
        let identity = Identity::from_pem(cert.as_bytes(), key.as_bytes()).expect("identity");
        Self {
            client: Config::default(),
            server: Config::default(),
            client_crypto: ClientCrypto::new(roots)
                .alpn(["test"])
                .sessions(sessions.clone())
                .build()
                .expect("client settings"),
            server_crypto: ServerCrypto::new(identity)
                .alpn(["test"])
                .early_data(true)
                .build()
                .expect("server settings"),
            sessions,
            always_retry: false,
            limits: Limits::default(),
            preferred: None,
            cid_len: 8,
        }
    }

    /// A server with other certificates than `new` gives:
    /// `chain` and the key of its first, all PEM.
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

    pub(super) fn client_endpoint(&self, rng: &mut Rng) -> EndpointConfig {
        EndpointConfig {
            generator: self.generator(),
            ..EndpointConfig::client(Arc::new(self.client.clone()), rng)
        }
    }

    fn generator(&self) -> GeneratorFactory {
        let len = self.cid_len;
        Arc::new(move || Box::new(RandomGenerator::new(len)))
    }

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
            generator: self.generator(),
        }
    }
}
