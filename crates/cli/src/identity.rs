//! Certificates, from files or generated.

use std::error::Error;
use std::fs;
use std::path::Path;

use clearway::DevelopmentIdentity;

use crate::failure::{Failure, Kind};

/// Names a development certificate is for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A self-signed certificate for this host.
///
/// # Errors
/// If the system provides no randomness.
pub(crate) fn development() -> Result<DevelopmentIdentity, Failure> {
    DevelopmentIdentity::generate(NAMES)
        .map_err(|error| Failure::caused(Kind::Other, "cannot make a certificate", &error))
}

/// Does the same for browsers that connect by WebTransport; valid for 13 days.
///
/// # Errors
/// If the system provides no randomness.
pub(crate) fn for_browsers() -> Result<DevelopmentIdentity, Failure> {
    DevelopmentIdentity::generate_for_browsers(NAMES)
        .map_err(|error| Failure::caused(Kind::Other, "cannot make a certificate", &error))
}

/// A file that an option names.
///
/// # Errors
/// If it cannot be read; the message names it.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| {
        let what = format!("cannot read {}", file.display());
        Failure::caused(Kind::Arguments, what, &error)
    })
}

/// Why a certificate and its key, from these files, cannot be used.
pub(crate) fn unusable(certificate: &Path, key: &Path, error: &dyn Error) -> Failure {
    let what = format!(
        "cannot use the certificate {} with the key {}",
        certificate.display(),
        key.display()
    );
    Failure::caused(Kind::Arguments, what, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_file_is_named_in_the_error() {
        let failure = read(Path::new("/nowhere/ca.pem")).unwrap_err();
        assert_eq!(failure.kind, Kind::Arguments);
        assert!(
            failure.message.contains("cannot read /nowhere/ca.pem"),
            "{failure}"
        );
    }
}
