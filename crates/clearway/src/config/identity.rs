//! Self-signed certificates for development.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;

use super::fingerprint::Fingerprint;

const HOUR: Duration = Duration::from_secs(60 * 60);
/// How long a certificate for browsers is valid: they accept up to 14 days.
const BROWSER_LIFETIME: Duration = Duration::from_secs(13 * 24 * 60 * 60);

/// A newly generated self-signed certificate and its key. Clients trust it by its
/// certificate ([`ClientConfig::with_roots`](super::ClientConfig::with_roots)) or by its
/// [`Fingerprint`].
#[derive(Clone)]
pub struct DevelopmentIdentity {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

/// A certificate could not be generated: a name is neither a DNS name nor an IP address.
#[derive(Debug, thiserror::Error)]
#[error("cannot generate a certificate: {0}")]
pub struct GenerateError(#[from] rcgen::Error);

impl DevelopmentIdentity {
    /// Generates a P-256 certificate for DNS names and IP addresses.
    ///
    /// # Errors
    /// If a name is not valid in a certificate.
    pub fn generate<N: Into<String>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, GenerateError> {
        Self::sign(rcgen::CertificateParams::new(strings(names))?)
    }

    /// Generates a certificate that browsers accept for WebTransport by its
    /// [`fingerprint`](Self::fingerprint) (`serverCertificateHashes`): P-256, and valid from an hour
    /// ago for 13 days. They accept at most 14.
    ///
    /// # Errors
    /// If a name is not valid in a certificate.
    pub fn generate_for_browsers<N: Into<String>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, GenerateError> {
        let mut params = rcgen::CertificateParams::new(strings(names))?;
        // For clients whose clock is behind.
        let begin = SystemTime::now()
            .checked_sub(HOUR)
            .unwrap_or(SystemTime::UNIX_EPOCH);
        params.not_before = begin.into();
        params.not_after = begin.checked_add(BROWSER_LIFETIME).unwrap_or(begin).into();
        Self::sign(params)
    }

    fn sign(params: rcgen::CertificateParams) -> Result<Self, GenerateError> {
        // ECDSA with P-256.
        let key = rcgen::KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            certificate: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    /// Returns the certificate in PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Returns the private key (PKCS #8) in PEM.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Returns the fingerprint by which a client can trust the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }
}

impl std::fmt::Debug for DevelopmentIdentity {
    /// Shows the fingerprint only, because the key is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DevelopmentIdentity({})", self.fingerprint())
    }
}

fn strings<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Vec<String> {
    names.into_iter().map(Into::into).collect()
}
