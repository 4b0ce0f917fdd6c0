//! Certificates: those in files, and one made on the spot.

use std::fs;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use clearway_quic::crypto::{Identity, Roots};

use crate::failure::{Failure, Kind};

/// A certificate nobody has vouched for, for localhost.
#[derive(Debug)]
pub(crate) struct Development {
    pem: String,
    der: Vec<u8>,
    key: String,
}

impl Development {
    /// Makes one.
    ///
    /// # Errors
    /// If this host has no randomness.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::generate().map_err(|error| {
            Failure::caused(Kind::Other, "cannot make a development certificate", &error)
        })
    }

    fn generate() -> Result<Self, rcgen::Error> {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(names)?.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            der: certificate.der().to_vec(),
            key: key.serialize_pem(),
        })
    }

    /// For a server.
    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        Identity::from_pem(self.pem.as_bytes(), self.key.as_bytes())
            .map_err(|error| Failure::caused(Kind::Other, "development certificate", &error))
    }

    /// For a client that trusts this certificate and no other.
    pub(crate) fn roots(&self) -> Roots {
        Roots::from_der([self.der.clone()])
    }

    /// SHA-256 of the certificate, as browsers and openssl print it.
    pub(crate) fn fingerprint(&self) -> String {
        digest(&SHA256, &self.der)
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect::<Vec<_>>()
            .join(":")
    }
}

/// A server's certificate chain and key from PEM files.
///
/// # Errors
/// Names the file that cannot be read or understood.
pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Identity, Failure> {
    Identity::from_pem(&read(certificate)?, &read(key)?).map_err(|error| {
        let files = format!("{} with {}", certificate.display(), key.display());
        Failure::caused(Kind::Arguments, files, &error)
    })
}

/// Certificates to trust from a PEM file.
///
/// # Errors
/// If it cannot be read or holds none.
pub(crate) fn load_roots(file: &Path) -> Result<Roots, Failure> {
    Roots::from_pem(&read(file)?)
        .map_err(|error| Failure::caused(Kind::Arguments, file.display(), &error))
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| {
        Failure::caused(
            Kind::Arguments,
            format!("cannot read {}", file.display()),
            &error,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_development_certificate_is_usable_and_new_each_time() {
        let (one, two) = (Development::new().unwrap(), Development::new().unwrap());
        one.identity().unwrap();
        assert_ne!(one.fingerprint(), two.fingerprint());
        assert_eq!(one.fingerprint().len(), 32 * 3 - 1);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let failure = load_roots(Path::new("/nowhere/ca.pem")).unwrap_err();
        assert_eq!(failure.kind, Kind::Arguments);
        assert!(
            failure.message.contains("cannot read /nowhere/ca.pem"),
            "{failure}"
        );
    }
}
