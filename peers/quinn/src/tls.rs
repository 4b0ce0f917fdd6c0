//! TLS configurations, and a client's memory of sessions.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    DigitallySignedStruct, Error, NamedGroup, RootCertStore, SignatureScheme,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
        Tls13ClientSessionValue, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    version::TLS13,
};
use tokio::sync::Notify;

/// The only amount of early data, in bytes, that QUIC's tickets may announce besides none
/// (RFC 9001 §4.6.1).
const EARLY_DATA: u32 = u32::MAX;

/// Servers whose tickets a client keeps; it only ever talks to one.
const SERVERS: usize = 4;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("reading {}", file.display()))?;
    ensure!(!chain.is_empty(), "no certificate in {}", file.display());
    Ok(chain)
}

/// A server's configuration; `zero_rtt` makes its tickets good for early data.
pub fn server(alpn: &[u8], cert: &Path, key: &Path, zero_rtt: bool) -> Result<QuicServerConfig> {
    let private =
        PrivateKeyDer::from_pem_file(key).with_context(|| format!("reading {}", key.display()))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificates(cert)?, private)?;
    config.alpn_protocols = vec![alpn.to_vec()];
    config.max_early_data_size = if zero_rtt { EARLY_DATA } else { 0 };
    Ok(config.try_into()?)
}

/// A client's configuration, with what tells whether a session was resumed.
pub struct Client {
    /// Made for quinn.
    pub config: Arc<QuicClientConfig>,
    /// Counts the certificates shown.
    pub verifier: Arc<CountingVerifier>,
    /// Holds the tickets received.
    pub tickets: Arc<TicketStore>,
}

impl Client {
    /// Speaks one application protocol and trusts the authorities of one PEM file;
    /// one that does not `remember` keeps no tickets.
    pub fn new(alpn: &[u8], authority: &Path, remember: bool) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authority)? {
            roots.add(certificate)?;
        }
        let verifier = Arc::new(CountingVerifier {
            verifier: WebPkiServerVerifier::builder_with_provider(roots.into(), provider())
                .build()?,
            count: AtomicU64::new(0),
        });
        let tickets = Arc::new(TicketStore {
            cache: ClientSessionMemoryCache::new(SERVERS),
            arrived: Notify::new(),
        });
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = if remember {
            Resumption::store(Arc::clone(&tickets) as _)
        } else {
            Resumption::disabled()
        };
        config.enable_early_data = true;
        Ok(Self {
            config: Arc::new(config.try_into()?),
            verifier,
            tickets,
        })
    }
}

/// The usual verifier, which also counts. A full handshake shows a certificate, a resumed one
/// shows none (RFC 8446 §2.2): the count tells them apart.
#[derive(Debug)]
pub struct CountingVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    count: AtomicU64,
}

impl CountingVerifier {
    /// Certificates verified so far.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

impl ServerCertVerifier for CountingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.count.fetch_add(1, Relaxed);
        self.verifier
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// The usual session cache, which also says when a ticket arrives: a server may send it any
/// time after the handshake.
pub struct TicketStore {
    cache: ClientSessionMemoryCache,
    arrived: Notify,
}

impl TicketStore {
    /// Waits for a ticket not yet waited for; false if none came in time.
    pub async fn arrival(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.arrived.notified())
            .await
            .is_ok()
    }
}

impl fmt::Debug for TicketStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketStore").finish_non_exhaustive()
    }
}

impl ClientSessionStore for TicketStore {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.cache.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.cache.kx_hint(server)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.cache.set_tls12_session(server, value);
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.cache.tls12_session(server)
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.cache.remove_tls12_session(server);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.cache.insert_tls13_ticket(server, value);
        self.arrived.notify_one();
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.cache.take_tls13_ticket(server)
    }
}
