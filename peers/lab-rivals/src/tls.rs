//! TLS for the rivals: the lab's certificates on rustls as it comes, because
//! our own packet protection cannot do what noq asks of it (nonces per path).

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use clearway_lab::stack::{ALPN, Certificates, Tls, UNIX_ORIGIN};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::capture::RivalSecrets;

/// The wall clock of the lab.
#[derive(Debug)]
struct Wall;

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(UNIX_ORIGIN)))
    }
}

type Pair = (Arc<ClientConfig>, Arc<ServerConfig>);

/// A client's and a server's configuration; made once for each kind.
pub(crate) fn configurations(tls: &Tls) -> Pair {
    static PAIRS: LazyLock<[Pair; 4]> = LazyLock::new(|| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(chain, x25519_only)| {
            build(&Tls {
                certificates: if chain {
                    Certificates::ChainOfNine
                } else {
                    Certificates::One
                },
                x25519_only,
                ..Tls::default()
            })
            .expect("the lab's own certificates")
        })
    });
    let chain = tls.certificates == Certificates::ChainOfNine;
    PAIRS[usize::from(chain) * 2 + usize::from(tls.x25519_only)].clone()
}

fn provider(x25519_only: bool) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    // As ours offer: the post-quantum exchange first.
    provider.kx_groups = if x25519_only {
        vec![aws_lc_rs::kx_group::X25519]
    } else {
        vec![
            aws_lc_rs::kx_group::X25519MLKEM768,
            aws_lc_rs::kx_group::X25519,
        ]
    };
    provider
}

fn build(tls: &Tls) -> Result<Pair, Box<dyn std::error::Error>> {
    let [root, chain, key] = tls.pem();
    let provider = Arc::new(provider(tls.x25519_only));
    let wall = Arc::new(Wall);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes())?)?;
    let mut client = ClientConfig::builder_with_details(provider.clone(), wall.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![ALPN.into()];
    client.resumption = Resumption::disabled();
    client.key_log = Arc::new(RivalSecrets);
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?;
    let mut server = ServerConfig::builder_with_details(provider, wall)
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
    server.alpn_protocols = vec![ALPN.into()];
    Ok((Arc::new(client), Arc::new(server)))
}
