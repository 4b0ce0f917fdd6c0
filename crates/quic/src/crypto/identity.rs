//! A certificate chain and its private key.

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::config_error::ConfigError;

/// A certificate chain, leaf first, and its private key.
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a chain, leaf first, and a key (PKCS #8, SEC 1 or PKCS #1) in PEM form, as
    /// certificate authorities issue them.
    ///
    /// # Errors
    /// If one of them cannot be parsed, or if there is no certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        Ok(Self {
            chain: certificates("certificate chain", chain)?,
            key: PrivateKeyDer::from_pem_slice(key).map_err(|source| ConfigError::Pem {
                what: "private key",
                source,
            })?,
        })
    }

    /// Takes certificates, leaf first, and a key (PKCS #8, SEC 1 or PKCS #1) in DER form.
    ///
    /// # Errors
    /// If there is no certificate, or if the form of the key is unknown.
    pub fn from_der(chain: Vec<Vec<u8>>, key: Vec<u8>) -> Result<Self, ConfigError> {
        if chain.is_empty() {
            return Err(ConfigError::NoCertificate("certificate chain"));
        }
        Ok(Self {
            chain: chain.into_iter().map(CertificateDer::from).collect(),
            key: PrivateKeyDer::try_from(key).map_err(ConfigError::PrivateKey)?,
        })
    }

    /// Converts it into the form that certificate resolvers return.
    ///
    /// # Errors
    /// If the key does not belong to the certificate, or cannot sign.
    pub fn into_certified_key(self) -> Result<CertifiedKey, ConfigError> {
        Ok(CertifiedKey::from_der(
            self.chain,
            self.key,
            &default_provider(),
        )?)
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

impl core::fmt::Debug for Identity {
    /// Returns the key is a secret: never shown.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

/// Returns all certificates in PEM text, at least one.
pub(super) fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| ConfigError::Pem { what, source })?;
    if found.is_empty() {
        return Err(ConfigError::NoCertificate(what));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::testing::Authority;

    #[test]
    fn pem_and_der_of_same_identity_agree() {
        let (chain, key) = Authority::new().issue_pem("localhost");
        let pem = Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let der = Identity::from_der(
            pem.chain.iter().map(|c| c.to_vec()).collect(),
            pem.key.secret_der().to_vec(),
        )
        .unwrap();
        assert_eq!(der.chain, pem.chain);
        assert_eq!(der.key, pem.key);
    }

    #[test]
    fn missing_certificate_or_key_is_named_in_error() {
        let (chain, key) = Authority::new().issue_pem("localhost");
        let swapped = Identity::from_pem(key.as_bytes(), chain.as_bytes()).unwrap_err();
        assert_eq!(
            swapped.to_string(),
            "certificate chain: the PEM text contains no certificate"
        );
        let no_key = Identity::from_pem(chain.as_bytes(), b"").unwrap_err();
        assert!(no_key.to_string().starts_with("private key: "), "{no_key}");
        assert!(Identity::from_der(vec![vec![1]], vec![1, 2, 3]).is_err());
    }
}
