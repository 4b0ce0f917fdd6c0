//! The lab's certificates and TLS settings: made once per process, because a
//! sweep is thousands of handshakes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use clearway_quic::crypto::{Algorithms, ClientCrypto, Identity, Roots, ServerCrypto};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, PKCS_ED25519, SerialNumber,
};
use rustls::client::Resumption;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::{Protocol, SERVER_NAME, Secrets, UNIX_ORIGIN};

/// The certificates of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Certificates {
    /// One self-signed certificate: the smallest flight.
    #[default]
    One,
    /// A leaf, five intermediates and three unrelated certificates, as some servers send: a flight
    /// beyond three times the client's first datagram (RFC 9000 §8.1). Verifiers follow at most six
    /// intermediates.
    ChainOfNine,
}

/// TLS settings that scenarios vary.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The server's certificates.
    pub certificates: Certificates,
    /// Disables the post-quantum key exchange, whose ClientHello takes two datagrams.
    pub x25519_only: bool,
    /// The protocol of the connection.
    pub protocol: Protocol,
    /// Collects the secrets, if given.
    pub secrets: Option<Secrets>,
}

/// A matching configuration of client and server.
#[derive(Clone, Debug)]
pub(super) struct ConfigPair {
    pub(super) client: Arc<rustls::ClientConfig>,
    pub(super) server: Arc<rustls::ServerConfig>,
}

impl Tls {
    /// The certificates as PEM, for other stacks: root, chain, and the key of the first in the
    /// chain.
    #[must_use]
    pub fn pem(&self) -> [&'static str; 3] {
        let pem = match self.certificates {
            Certificates::One => &ONE,
            Certificates::ChainOfNine => &NINE,
        };
        [&pem.root, &pem.chain, &pem.key]
    }

    /// The configurations; shared by all runs unless secrets are collected.
    pub(super) fn pair(&self) -> ConfigPair {
        type Key = (Certificates, bool, Protocol);
        static PAIRS: LazyLock<Mutex<HashMap<Key, ConfigPair>>> = LazyLock::new(Mutex::default);
        if self.secrets.is_some() {
            return self.build();
        }
        let key = (self.certificates, self.x25519_only, self.protocol);
        let mut pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.entry(key).or_insert_with(|| self.build()).clone()
    }

    fn build(&self) -> ConfigPair {
        let [root, chain, key] = self.pem();
        let roots = Roots::from_pem(root.as_bytes()).expect("the root just made");
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes())
            .expect("the chain and key just made");
        let algorithms = if self.x25519_only {
            Algorithms::default().x25519_only()
        } else {
            Algorithms::default()
        };
        let alpn = [self.protocol.alpn()];
        let mut client = ClientCrypto::new(roots)
            .alpn(alpn)
            .algorithms(algorithms.clone())
            .wall_clock(Arc::new(FixedClock));
        if let Some(secrets) = &self.secrets {
            client = client.key_log(Arc::new(secrets.clone()));
        }
        let client = client.build().expect("client settings");
        // Runs must not influence each other: no tickets are kept.
        let mut client = (*client).clone();
        client.resumption = Resumption::disabled();
        ConfigPair {
            client: Arc::new(client),
            server: ServerCrypto::new(identity)
                .alpn(alpn)
                .algorithms(algorithms)
                .wall_clock(Arc::new(FixedClock))
                .build()
                .expect("server settings"),
        }
    }
}

/// PEM of a root, a chain and the key of the first in the chain.
struct Pem {
    root: String,
    chain: String,
    key: String,
}

static ONE: LazyLock<Pem> = LazyLock::new(|| chain_of(0, 0));
static NINE: LazyLock<Pem> = LazyLock::new(|| chain_of(5, 3));

/// Ed25519 signatures and serial numbers of a fixed length: the size of the flight must not depend
/// on the key.
fn params(name: &str, number: u8) -> CertificateParams {
    let mut params =
        CertificateParams::new(vec![name.to_owned()]).expect("a name that is a DNS name");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Clearway lab {number}"));
    params.serial_number = Some(SerialNumber::from(vec![1 + number; 16]));
    params
}

/// A leaf, a number of intermediates, and a number of certificates outside the path. Without
/// intermediates the leaf is its own root.
fn chain_of(intermediates: u8, beside: u8) -> Pem {
    let key = || KeyPair::generate_for(&PKCS_ED25519).expect("an Ed25519 key");
    if intermediates == 0 {
        let own = key();
        let leaf = params(SERVER_NAME, 0)
            .self_signed(&own)
            .expect("a certificate");
        return Pem {
            root: leaf.pem(),
            chain: leaf.pem(),
            key: own.serialize_pem(),
        };
    }
    let authority = |number| {
        let mut params = params("authority.test", number);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let mut issuer_key = key();
    let mut issuer = authority(0).self_signed(&issuer_key).expect("a root");
    let root = issuer.pem();
    let mut chain = String::new();
    for number in 1..=intermediates {
        let own = key();
        issuer = authority(number)
            .signed_by(&own, &issuer, &issuer_key)
            .expect("an intermediate certificate");
        issuer_key = own;
        chain.insert_str(0, &issuer.pem());
    }
    let own = key();
    let leaf = params(SERVER_NAME, intermediates + 1)
        .signed_by(&own, &issuer, &issuer_key)
        .expect("a leaf certificate");
    chain.insert_str(0, &leaf.pem());
    for number in 1..=beside {
        let stranger = authority(100 + number).self_signed(&key());
        chain.push_str(&stranger.expect("a certificate").pem());
    }
    Pem {
        root,
        chain,
        key: own.serialize_pem(),
    }
}

/// A wall clock that stands still.
#[derive(Debug)]
struct FixedClock;

impl TimeProvider for FixedClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::from_secs(
            UNIX_ORIGIN,
        )))
    }
}
