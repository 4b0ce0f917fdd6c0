//! TLS configuration of a client. Certificates are verified unless the caller explicitly
//! disables it.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, KeyLog, KeyLogFile, OtherError,
    RootCertStore, SignatureScheme,
};

use super::alert::{RejectedByCheck, reason};
use super::client_sessions::{ClientSessions, VersionSessions};
use super::common_settings::{CommonSettings, common_setters};
use super::config_error::ConfigError;
use super::identity::{Identity, certificates};
use super::provider::Algorithms;
use super::verified_chains::RememberingVerifier;
use crate::wire::Version;

/// Root certificates that are trusted to issue others.
#[derive(Clone, Debug)]
pub struct Roots(pub(super) RootCertStore);

impl Roots {
    /// Reads one or more certificates in PEM form.
    ///
    /// # Errors
    /// If the text cannot be parsed, holds no certificate, or one of them is malformed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ConfigError> {
        let mut store = RootCertStore::empty();
        for (n, certificate) in (1..).zip(certificates("root certificates", pem)?) {
            store
                .add(certificate)
                .map_err(|error| ConfigError::Roots(n, reason(&error).into_owned()))?;
        }
        Ok(Self(store))
    }

    /// Takes certificates in DER form. Malformed ones are ignored, because the root stores of
    /// operating systems contain some.
    #[must_use]
    pub fn from_der(certificates: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates.into_iter().map(CertificateDer::from));
        Self(store)
    }
}

#[derive(Clone, Debug)]
enum Trust {
    Roots(Roots),
    Verifier(Arc<dyn ServerCertVerifier>),
    Certificate(CertificateCheck),
}

/// Decides which certificates are accepted, whoever signed them.
#[derive(Clone)]
struct CertificateCheck(Arc<CheckFn>);

type CheckFn = dyn Fn(&CertificateDer<'_>) -> Result<(), String> + Send + Sync;

impl core::fmt::Debug for CertificateCheck {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("CertificateCheck")
    }
}

/// Builds the TLS configuration of a client.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientCrypto {
    trust: Trust,
    common: CommonSettings,
    identity: Option<Identity>,
    early_data: bool,
    sessions: Arc<ClientSessions>,
    /// Created once and shared by all clones.
    credentials: Arc<OnceLock<Credentials>>,
}

/// The server verifier and the client certificate. rustls accepts a ticket only with the very
/// objects that it was obtained with, so clones, which share tickets, have to share these too.
#[derive(Clone, Debug)]
struct Credentials {
    verifier: Arc<dyn ServerCertVerifier>,
    client_certificate: Arc<dyn ResolvesClientCert>,
}

impl ClientCrypto {
    /// Creates the configuration of a client that trusts certificates issued by `roots`.
    pub fn new(roots: Roots) -> Self {
        Self::with_trust(Trust::Roots(roots))
    }

    /// Creates the configuration of a client with its own verifier, such as the platform's or
    /// one for a pinned key.
    pub fn with_verifier(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self::with_trust(Trust::Verifier(verifier))
    }

    /// Creates the configuration of a client that accepts any certificate for any name.
    /// Whoever is on the path can impersonate the server: use it in tests only.
    pub fn dangerous_accept_any_certificate() -> Self {
        Self::with_certificate_check(|_| Ok(()))
    }

    /// Creates the configuration of a client that accepts the server certificates for which
    /// `check` returns `Ok`, whatever names they contain and whoever signed them. This is for
    /// certificates that are known by other means. The error of `check` says why a certificate
    /// is rejected. That the server holds the private key is verified in any case.
    pub fn with_certificate_check(
        check: impl Fn(&CertificateDer<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::with_trust(Trust::Certificate(CertificateCheck(Arc::new(check))))
    }

    fn with_trust(trust: Trust) -> Self {
        Self {
            trust,
            common: CommonSettings::default(),
            identity: None,
            early_data: true,
            sessions: Arc::new(ClientSessions::default()),
            credentials: Arc::default(),
        }
    }

    /// Sets the certificate that is sent to servers that ask for one. Default: none.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self.credentials = Arc::default();
        self
    }

    /// Sets whether to offer 0-RTT when a ticket of the server allows it. Default: true, because
    /// an application still chooses what it sends in 0-RTT.
    pub fn early_data(mut self, offer: bool) -> Self {
        self.early_data = offer;
        self
    }

    /// Sets the store of tickets, which has to outlive the connections. Default: a store of its
    /// own.
    pub fn sessions(mut self, sessions: Arc<ClientSessions>) -> Self {
        self.sessions = sessions;
        self
    }

    common_setters!();

    /// Builds the configuration, to be shared by all connections.
    ///
    /// # Errors
    /// If there is no root certificate, the client certificate does not belong to the key, no
    /// algorithm is enabled, or an ALPN name is empty or longer than 255 bytes.
    pub fn build(self) -> Result<Arc<ClientConfig>, ConfigError> {
        let provider = self.common.algorithms.provider()?;
        let credentials = match self.credentials.get() {
            Some(credentials) => credentials.clone(),
            None => {
                let made = Credentials::new(self.trust, self.identity, &provider)?;
                self.credentials.get_or_init(|| made).clone()
            }
        };
        let mut config =
            ClientConfig::builder_with_details(provider, self.common.wall_clock.clone())
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .dangerous()
                .with_custom_certificate_verifier(credentials.verifier)
                .with_client_cert_resolver(credentials.client_certificate);
        self.common
            .finish(&mut config.alpn_protocols, &mut config.key_log)?;
        // A connection with a store of its own asks by port and version too
        // (`ConnectOptions::sessions`).
        config.resumption = Resumption::store(Arc::new(VersionSessions::new(
            self.sessions,
            0,
            Version::V1,
        )));
        config.enable_early_data = self.early_data;
        Ok(Arc::new(config))
    }
}

impl Credentials {
    fn new(
        trust: Trust,
        identity: Option<Identity>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            verifier: trust.verifier(provider)?,
            client_certificate: match identity {
                Some(identity) => Arc::new(SingleCertAndKey::from(identity.into_certified_key()?)),
                None => Arc::new(NoClientCertificate),
            },
        })
    }
}

/// Resolves to no client certificate.
#[derive(Debug)]
struct NoClientCertificate;

impl ResolvesClientCert for NoClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

impl Trust {
    fn verifier(
        self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
        Ok(match self {
            Self::Roots(roots) => {
                let webpki = WebPkiServerVerifier::builder_with_provider(
                    Arc::new(roots.0),
                    provider.clone(),
                );
                let verifier = webpki.build().map_err(|_| ConfigError::NoRoots)?;
                Arc::new(RememberingVerifier::new(verifier))
            }
            Self::Verifier(verifier) => verifier,
            Self::Certificate(check) => Arc::new(CertificateCheckVerifier {
                check,
                provider: provider.clone(),
            }),
        })
    }
}

/// Verifies the certificate with the application's check, and that the peer holds its key.
#[derive(Debug)]
struct CertificateCheckVerifier {
    check: CertificateCheck,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateCheckVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        (self.check.0)(end_entity)
            .map(|()| ServerCertVerified::assertion())
            .map_err(|why| {
                CertificateError::Other(OtherError(Arc::new(RejectedByCheck(why)))).into()
            })
    }

    /// Always fails: QUIC requires TLS 1.3.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General(
            "TLS 1.2 cannot be used with QUIC".into(),
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let supported = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, supported)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Returns a verifier with this check.
#[cfg(test)]
pub(super) fn certificate_check_verifier(
    check: impl Fn(&CertificateDer<'_>) -> Result<(), String> + Send + Sync + 'static,
) -> Arc<dyn ServerCertVerifier> {
    Arc::new(CertificateCheckVerifier {
        check: CertificateCheck(Arc::new(check)),
        provider: Algorithms::default().provider().unwrap(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_without_roots_is_rejected() {
        for none in [vec![], vec![vec![1, 2, 3]]] {
            let error = ClientCrypto::new(Roots::from_der(none))
                .build()
                .unwrap_err();
            assert!(matches!(error, ConfigError::NoRoots), "{error}");
        }
    }

    #[test]
    fn invalid_root_certificate_is_rejected_by_position() {
        assert!(Roots::from_pem(b"not PEM").is_err());
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let error = Roots::from_pem(junk.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "root certificate 1: certificate is malformed"
        );
    }
}
