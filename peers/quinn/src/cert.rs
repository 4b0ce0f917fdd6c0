//! Certificates for loopback: a throw-away authority and one certificate it signs.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The names a certificate is good for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A fresh authority and a certificate with its key, all as PEM text.
pub struct Certificates {
    /// What a client trusts.
    pub authority: String,
    /// What a server shows.
    pub certificate: String,
    /// The private key of `certificate` (P-256, PKCS #8).
    pub key: String,
}

impl Certificates {
    /// Draws new keys and signs.
    ///
    /// The certificate is signed by a separate authority and not by itself, because verifiers
    /// differ on whether an authority's own certificate may serve as a server's.
    pub fn generate() -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority
            .distinguished_name
            .push(DnType::CommonName, "Clearway peers' authority");
        let authority_key = KeyPair::generate()?;
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let mut params = CertificateParams::new(NAMES.map(String::from))?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params
            .distinguished_name
            .push(DnType::CommonName, "localhost");
        let key = KeyPair::generate()?;
        Ok(Self {
            authority: authority_pem,
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Writes `ca.pem`, `cert.pem` and `key.pem` into a folder, which is made if need be.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let files = [
            ("ca.pem", &self.authority),
            ("cert.pem", &self.certificate),
            ("key.pem", &self.key),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    };

    use super::*;

    fn accepts(trusted: &Certificates, shown: &Certificates, name: &'static str) -> bool {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(trusted.authority.as_bytes()).unwrap())
            .unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.into())
            .build()
            .unwrap();
        let certificate = CertificateDer::from_pem_slice(shown.certificate.as_bytes()).unwrap();
        let name = ServerName::try_from(name).unwrap();
        verifier
            .verify_server_cert(&certificate, &[], &name, &[], UnixTime::now())
            .is_ok()
    }

    #[test]
    fn certificate_is_valid_only_for_its_names_and_authority() {
        let (ours, theirs) = (
            Certificates::generate().unwrap(),
            Certificates::generate().unwrap(),
        );
        for name in NAMES {
            assert!(accepts(&ours, &ours, name), "{name}");
        }
        assert!(!accepts(&ours, &ours, "example.org"));
        assert!(!accepts(&theirs, &ours, "localhost"));
    }
}
