//! How a client does TLS. Certificates are verified unless the caller asks for
//! the opposite in so many words.

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

use super::alert::{Refused, reason};
use super::client_sessions::ClientSessions;
use super::common_settings::{CommonSettings, common_setters};
use super::config_error::ConfigError;
use super::identity::{Identity, certificates};
use super::provider::Algorithms;

/// Certificates that are trusted to vouch for others.
#[derive(Clone, Debug)]
pub struct Roots(pub(super) RootCertStore);

impl Roots {
    /// From PEM text with one or more certificates.
    ///
    /// # Errors
    /// If it cannot be parsed, holds no certificate, or one of them is malformed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ConfigError> {
        let mut store = RootCertStore::empty();
        for (n, certificate) in (1..).zip(certificates("trust anchors", pem)?) {
            store
                .add(certificate)
                .map_err(|error| ConfigError::Roots(n, reason(&error).into_owned()))?;
        }
        Ok(Self(store))
    }

    /// From certificates in DER. What is malformed is passed over: systems keep
    /// odd ones among those that they trust.
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
    Certificate(Check),
}

/// Which certificates are believed, whoever signed them.
#[derive(Clone)]
struct Check(Arc<Judge>);

type Judge = dyn Fn(&CertificateDer<'_>) -> Result<(), String> + Send + Sync;

impl core::fmt::Debug for Check {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Check")
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
    /// Made once for all clones.
    parties: Arc<OnceLock<Parties>>,
}

/// Who is trusted and who we are. A ticket is good only together with the very
/// objects it was obtained with, so that clones, which share tickets, have to
/// share these too.
#[derive(Clone, Debug)]
struct Parties {
    verifier: Arc<dyn ServerCertVerifier>,
    ourselves: Arc<dyn ResolvesClientCert>,
}

impl ClientCrypto {
    /// A client that trusts servers these roots vouch for.
    pub fn new(roots: Roots) -> Self {
        Self::with_trust(Trust::Roots(roots))
    }

    /// A client that trusts whom `verifier` trusts (the platform's, a pinned
    /// key).
    pub fn with_verifier(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self::with_trust(Trust::Verifier(verifier))
    }

    /// A client that takes any certificate for any name: whoever is on the
    /// path can impersonate the server. For laboratories only.
    pub fn dangerous_accept_any_certificate() -> Self {
        Self::with_certificate_check(|_| Ok(()))
    }

    /// A client that trusts the servers whose own certificate `check` believes,
    /// whatever it says and whoever signed it: for certificates known by other
    /// means. Otherwise it says why not. That the server holds its key is checked
    /// all the same.
    pub fn with_certificate_check(
        check: impl Fn(&CertificateDer<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::with_trust(Trust::Certificate(Check(Arc::new(check))))
    }

    fn with_trust(trust: Trust) -> Self {
        Self {
            trust,
            common: CommonSettings::default(),
            identity: None,
            early_data: true,
            sessions: Arc::new(ClientSessions::default()),
            parties: Arc::default(),
        }
    }

    /// The certificate to show to servers that ask.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self.parties = Arc::default();
        self
    }

    /// Whether to offer 0-RTT where a server's ticket allows it; on by
    /// default. What is sent in 0-RTT remains the application's choice.
    pub fn early_data(mut self, offer: bool) -> Self {
        self.early_data = offer;
        self
    }

    /// Where tickets are remembered; keep it longer than the connections.
    pub fn sessions(mut self, sessions: Arc<ClientSessions>) -> Self {
        self.sessions = sessions;
        self
    }

    common_setters!();

    /// The finished configuration, to be shared by all connections.
    ///
    /// # Errors
    /// If there are no usable roots, the certificate does not belong to the
    /// key, nothing is left to negotiate, or an ALPN name has an impossible
    /// length.
    pub fn build(self) -> Result<Arc<ClientConfig>, ConfigError> {
        let provider = self.common.algorithms.provider()?;
        let parties = match self.parties.get() {
            Some(parties) => parties.clone(),
            None => {
                let made = Parties::new(self.trust, self.identity, &provider)?;
                self.parties.get_or_init(|| made).clone()
            }
        };
        let mut config =
            ClientConfig::builder_with_details(provider, self.common.wall_clock.clone())
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .dangerous()
                .with_custom_certificate_verifier(parties.verifier)
                .with_client_cert_resolver(parties.ourselves);
        self.common
            .finish(&mut config.alpn_protocols, &mut config.key_log)?;
        config.resumption = Resumption::store(self.sessions);
        config.enable_early_data = self.early_data;
        Ok(Arc::new(config))
    }
}

impl Parties {
    fn new(
        trust: Trust,
        identity: Option<Identity>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            verifier: trust.verifier(provider)?,
            ourselves: match identity {
                Some(identity) => Arc::new(SingleCertAndKey::from(identity.into_certified_key()?)),
                None => Arc::new(Nobody),
            },
        })
    }
}

/// A client without a certificate.
#[derive(Debug)]
struct Nobody;

impl ResolvesClientCert for Nobody {
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
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots.0), provider.clone())
                    .build()
                    .map_err(|_| ConfigError::NoRoots)?
            }
            Self::Verifier(verifier) => verifier,
            Self::Certificate(check) => Arc::new(ByCertificate {
                check,
                provider: provider.clone(),
            }),
        })
    }
}

/// Believes certificates for themselves, but checks that the peer holds the key.
#[derive(Debug)]
struct ByCertificate {
    check: Check,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByCertificate {
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
            .map_err(|why| CertificateError::Other(OtherError(Arc::new(Refused(why)))).into())
    }

    /// Never asked: QUIC has no TLS 1.2.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 in QUIC".into()))
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
            "trust anchor 1: certificate is malformed"
        );
    }
}
