//! Why a configuration cannot be used.

/// An error in a TLS configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The PEM text could not be read.
    #[error("{what}: {source}")]
    Pem {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// The PEM text contains no certificate.
    #[error("{0}: the PEM text contains no certificate")]
    NoCertificate(&'static str),
    /// The private key is not in PKCS #8, SEC 1 or PKCS #1 form.
    #[error("private key: {0}")]
    PrivateKey(&'static str),
    /// No cipher suite or no key exchange group is enabled.
    #[error(
        "invalid TLS algorithms: at least one cipher suite and one key exchange group must be enabled"
    )]
    NoAlgorithm,
    /// An ALPN name of zero or more than 255 bytes (RFC 7301 §3.1).
    #[error("invalid ALPN protocol name: must be 1 to 255 bytes long, but is {0}")]
    AlpnLength(usize),
    /// A root certificate is invalid: its position, from 1, and why.
    #[error("root certificate {0}: {1}")]
    Roots(usize, String),
    /// There is no root certificate to verify certificates with.
    #[error("no root certificates: at least one is needed to verify certificates")]
    NoRoots,
    /// rustls rejects the configuration, usually because the certificate does not belong to
    /// the key.
    #[error("TLS configuration: {0}")]
    Tls(#[from] rustls::Error),
}

/// Returns the application protocols if TLS can carry names of their lengths.
pub(super) fn alpn(protocols: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ConfigError> {
    for name in protocols {
        if !(1..=255).contains(&name.len()) {
            return Err(ConfigError::AlpnLength(name.len()));
        }
    }
    Ok(protocols.to_vec())
}
