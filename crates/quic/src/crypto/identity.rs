//! A certificate chain and the private key it speaks for.

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::config_error::ConfigError;

/// Who we are: a certificate chain, leaf first, and its private key.
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// From PEM text, as certificate authorities hand it out: the chain, leaf
    /// first, and the key (PKCS #8, SEC 1 or PKCS #1).
    ///
    /// # Errors
    /// If either cannot be parsed or there is no certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        Ok(Self {
            chain: certificates("certificate chain", chain)?,
            key: PrivateKeyDer::from_pem_slice(key).map_err(|source| ConfigError::Pem {
                what: "private key",
                source,
            })?,
        })
    }

    /// From DER: certificates, leaf first, and the key (PKCS #8, SEC 1 or
    /// PKCS #1).
    ///
    /// # Errors
    /// If there is no certificate or the key is of no known form.
    pub fn from_der(chain: Vec<Vec<u8>>, key: Vec<u8>) -> Result<Self, ConfigError> {
        if chain.is_empty() {
            return Err(ConfigError::NoCertificate("certificate chain"));
        }
        Ok(Self {
            chain: chain.into_iter().map(CertificateDer::from).collect(),
            key: PrivateKeyDer::try_from(key).map_err(ConfigError::PrivateKey)?,
        })
    }

    /// As certificate resolvers hand it out, ready to sign.
    ///
    /// # Errors
    /// If the key is not the certificate's or of a kind that cannot sign.
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
    /// The key is a secret: never shown.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

/// All certificates in PEM text; at least one.
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
            "certificate chain: no certificate found"
        );
        let no_key = Identity::from_pem(chain.as_bytes(), b"").unwrap_err();
        assert!(no_key.to_string().starts_with("private key: "), "{no_key}");
        assert!(Identity::from_der(vec![vec![1]], vec![1, 2, 3]).is_err());
    }
}
