//! Certificates for development.

use rustls::pki_types::CertificateDer;

use super::fingerprint::Fingerprint;

/// A self-signed certificate and its key, made on the spot. Clients trust it by
/// its certificate ([`ClientConfig::with_roots`](super::ClientConfig::with_roots))
/// or by its [`Fingerprint`].
#[derive(Clone)]
pub struct DevelopmentIdentity {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

/// A certificate that could not be generated: a name is not a possible one.
#[derive(Debug, thiserror::Error)]
#[error("generating a certificate: {0}")]
pub struct GenerateError(#[from] rcgen::Error);

impl DevelopmentIdentity {
    /// A P-256 certificate for DNS names and IP addresses.
    ///
    /// # Errors
    /// If a name cannot stand in a certificate.
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

    /// The certificate, PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The private key (PKCS #8), PEM.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// What a client may know the certificate by.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }
}

impl std::fmt::Debug for DevelopmentIdentity {
    /// The key is a secret: never shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DevelopmentIdentity({})", self.fingerprint())
    }
}
