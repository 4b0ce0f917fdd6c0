//! Self-signed certificates for development.

use rustls::pki_types::CertificateDer;

use super::fingerprint::Fingerprint;

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
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let rcgen::CertifiedKey { cert, key_pair } = rcgen::generate_simple_self_signed(names)?;
        Ok(Self {
            certificate: cert.der().clone(),
            certificate_pem: cert.pem(),
            key_pem: key_pair.serialize_pem(),
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
