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

/// What a server shows of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Certificates {
    /// One self-signed certificate: the smallest flight there is.
    #[default]
    One,
    /// A leaf, five intermediates and three certificates that lead elsewhere,
    /// as servers send: a flight beyond three times the client's first datagram
    /// (RFC 9000 §8.1). Verifiers follow six intermediates at most.
    ChainOfNine,
}

/// TLS settings that scenarios vary.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The server's certificates.
    pub certificates: Certificates,
    /// Without the post-quantum key exchange, whose ClientHello takes two
    /// datagrams.
    pub x25519_only: bool,
    /// What the connection is for.
    pub protocol: Protocol,
    /// Where secrets go, if anywhere.
    pub secrets: Option<Secrets>,
}

/// A client's and a server's configuration that fit together.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) client: Arc<rustls::ClientConfig>,
    pub(super) server: Arc<rustls::ServerConfig>,
}

impl Tls {
    /// The certificates as PEM, for other stacks: root, chain, and the key of
    /// the chain's first.
    #[must_use]
    pub fn pem(&self) -> [&'static str; 3] {
        let pem = match self.certificates {
            Certificates::One => &ONE,
            Certificates::ChainOfNine => &NINE,
        };
        [&pem.root, &pem.chain, &pem.key]
    }

    /// The configurations; shared by all runs unless secrets are collected.
    pub(super) fn pair(&self) -> Pair {
        type Key = (Certificates, bool, Protocol);
        static PAIRS: LazyLock<Mutex<HashMap<Key, Pair>>> = LazyLock::new(Mutex::default);
        if self.secrets.is_some() {
            return self.build();
        }
        let key = (self.certificates, self.x25519_only, self.protocol);
        let mut pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.entry(key).or_insert_with(|| self.build()).clone()
    }

    fn build(&self) -> Pair {
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
            .wall_clock(Arc::new(Origin));
        if let Some(secrets) = &self.secrets {
            client = client.key_log(Arc::new(secrets.clone()));
        }
        let client = client.build().expect("client settings");
        // Nothing of one run may show in another: no tickets are kept.
        let mut client = (*client).clone();
        client.resumption = Resumption::disabled();
        Pair {
            client: Arc::new(client),
            server: ServerCrypto::new(identity)
                .alpn(alpn)
                .algorithms(algorithms)
                .wall_clock(Arc::new(Origin))
                .build()
                .expect("server settings"),
        }
    }
}

/// PEM of a root, a chain and the key of the chain's first.
struct Pem {
    root: String,
    chain: String,
    key: String,
}

static ONE: LazyLock<Pem> = LazyLock::new(|| chain_of(0, 0));
static NINE: LazyLock<Pem> = LazyLock::new(|| chain_of(5, 3));

/// Ed25519, whose signatures have one length, and serial numbers of one
/// length: the flight's size must not depend on the key.
fn params(name: &str, number: u8) -> CertificateParams {
    let mut params =
        CertificateParams::new(vec![name.to_owned()]).expect("a name that is a DNS name");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Clearway lab {number}"));
    params.serial_number = Some(SerialNumber::from(vec![1 + number; 16]));
    params
}

/// A leaf, so many intermediates, and so many certificates beside the path.
/// Without intermediates the leaf is its own root.
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

/// The wall clock of the lab stands still.
#[derive(Debug)]
struct Origin;

impl TimeProvider for Origin {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::from_secs(
            UNIX_ORIGIN,
        )))
    }
}
