//! Why a configuration cannot be used.

/// A certificate, key or choice that TLS cannot work with.
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
    /// PEM text without a single certificate.
    #[error("{0}: no certificate found")]
    NoCertificate(&'static str),
    /// The private key is none of PKCS #8, SEC 1 or PKCS #1.
    #[error("private key: {0}")]
    PrivateKey(&'static str),
    /// No cipher suite or no key exchange was left to negotiate.
    #[error("at least one cipher suite and one key exchange are needed")]
    NoAlgorithm,
    /// An ALPN name of zero or more than 255 bytes (RFC 7301 §3.1).
    #[error("an application protocol name has 1 to 255 bytes, not {0}")]
    AlpnLength(usize),
    /// A trust anchor is no certificate: which one, from 1, and why.
    #[error("trust anchor {0}: {1}")]
    Roots(usize, String),
    /// There is no trust anchor to check certificates by.
    #[error("no trust anchors")]
    NoRoots,
    /// rustls refuses; usually a certificate that does not belong to the key.
    #[error("TLS configuration: {0}")]
    Tls(#[from] rustls::Error),
}

/// Application protocols as TLS carries them, if their lengths can be.
pub(super) fn alpn(protocols: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ConfigError> {
    for name in protocols {
        if !(1..=255).contains(&name.len()) {
            return Err(ConfigError::AlpnLength(name.len()));
        }
    }
    Ok(protocols.to_vec())
}
