//! Certificates for simulations.

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};

/// Generates a self-signed certificate for these names, and its key, both in PEM. Its signatures
/// always have the same size, unlike those of
/// [`DevelopmentIdentity`](clearway::DevelopmentIdentity), so that handshakes do.
///
/// # Panics
/// If a name is not valid in a certificate.
#[must_use]
pub fn identity<N: Into<String>>(names: impl IntoIterator<Item = N>) -> (String, String) {
    let names: Vec<String> = names.into_iter().map(Into::into).collect();
    let key = KeyPair::generate_for(&PKCS_ED25519).expect("Ed25519 is supported");
    let certificate = CertificateParams::new(names).and_then(|params| params.self_signed(&key));
    let certificate = certificate.expect("names of hosts");
    (certificate.pem(), key.serialize_pem())
}
